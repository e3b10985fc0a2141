//! Tensors by name through any network.

use std::collections::BTreeMap;

use tileforge_runtime::host::{Service, Terms};
use tileforge_runtime::run::Runner;
use tileforge_session::{Tensor, TensorInfo};

use crate::error::Result;
use crate::request::Request;

/// A network that takes and gives tensors by name, for any number of callers.
#[derive(Debug)]
pub struct Tensors(Service<Runner>);

impl Tensors {
    pub(crate) fn new(service: Service<Runner>) -> Self {
        Self(service)
    }

    /// The inputs in the graph's order. A length that requests choose is open; so is the number of samples where any
    /// number is taken.
    pub fn inputs(&self) -> Vec<TensorInfo> {
        self.0.task().inputs()
    }

    /// The outputs in the graph's order, as [`Tensors::inputs`].
    pub fn outputs(&self) -> Vec<TensorInfo> {
        self.0.task().outputs()
    }

    /// Runs the network, and waits for its outputs. Inputs that are carried over from a run before are zeros where
    /// they are left out. Where the inputs have an axis of samples, there may be any number of them; they run together with
    /// those of other requests where that changes no byte, or the request's terms allow rounding.
    ///
    /// # Errors
    /// An input is missing, or has a type or shape that the engine has no graph for.
    pub fn run(&self, inputs: BTreeMap<String, Tensor>) -> Result<BTreeMap<String, Tensor>> {
        self.submit(inputs, Terms::default())?.wait()
    }

    /// The same, when the request's turn comes.
    ///
    /// # Errors
    /// As [`Upscaler::submit`](crate::Upscaler::submit).
    pub fn submit(
        &self,
        inputs: BTreeMap<String, Tensor>,
        terms: impl Into<Terms>,
    ) -> Result<Request<BTreeMap<String, Tensor>>> {
        let handle = self.0.submit(inputs, terms)?;
        Ok(Request::new(handle, |outputs| Ok(outputs.tensors.into_iter().collect())))
    }
}
