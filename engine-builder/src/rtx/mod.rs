//! Graphs for TensorRT for RTX: what its builder takes, and how ONNX Runtime's provider gets what it makes.

mod attention;
mod builder;
mod context_model;
mod plans;
mod process;
mod transposed_convolution;

pub use builder::{PlanBuilder, PlanProgram, PlanReport};
pub use context_model::{PROVIDER, PlanFacts, context_model};
pub(crate) use plans::{PlanJob, add_plans};
pub use process::serve_plan;

use crate::Result;
use tileforge_graph::Model;
use tileforge_graph::rewrite::prelu_as_extremes;

/// How many nodes were written in another form.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Prepared {
    /// Attentions that the builder has no kernel for, as products and softmax.
    pub attentions: usize,
    /// Transposed convolutions in BF16, as ones in FP32.
    pub transposed_convolutions: usize,
    /// PReLUs, which would be a pass over memory each, as what is computed with the convolution before them.
    pub prelus: usize,
}

/// Writes what the builder refuses, or has slow kernels for, in forms that it takes. The result computes the same: in
/// FP32 to the last bit, and no precision becomes lower. It is to be called when the graph has its precision, because
/// that decides what is refused, and for plans alone: CPUs have faster kernels for the operators that go.
///
/// # Errors
/// [`crate::Error::Graph`] for a refused attention of a form that cannot be written out; the model is then as before.
pub fn prepare(model: &mut Model) -> Result<Prepared> {
    let attentions = attention::written_out(model)?;
    let transposed_convolutions = transposed_convolution::in_fp32(model)?;
    let prelus = prelu_as_extremes(model)?;
    Ok(Prepared { attentions, transposed_convolutions, prelus })
}
