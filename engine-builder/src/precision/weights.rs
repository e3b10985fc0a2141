//! Weights in 8 bits: codes with one scale for each output channel, which a DequantizeLinear reads.

use super::rewrite::{Rewrite, is_layer, with_plain_weights};
use crate::{Error, Result};
use ::half::f16;
use std::collections::BTreeSet;
use tileforge_graph::{Attribute, DataType, Model, Node, Weight};

/// The largest code of signed 8 bits; -128 is not used, so that codes are symmetric.
const LARGEST: f32 = 127.0;

/// The model with the weights of its layers in 8 bits, and everything else as it is: activations stay FP32. The layers
/// of `islands` keep their weights.
///
/// # Errors
/// A weight is no number, or the result does not fit the operators' rules.
pub(super) fn weights_only(model: &Model, islands: &BTreeSet<String>) -> Result<Model> {
    // Only to find the weights behind the Casts of half precision: what is no layer's stays stored as it is.
    let plain = with_plain_weights(model)?;
    let (mut rewrite, nodes) = Rewrite::of(model);
    for mut node in nodes {
        if is_layer(&plain, &node)
            && !islands.contains(&node.name)
            && let Some(weight) = plain.weights.get(&node.inputs[1])
        {
            let axis = channel_axis(&node);
            let scales = channel_scales(&node.inputs[1], weight, axis, LARGEST, DataType::F32)?;
            node.inputs[1] = dequantised_weight(&mut rewrite, &node.inputs[1], weight, axis, &scales, DataType::I8)?;
        }
        rewrite.model.nodes.push(node);
    }
    rewrite.finish()
}

/// The axis of a layer's weight that has its output channels.
pub(super) fn channel_axis(layer: &Node) -> usize {
    match (layer.operator.as_str(), layer.attributes.get("transB")) {
        ("Conv", _) | ("Gemm", Some(Attribute::Int(1))) => 0,
        _ => 1,
    }
}

/// A scale as it is stored in `data_type`, f32 or f16, so that codes are made by the very number that they are read
/// with. It is at least the smallest normal number: what is 0 throughout, or nearly, still has a scale, and hardware
/// may take smaller numbers for 0.
pub(super) fn stored_scale(scale: f32, data_type: DataType) -> f32 {
    if data_type != DataType::F16 {
        return scale.max(f32::MIN_POSITIVE);
    }
    let rounded = f16::from_f32(scale).max(f16::MIN_POSITIVE).to_f32();
    // What is beyond FP16 stays FP32, and so does its scale.
    if rounded.is_finite() { rounded } else { scale }
}

/// The scale of each channel's codes, whose largest is `most`, as `data_type` stores it.
pub(super) fn channel_scales(
    name: &str,
    weight: &Weight,
    axis: usize,
    most: f32,
    data_type: DataType,
) -> Result<Vec<f32>> {
    let maxima = weight.channel_maxima(axis)?;
    if maxima.iter().any(|maximum| !maximum.is_finite()) {
        let problem = format!(
            "the weight `{name}` has values that are infinite or no numbers: expected a checkpoint without them"
        );
        return Err(Error::Graph(tileforge_graph::Error::Graph(problem)));
    }
    Ok(maxima.iter().map(|maximum| stored_scale(maximum / most, data_type)).collect())
}

/// The name of the weight after it went through codes of type `to`.
pub(super) fn dequantised_weight(
    rewrite: &mut Rewrite,
    name: &str,
    weight: &Weight,
    axis: usize,
    scales: &[f32],
    to: DataType,
) -> Result<String> {
    let codes = rewrite.weight(&format!("{name}/{to}"), weight.quantised(axis, scales, to)?);
    let bytes: Vec<u8> = scales.iter().flat_map(|scale| scale.to_le_bytes()).collect();
    let scales =
        rewrite.weight(&format!("{name}/scales"), Weight::from_bytes(DataType::F32, vec![scales.len()], bytes)?);
    let zero_points = Weight::from_bytes(to, vec![weight.dims()[axis]], vec![0; weight.dims()[axis] * to.size()])?;
    let zero_points = rewrite.weight(&format!("{name}/zero_points"), zero_points);
    let attributes = [("axis", Attribute::from(axis as i64))];
    Ok(rewrite.node(
        &format!("{name}/DequantizeLinear"),
        "DequantizeLinear",
        &[&codes, &scales, &zero_points],
        &attributes,
    ))
}
