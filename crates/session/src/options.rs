//! How sessions are opened.

use std::collections::BTreeMap;
use std::path::PathBuf;

use tileforge_contract::Provider;

/// How far ONNX Runtime rewrites a graph while loading it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OptimisationLevel {
    /// Everything, including layouts for this processor.
    #[default]
    All,
    /// Fusions, but no processor-specific layouts: what may be written to a file for other boxes.
    Extended,
    /// Nothing: every operator as the graph has it, which is what a reference is.
    Disabled,
}

/// How a [`Session`](crate::Session) is opened.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// What executes the nodes.
    pub provider: Provider,
    /// What the provider is given, by its own names; empty for the CPU.
    pub provider_options: BTreeMap<String, String>,
    /// The GPU, by the driver's number.
    pub device: u32,
    /// Every node runs on `provider`, or the session is not opened. Otherwise TensorRT leaves to CUDA, and CUDA to the
    /// CPU, what they lack.
    pub strict: bool,
    /// Threads within one operator; `None`: one for each physical core.
    pub threads: Option<usize>,
    /// How far the graph is rewritten.
    pub optimisation: OptimisationLevel,
    /// Where to write the rewritten graph, for offline optimisation.
    pub optimised_model_path: Option<PathBuf>,
    /// How the name of ONNX Runtime's profile begins, if one is to be written, which it is when the session is closed.
    pub profile: Option<PathBuf>,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            provider: Provider::Cpu,
            provider_options: BTreeMap::new(),
            device: 0,
            strict: false,
            threads: None,
            optimisation: OptimisationLevel::All,
            optimised_model_path: None,
            profile: None,
        }
    }
}
