//! The options of a build, and its progress reports.

use crate::Severity;
use serde::{Deserialize, Serialize};

/// How a plan is built. Precision is not an option: the graph states it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BuildOptions {
    /// The most memory on the GPU that one layer may use for intermediate results, in bytes; `None`: all that the GPU
    /// has.
    pub workspace: Option<u64>,
    /// The builder's search effort, 0 to 5; `None`: the library's default.
    pub optimisation_level: Option<u8>,
    /// Whether products of FP32 tensors may round their factors to TF32, with 10 bits of mantissa. Off by default, so
    /// that FP32 in the graph means FP32; the library's own default is on.
    pub tf32: bool,
    /// Whether weights can be replaced in the plan later.
    pub refit: Refit,
    /// Whether the plan leaves out the weights that can be replaced. Needs [`BuildOptions::refit`].
    pub without_weights: bool,
    /// Sizes of inputs that have dimensions without a fixed size. Every such input needs one.
    pub ranges: Vec<InputRange>,
    /// The least severe messages of the builder that are kept. With [`Severity::Verbose`], they name every layer and
    /// what was fused: tens of thousands of lines for a large graph.
    pub messages: Severity,
}

impl Default for BuildOptions {
    fn default() -> Self {
        BuildOptions {
            workspace: None,
            optimisation_level: None,
            tf32: false,
            refit: Refit::Never,
            without_weights: false,
            ranges: Vec::new(),
            messages: Severity::Warning,
        }
    }
}

/// Whether weights can be replaced in a plan without building it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refit {
    /// No weights can be replaced. The plan is the fastest that the builder can make.
    Never,
    /// Only by weights of the same values. The plan can be stored without its weights and is equally fast.
    Identical,
    /// By any weights, such as weights with a merged LoRA. The builder may not fold or fuse anything that depends on
    /// values.
    Any,
}

/// The sizes that an input may have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputRange {
    /// The input's name.
    pub name: String,
    /// The smallest size of each dimension.
    pub minimum: Vec<usize>,
    /// The sizes that the plan is made fastest for.
    pub optimum: Vec<usize>,
    /// The largest size of each dimension.
    pub maximum: Vec<usize>,
}

/// The progress of a build. Phases are nested and run in parallel: each has a name and counts its own steps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The phase's name, in the builder's words.
    pub phase: String,
    /// Steps of the phase that are done.
    pub step: u32,
    /// Total number of steps of the phase.
    pub steps: u32,
}
