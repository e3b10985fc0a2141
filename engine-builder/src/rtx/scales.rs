//! Scales of 8-bit activations in the form that TensorRT for RTX needs: with a scale of shape [1], release 1.7.1
//! rounds the values, widens them again, and computes the layer in 16 bits. With a scalar it computes in 8 bits. Other
//! programs write both forms.

use crate::Result;
use std::collections::BTreeSet;
use tileforge_graph::{Model, Node};

/// Turns the scales and zero points of activations that have one element into scalars, and returns their number. Both
/// forms mean the same (ONNX, QuantizeLinear: quantisation of a whole tensor).
pub(super) fn as_scalars(model: &mut Model) -> Result<usize> {
    let is_linear = |node: &&Node| node.is("QuantizeLinear") || node.is("DequantizeLinear");
    // Filters are quantised by separate nodes, whose scales have a value for each output channel.
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
