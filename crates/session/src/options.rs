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
    /// Fusions, but no layouts for one processor. The result can be stored for other machines.
    Extended,
    /// Folds what depends only on sizes and weights into constants, and removes nodes without an effect. All operators
    /// stay ONNX's own.
    Basic,
    /// Nothing: every operator stays as in the graph. References run this way.
    Disabled,
}

/// How a [`Session`](crate::Session) is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionOptions {
    /// The execution provider.
    pub provider: Provider,
    /// Options by the provider's names; empty for the CPU.
    pub provider_options: BTreeMap<String, String>,
    /// The GPU's number in the driver.
    pub device: u32,
    /// Refuse to open a session unless every node runs on `provider`. Without it, nodes that TensorRT does not support
    /// run on CUDA, and nodes that CUDA does not support run on the CPU.
    pub strict: bool,
    /// Threads within one operator; `None`: one for each physical core that this process may use, or the session's
    /// share of these cores.
    pub threads: Option<usize>,
    /// Sessions of this graph that run at the same time.
    pub streams: usize,
    /// How far the graph is rewritten.
    pub optimisation: OptimisationLevel,
    /// Whether ONNX Runtime dequantises 8-bit weights to floats once, while the session is opened, instead of in every
    /// run. For graphs in which only weights have 8 bits.
    pub dequantises_weights: bool,
    /// Whether our own kernels compute on the processor, where they can. Only where the graph is rewritten in full.
    pub own_kernels: bool,
    /// Where to write the rewritten graph, for offline optimisation. Such a session is slow to run.
    pub optimised_model_path: Option<PathBuf>,
    /// The beginning of the name of ONNX Runtime's profile, which is written when the session is closed; `None`: no
    /// profile.
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
            streams: 1,
            optimisation: OptimisationLevel::All,
            dequantises_weights: false,
            own_kernels: false,
            optimised_model_path: None,
            profile: None,
        }
    }
}
