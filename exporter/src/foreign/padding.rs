//! Explicit paddings in the place of `auto_pad`, where they do not depend on the picture's size: stride 1.

use tileforge_graph::{Attribute, Model, Node};

/// Writes out the paddings of convolutions and pools of stride 1.
pub(super) fn make_explicit(model: &mut Model) {
    let weights = &model.weights;
    let kernel_of = |node: &Node| -> Option<Vec<i64>> {
        if let Some(kernel) = node.ints("kernel_shape") {
            return Some(kernel.to_vec());
        }
        let dims = weights.get(node.inputs.get(1)?)?.dims().get(2..)?;
        dims.iter().map(|side| i64::try_from(*side).ok()).collect()
    };
    for node in &mut model.nodes {
        if !matches!(node.operator.as_str(), "Conv" | "MaxPool" | "AveragePool") || !node.domain.is_empty() {
            continue;
        }
        let Some(kernel) = kernel_of(node) else { continue };
        if let Some(pads) = pads(node, &kernel) {
            node.attributes.remove("auto_pad");
            node.attributes.insert("pads".into(), Attribute::Ints(pads));
        }
    }
}

/// The paddings before and behind, for all sides; `None` if they are explicit already, or depend on the size.
fn pads(node: &Node, kernel: &[i64]) -> Option<Vec<i64>> {
    let is_upper = match node.text("auto_pad")? {
        "SAME_UPPER" => true,
        "SAME_LOWER" => false,
        "VALID" => return Some(vec![0; kernel.len().checked_mul(2)?]),
        _ => return None,
    };
    if node.ints("strides").is_some_and(|strides| strides.iter().any(|stride| *stride != 1)) {
        return None;
    }
    let ones = vec![1; kernel.len()];
    let dilations = node.ints("dilations").unwrap_or(&ones);
    let total = |(side, dilation): (&i64, &i64)| side.checked_sub(1)?.checked_mul(*dilation);
    let totals = kernel.iter().zip(dilations).map(total).collect::<Option<Vec<_>>>()?;
    let less = totals.iter().map(|total| total / 2);
    let more = totals.iter().map(|total| total - total / 2);
    Some(if is_upper { less.chain(more).collect() } else { more.chain(less).collect() })
}
