//! Kinds of nodes that rules treat in the same way.

use crate::{Model, Node, Weight};

/// Names of the layers: convolutions and matrix products with a constant weight, which hold most of a network's
/// arithmetic and weights.
pub fn layers(model: &Model) -> Vec<String> {
    model.nodes.iter().filter(|node| is_layer(model, node)).map(|node| node.name.clone()).collect()
}

/// Whether a node is one of [`layers`].
pub fn is_layer(model: &Model, node: &Node) -> bool {
    layer_weight(model, node).is_some()
}

/// The weight of a node that is one of [`layers`].
pub(super) fn layer_weight<'m>(model: &'m Model, node: &Node) -> Option<&'m Weight> {
    if !node.domain.is_empty() || !matches!(node.operator.as_str(), "Conv" | "Gemm" | "MatMul") {
        return None;
    }
    let weight = node.inputs.get(1).and_then(|name| model.weights.get(name))?;
    let has_shape = node.operator == "Conv" || weight.dims().len() == 2;
    let reads_activations = node.inputs.first().is_some_and(|name| !model.weights.contains_key(name));
    (has_shape && reads_activations).then_some(weight)
}

/// Whether a node only moves or selects elements, so that it works on any type.
pub fn only_moves(node: &Node) -> bool {
    node.domain.is_empty()
        && matches!(
            node.operator.as_str(),
            "Concat"
                | "DepthToSpace"
                | "Expand"
                | "Flatten"
                | "Gather"
                | "GatherND"
                | "Identity"
                | "Pad"
                | "Reshape"
                | "Slice"
                | "SpaceToDepth"
                | "Split"
                | "Squeeze"
                | "Transpose"
                | "Unsqueeze"
        )
}
