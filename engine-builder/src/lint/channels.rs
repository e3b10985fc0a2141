//! Layers whose numbers of channels leave tensor cores partly idle.

use super::report::{Findings, Severity};
use tileforge_graph::rewrite::is_layer;
use tileforge_graph::{DataType, Model, Node};

/// Tensor cores multiply in half precision with multiples of 8 channels; other numbers are padded
/// (<https://docs.nvidia.com/deeplearning/performance/dl-performance-convolutional/index.html>, tensor core
/// requirements).
const MULTIPLE: usize = 8;

/// Adds hints about layers in half precision with other numbers of channels. In FP32 there is nothing to gain.
pub(super) fn check(model: &Model, node: &Node, findings: &mut Findings) {
    if !is_layer(model, node) {
        return;
    }
    let Some(weight) = node.inputs.get(1).and_then(|name| model.weights.get(name)) else { return };
    if !matches!(weight.data_type(), DataType::F16 | DataType::Bf16) {
        return;
    }
    let (from, to) = match (node.operator.as_str(), weight.dims()) {
        // [out, in / groups, …]: groups of one channel do not use tensor cores.
        ("Conv", [to, from, ..]) if *from > 1 => (*from, *to),
        ("MatMul" | "Gemm", [from, to]) => (*from, *to),
        _ => return,
    };
    if from % MULTIPLE != 0 || to % MULTIPLE != 0 {
        let message = format!("{from} channels to {to}: tensor cores fill them up to multiples of {MULTIPLE}");
        findings.about(Severity::Hint, Some(node), message);
    }
}
