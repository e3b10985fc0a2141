//! Tensors by name through any network.

use std::collections::BTreeMap;

use tileforge_runtime::host::{Service, Terms};
use tileforge_runtime::run::Runner;
use tileforge_session::{Tensor, TensorInfo};

use crate::error::Result;
use crate::request::Request;

/// A network with tensors by name, for any number of callers.
#[derive(Debug)]
pub struct Tensors(Service<Runner>);

impl Tensors {
    pub(crate) fn new(service: Service<Runner>) -> Self {
        Self(service)
    }

    /// The inputs in the graph's order. A length that requests choose is open; so is the number of samples if any
    /// number is allowed.
    pub fn inputs(&self) -> Vec<TensorInfo> {
        self.0.task().inputs()
    }

    /// The outputs in the graph's order, as [`Tensors::inputs`].
    pub fn outputs(&self) -> Vec<TensorInfo> {
        self.0.task().outputs()
    }

    /// Runs the network, and waits for its outputs. Carried inputs that are left out are zeros. If the inputs have a
    /// batch axis, any number of samples is allowed. They run together with samples of other requests if that changes
    /// no byte, or if the request's terms allow rounding.
    ///
    /// # Errors
    /// An input is missing, or has a type or shape that the engine has no graph for.
    pub fn run(&self, inputs: BTreeMap<String, Tensor>) -> Result<BTreeMap<String, Tensor>> {
        self.submit(inputs, Terms::default())?.wait()
    }

    /// Submits inputs to run.
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
