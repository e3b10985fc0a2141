//! Graphs for TensorRT for RTX: the forms that its builder takes, and the plans for ONNX Runtime's provider.

mod attention;
mod builder;
mod context_model;
mod plans;
mod process;
mod scales;
mod system;
mod transposed_convolution;

pub use builder::{PlanBuilder, PlanProgram, PlanReport};
pub use context_model::{PROVIDER, PlanFacts, context_model};
pub(crate) use plans::{BuiltPlan, PlanJob, add_plans, build_plan, figures, microseconds};
pub use process::serve_plan;

use crate::Result;
use tileforge_graph::Model;
use tileforge_graph::rewrite::{concatenated_convolutions_as_sums, prelu_as_extremes};

/// The number of nodes that were rewritten.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Prepared {
    /// Attentions that the builder has no kernel for, as products and softmax.
    pub attentions: usize,
    /// Transposed convolutions in BF16, rewritten in FP32.
    pub transposed_convolutions: usize,
    /// PReLUs that would each be a pass over memory, rewritten as operators that are fused with the convolution before
    /// them.
    pub prelus: usize,
    /// Convolutions of concatenated features, which would be copied together, rewritten as sums of convolutions.
    pub sums: usize,
    /// Scales of one element, which would keep activations out of 8 bits, rewritten as scalars.
    pub scales: usize,
}

/// Rewrites what the builder refuses or has slow kernels for. The result computes the same, except for the rounding of
/// sums, and no precision becomes lower. Call this when the graph has its precision, because that decides what is
/// refused. Use it for plans only: CPUs have faster kernels for the replaced operators.
///
/// # Errors
/// [`crate::Error::Graph`] for a refused attention that cannot be written out; the model is then unchanged.
pub fn prepare(model: &mut Model) -> Result<Prepared> {
    let attentions = attention::written_out(model)?;
    let transposed_convolutions = transposed_convolution::in_fp32(model)?;
    let prelus = prelu_as_extremes(model)?;
    let sums = concatenated_convolutions_as_sums(model)?;
    let scales = scales::as_scalars(model)?;
    Ok(Prepared { attentions, transposed_convolutions, prelus, sums, scales })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::ArrayD;
    use tileforge_graph::{WeightStorage, save};
    use tileforge_session::{Cancel, Session, SessionOptions, Tensor};

    /// The graph of a preset for a picture of 64×48 pixels.
    fn graph(architecture: &str, preset: &str) -> Model {
        crate::tests::preset(architecture, preset)
            .specialised(&[("image".to_owned(), vec![1, 3, 48, 64])].into())
            .unwrap()
    }

    fn run(model: &Model) -> ArrayD<f32> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.onnx");
        save(model, &path, WeightStorage::Inline).unwrap();
        let mut session = Session::open(&crate::tests::environment(), &path, &SessionOptions::default()).unwrap();
        let value = |index: usize| ((index * 7919) % 1009) as f32 / 1009.0;
        let image = ArrayD::from_shape_vec(vec![1, 3, 48, 64], (0..3 * 48 * 64).map(value).collect()).unwrap();
        let image: Tensor = image.into();
        session.run(&[("image", &image)], &Cancel::new()).unwrap().remove(0).1.into_f32().unwrap()
    }

    /// The largest difference between a graph's output and the output of its form for plans, over the output's range;
    /// and what was rewritten.
    fn difference(model: &Model) -> (f32, Prepared) {
        let mut other = model.clone();
        let prepared = prepare(&mut other).unwrap();
        let (expected, found) = (run(model), run(&other));
        let (low, high) =
            expected.iter().fold((f32::MAX, f32::MIN), |(low, high), value| (value.min(low), value.max(high)));
        assert!(high - low > 0.01);
        ((expected - found).mapv(f32::abs).into_iter().fold(0.0, f32::max) / (high - low), prepared)
    }

    #[test]
    fn what_a_plan_computes_is_what_the_graph_computes() {
        let (worst, prepared) = difference(&graph("SRVGGNetCompact", "tiny"));
        assert!(prepared.prelus > 0 && worst == 0.0, "{worst} {prepared:?}");
        let (worst, prepared) = difference(&graph("RRDBNet", "tiny"));
        assert!(prepared.sums > 0 && worst < 1e-6, "{worst} {prepared:?}");
    }
}
