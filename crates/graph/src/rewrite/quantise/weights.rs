//! Weights in 8 bits with one scale for each output channel, which a DequantizeLinear reads.

use super::super::layers::layer_weight;
use super::super::{Names, Patch, Rule, apply, fold_weight_casts};
use super::limits::I8_MAXIMUM;
use crate::{Attribute, DataType, Error, Model, Node, Result, Weight};
use half::f16;
use std::collections::BTreeSet;

/// The model with its layers' weights in INT8. Activations stay FP32, and the weights of the layers in `kept` do not
/// change.
///
/// # Errors
/// A weight has values that are infinite or NaN, or the result breaks the operators' rules.
pub fn quantise_weights(model: &Model, kept: &BTreeSet<String>) -> Result<Model> {
    // Folding finds the weights behind Casts of half precision. The weights of other nodes keep their stored form.
    let folded = fold_weight_casts(model)?;
    apply(model, &mut QuantiseWeights { folded: &folded, kept })
}

struct QuantiseWeights<'a> {
    folded: &'a Model,
    kept: &'a BTreeSet<String>,
}

impl Rule for QuantiseWeights<'_> {
    fn patch<'n>(&mut self, _: usize, node: &Node, names: &'n mut Names) -> Result<Option<Patch<'n>>> {
        let weight = layer_weight(self.folded, node).filter(|_| !self.kept.contains(&node.name));
        let Some(weight) = weight else { return Ok(None) };
        let (mut patch, mut node) = (Patch::new(names), node.clone());
        let axis = channel_axis(&node);
        let scales = channel_scales(&node.inputs[1], weight, axis, I8_MAXIMUM as f32, DataType::F32)?;
        node.inputs[1] = dequantised_weight(&mut patch, &node.inputs[1], weight, axis, &scales, DataType::I8)?;
        patch.push(node);
        Ok(Some(patch))
    }
}

/// The output channel axis of a layer's weight.
pub(super) fn channel_axis(layer: &Node) -> usize {
    match (layer.operator.as_str(), layer.attributes.get("transB")) {
        ("Conv", _) | ("Gemm", Some(Attribute::Int(1))) => 0,
        _ => 1,
    }
}

/// A scale as `data_type` (f32 or f16) stores it, so that values are quantised and dequantised by the same number.
///
/// The result is at least the smallest normal number: values near 0 need a scale too, and hardware may read smaller
/// numbers as 0.
pub(super) fn stored_scale(scale: f32, data_type: DataType) -> f32 {
    if data_type != DataType::F16 {
        return scale.max(f32::MIN_POSITIVE);
    }
    let rounded = f16::from_f32(scale).max(f16::MIN_POSITIVE).to_f32();
    // If FP16 cannot hold the values, they stay in FP32, and so does their scale.
    if rounded.is_finite() { rounded } else { scale }
}

/// The scale of each channel, as `data_type` stores it. `most` is the largest quantised value.
pub(super) fn channel_scales(
    name: &str,
    weight: &Weight,
    axis: usize,
    most: f32,
    data_type: DataType,
) -> Result<Vec<f32>> {
    let maxima = weight.channel_maxima(axis)?;
    if maxima.iter().any(|maximum| !maximum.is_finite()) {
        let reason = "found values that are infinite or NaN, expected a checkpoint without them";
        return Err(Error::weight(name, reason));
    }
    Ok(maxima.iter().map(|maximum| stored_scale(maximum / most, data_type)).collect())
}

/// Adds a weight as quantised values of type `to`, and returns the name of the dequantised weight.
pub(super) fn dequantised_weight(
    patch: &mut Patch<'_>,
    name: &str,
    weight: &Weight,
    axis: usize,
    scales: &[f32],
    to: DataType,
) -> Result<String> {
    let dequantiser = Weight::from_f32s(vec![scales.len()], scales)?;
    dequantised(patch, name, weight.quantised(axis, scales, to)?, dequantiser, Some(axis))
}

/// The same with scales that are `factors` of one scale, by which all values are dequantised.
pub(super) fn dequantised_by_one_scale(
    patch: &mut Patch<'_>,
    name: &str,
    weight: &Weight,
    axis: usize,
    (scale, factors): (f32, &[f32]),
    to: DataType,
) -> Result<String> {
    let scales: Vec<f32> = factors.iter().map(|factor| scale * factor).collect();
    dequantised(patch, name, weight.quantised(axis, &scales, to)?, Weight::from_f32s(Vec::new(), &[scale])?, None)
}

/// Adds quantised values and a node that dequantises them: by a scale for each index of `axis`, or by one for all.
fn dequantised(
    patch: &mut Patch<'_>,
    name: &str,
    quantised: Weight,
    scales: Weight,
    axis: Option<usize>,
) -> Result<String> {
    let to = quantised.data_type();
    let zeros = vec![0; scales.elements() * to.size()];
    let zero_points = Weight::from_bytes(to, scales.dims().to_vec(), zeros)?;
    let quantised = patch.weight(&format!("{name}/{to}"), quantised);
    let scales = patch.weight(&format!("{name}/scales"), scales);
    let zero_points = patch.weight(&format!("{name}/zero_points"), zero_points);
    let axis = axis.map(|axis| ("axis", Attribute::from(axis as i64)));
    let base = format!("{name}/DequantizeLinear");
    Ok(patch.node(&base, "DequantizeLinear", &[&quantised, &scales, &zero_points], axis))
}
