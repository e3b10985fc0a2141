//! Tensors by name through any network.

use std::collections::BTreeMap;

use tileforge_runtime::host::{Host, Service, Terms};
use tileforge_runtime::run::Runner;
use tileforge_session::Tensor;

use crate::error::Result;
use crate::request::{Request, WAITING};

/// A network that takes and gives tensors by name, for any number of callers.
#[derive(Debug)]
pub struct Tensors(Service<Runner>);

impl Tensors {
    pub(crate) fn new(host: &Host, task: Runner) -> Self {
        Self(Service::new(host, task, WAITING))
    }

    /// Runs the network once, and waits for its outputs. Inputs that are carried over from a run before are zeros where
    /// they are left out.
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
