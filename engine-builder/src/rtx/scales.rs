//! Scales of 8-bit activations as TensorRT for RTX reads them: a scale of shape [1] makes release 1.7.1 round the
//! values, widen them again, and compute the layer in 16 bits. With a scalar it computes in 8. Other programs write
//! either.

use crate::Result;
use std::collections::BTreeSet;
use tileforge_graph::{Model, Node};

/// Makes scalars of the scales and zero points of activations that have one element, and says how many those were. They
/// mean the same (ONNX, QuantizeLinear: quantisation of a whole tensor).
pub(super) fn as_scalars(model: &mut Model) -> Result<usize> {
    let is_linear = |node: &&Node| node.is("QuantizeLinear") || node.is("DequantizeLinear");
    // Filters are quantised by their own nodes, whose scales have a value for each output channel.
    let quantised = model
        .nodes
        .iter()
        .filter(is_linear)
        .filter(|node| node.inputs.first().is_some_and(|values| !model.weights.contains_key(values)));
    let scales: BTreeSet<&String> = quantised.flat_map(|node| node.inputs.iter().skip(1)).collect();
    let of_one = |name: &&&String| model.weights.get(**name).is_some_and(|weight| weight.dims() == [1]);
    let of_one: Vec<String> = scales.iter().filter(of_one).map(|name| (*name).clone()).collect();
    for name in &of_one {
        if let Some(weight) = model.weights.get_mut(name) {
            *weight = weight.reshaped(Vec::new())?;
        }
    }
    Ok(of_one.len())
}
