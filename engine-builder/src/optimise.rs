//! Optimises a graph with ONNX Runtime once, while the engine is built, instead of at every start.

use crate::Result;
use std::path::Path;
use tileforge_graph::{Model, OWN_DOMAIN, Weight};
use tileforge_session::{Environment, OptimisationLevel, Session, SessionOptions};

/// The optimised graph is kept if it has at most this share of the original number of nodes. The decision counts
/// nodes, not time, so that the same inputs give the same engine. docs/benchmarks.md has the loading times behind the
/// number.
const WORTH_KEEPING: f64 = 0.9;

/// The model with ONNX Runtime's fusions, or `None` if they remove too few nodes compared with `nodes`, the count of
/// the engine's graph without them. `path` holds the model. The result is written beside it, because tensors that ONNX
/// Runtime left unchanged still point into the model's weight file.
///
/// The fusions hold for any processor. Layouts for one processor are chosen when the engine is opened.
pub(crate) fn optimised(environment: &Environment, model: &Model, path: &Path, nodes: usize) -> Result<Option<Model>> {
    let target = path.with_extension("optimised.onnx");
    let options = SessionOptions {
        optimisation: OptimisationLevel::Extended,
        optimised_model_path: Some(target.clone()),
        ..SessionOptions::default()
    };
    Session::open(environment, path, &options)?;
    let mut optimised = tileforge_graph::load(&target)?;
    if optimised.nodes.len() as f64 > WORTH_KEEPING * nodes as f64 {
        return Ok(None);
    }
    for (name, weight) in &mut optimised.weights {
        // Unchanged weights stay shared with the engine's other graphs.
        if let Some(original) = model.weights.get(name)
            && same(original, weight)?
        {
            *weight = original.clone();
        }
    }
    // ONNX Runtime names every domain that this process has used. Engines do not depend on what was built before.
    optimised.opsets.retain(|opset| opset.domain != OWN_DOMAIN);
    optimised.metadata.clone_from(&model.metadata);
    optimised.producer.clone_from(&model.producer);
    Ok(Some(optimised))
}

fn same(a: &Weight, b: &Weight) -> Result<bool> {
    Ok(a.data_type() == b.data_type() && a.dims() == b.dims() && a.to_bytes()? == b.to_bytes()?)
}
