//! Which nodes of a 16-bit graph stay in FP32: those whose values FP16 cannot hold, and those whose operators need more
//! bits.

use super::statistics::Histograms;
use crate::Result;
use std::collections::{BTreeSet, HashSet};
use tileforge_graph::rewrite::{Readers, only_moves, reads};
use tileforge_graph::{DataType, Model, Node};

/// The largest finite FP16 number.
const F16_MAXIMUM: f32 = 65504.0;
/// Calibration covers some pictures only. The values of others may be twice as large.
const MARGIN: f32 = 2.0;

/// The names of the values beyond FP16's range: activations on the calibration samples, with a margin of 2, and
/// weights. Integers, such as tokens, never become FP16.
///
/// # Errors
/// A weight cannot be read.
pub(crate) fn outside_f16(model: &Model, statistics: &Histograms) -> Result<BTreeSet<String>> {
    let mut outside = BTreeSet::new();
    for (name, histogram) in statistics {
        let is_float = model.type_of(name).is_some_and(|ty| ty.data_type.is_float());
        if is_float && (histogram.non_finite || histogram.magnitude() * MARGIN > F16_MAXIMUM) {
            outside.insert(name.clone());
        }
    }
    for (name, weight) in
        model.weights.iter().filter(|(_, weight)| matches!(weight.data_type(), DataType::F32 | DataType::Bf16))
    {
        let flat = weight.reshaped(vec![1, weight.elements()])?;
        // `<=` is false for NaN, so NaN counts as outside.
        if !flat.channel_maxima(0)?.iter().all(|maximum| *maximum <= F16_MAXIMUM) {
            outside.insert(name.clone());
        }
    }
    Ok(outside)
}

/// The names of the nodes that read or write one of these values.
pub(crate) fn touching(model: &Model, values: &BTreeSet<String>) -> BTreeSet<String> {
    let touches =
        |node: &&Node| reads(node).chain(node.outputs.iter().map(String::as_str)).any(|name| values.contains(name));
    model.nodes.iter().filter(touches).map(|node| node.name.clone()).collect()
}

/// Whether an operator computes positions or long sums. With 11 bits these are wrong by whole pixels, whatever the
/// values.
fn needs_fp32(node: &Node) -> bool {
    matches!(
        node.operator.as_str(),
        "GridSample" | "CumSum" | "Sin" | "Cos" | "Exp" | "Pow" | "Range" | "ReduceSum" | "ReduceMean" | "ReduceL2"
    )
}

/// For each node of a graph that becomes half precision, whether it computes in FP32: the nodes of `islands`, nodes
/// whose operators need FP32, and nodes around them for which FP32 saves a Cast.
pub(crate) fn in_fp32(model: &Model, islands: &BTreeSet<String>) -> Vec<bool> {
    let nodes = &model.nodes;
    // The values that positions are computed from: from every grid back to the layer that predicts it, and from every
    // sine and cosine back to its angle. At an angle of 1000, FP16 has steps of half a radian.
    let mut positions: HashSet<&str> = HashSet::new();
    let mut in_fp32 = vec![false; nodes.len()];
    for (index, node) in nodes.iter().enumerate().rev() {
        let makes_positions = node.outputs.iter().any(|name| positions.contains(name.as_str()));
        // A Cast states its type itself.
        in_fp32[index] = islands.contains(&node.name) || needs_fp32(node) || makes_positions || node.operator == "Cast";
        let predicts = matches!(node.operator.as_str(), "Conv" | "Gemm" | "MatMul");
        if node.operator == "GridSample" {
            positions.extend(node.inputs.get(1).map(String::as_str));
        } else if matches!(node.operator.as_str(), "Sin" | "Cos") || (makes_positions && !predicts) {
            positions.extend(reads(node));
        } else if makes_positions {
            in_fp32[index] = islands.contains(&node.name);
        }
    }
    // A node that only moves values between FP32 nodes stays FP32, which saves a Cast at both ends. Quantised values
    // that only FP32 nodes read are dequantised to FP32, because FP16 may be unable to hold them.
    let readers = Readers::new(nodes);
    for (index, node) in nodes.iter().enumerate().rev() {
        let mut next = node.outputs.iter().flat_map(|name| readers.all(name)).peekable();
        if (only_moves(node) || node.operator == "DequantizeLinear")
            && next.peek().is_some()
            && next.all(|reader| in_fp32[*reader])
        {
            in_fp32[index] = true;
        }
    }
    in_fp32
}
