//! The graph of a precision for a target.

use super::islands::{self, touching};
use super::range::{RangeMethod, range};
use super::statistics::Histograms;
use crate::Result;
use std::collections::BTreeSet;
use tileforge_contract::Precision;
use tileforge_contract::Provider;
use tileforge_graph::rewrite::{self, ChannelScales, Scheme, fold_weight_casts};
use tileforge_graph::{DataType, Model, Node};

/// Converts the graph of any tile: a precision, a target, and the results of calibration.
pub(super) struct Recipe {
    pub(super) precision: Precision,
    pub(super) provider: Provider,
    pub(super) range: RangeMethod,
    pub(super) statistics: Histograms,
    /// Values that FP16 cannot hold.
    pub(super) outside: BTreeSet<String>,
}

impl Recipe {
    /// The model in this precision.
    ///
    /// `names` are the layers in 8 bits, if the precision has such layers. Otherwise they are the nodes in FP32, in
    /// addition to those whose values FP16 cannot hold.
    pub(super) fn apply(&self, model: &Model, names: &BTreeSet<String>) -> Result<Model> {
        match (self.scheme(), self.precision, self.provider) {
            (Some(scheme), ..) => self.in_8_bits(model, scheme, names),
            // OpenVINO rounds to BF16 by itself on processors that compute in BF16: `openvino_options`.
            (None, Precision::Bf16, Provider::OpenVino) => in_fp32(model, self.provider),
            (None, Precision::Fp16, _) => half(model, DataType::F16, &(names | &touching(model, &self.outside))),
            (None, Precision::Bf16, _) => half(model, DataType::Bf16, names),
            (None, Precision::Fp16Weights, _) => {
                let (model, kept) = (fold_weight_casts(model)?, names | &touching(model, &self.outside));
                let layers: BTreeSet<String> = rewrite::layers(&model).into_iter().collect();
                let rounded = rewrite::weights_in_half(&model, DataType::F16, &(&layers - &kept))?;
                // Weights that a provider's form computes from rounded weights need more bits, so they are not rounded
                // again.
                let faster = fold_weight_casts(&in_fp32(&rounded, self.provider)?)?;
                Ok(rewrite::weights_in_half(&faster, DataType::F16, &BTreeSet::new())?)
            }
            (None, Precision::Int8Weights, _) => Ok(rewrite::quantise_weights(&in_fp32(model, self.provider)?, names)?),
            (None, ..) => in_fp32(model, self.provider),
        }
    }

    fn in_8_bits(&self, model: &Model, scheme: Scheme, layers: &BTreeSet<String>) -> Result<Model> {
        let islands = touching(model, &self.outside);
        let range = |value: &str| {
            // The contract states the range of an input, so none of it may be cut off. E4M3 has the same relative
            // precision in its whole range, so cutting would gain nothing.
            let is_input = model.inputs.iter().any(|port| port.name == value);
            let method = if is_input || scheme == Scheme::Float8 { RangeMethod::MinMax } else { self.range };
            Some(range(self.statistics.get(value)?, method, scheme.is_symmetric()))
        };
        let scales = match self.provider {
            Provider::TensorRtRtx => ChannelScales::BehindLayers,
            _ => ChannelScales::InWeights,
        };
        let folded = fold_weight_casts(model)?;
        let quantised = rewrite::quantise_layers(&folded, scheme, scales, layers, &islands, &range)?;
        match self.provider {
            Provider::Cpu => for_cpu(&quantised),
            Provider::OpenVino => Ok(quantised),
            // All layers that are not in 8 bits are in FP16, which such a GPU computes fast. If FP16 cannot hold a
            // layer's input, the QuantizeLinear before the layer stays in FP32.
            _ => half(&quantised, DataType::F16, &(&islands | &touching(&quantised, &self.outside))),
        }
    }

    /// The kind of 8-bit numbers, if the precision uses them.
    pub(super) fn scheme(&self) -> Option<Scheme> {
        match (self.precision, self.provider) {
            (Precision::Int8, Provider::OpenVino | Provider::Cpu) => Some(Scheme::Unsigned),
            (Precision::Int8, _) => Some(Scheme::Signed),
            (Precision::Fp8, _) => Some(Scheme::Float8),
            (
                Precision::Fp32 | Precision::Fp16 | Precision::Bf16 | Precision::Fp16Weights | Precision::Int8Weights,
                _,
            ) => None,
        }
    }

    pub(super) fn is_8_bits(&self) -> bool {
        self.scheme().is_some()
    }

    /// The layers that can be in the low precision; in 8 bits, only layers in `chosen`. `folded` has no Casts of
    /// weights.
    pub(super) fn layers(&self, folded: &Model, chosen: &BTreeSet<String>) -> Vec<String> {
        rewrite::layers(folded).into_iter().filter(|layer| !self.is_8_bits() || chosen.contains(layer)).collect()
    }

    /// The model with only these layers in the low precision.
    pub(super) fn only(&self, model: &Model, layers: &[String]) -> Result<Model> {
        let layers: BTreeSet<String> = layers.iter().cloned().collect();
        if self.is_8_bits() {
            return self.apply(model, &layers);
        }
        let others = model.nodes.iter().map(|node| &node.name).filter(|name| !layers.contains(*name));
        self.apply(model, &others.cloned().collect())
    }
}

/// The model in `half` (f16 or bf16), with the named nodes in FP32.
pub(super) fn half(model: &Model, half: DataType, islands: &BTreeSet<String>) -> Result<Model> {
    let folded = fold_weight_casts(model)?;
    Ok(rewrite::to_half(&folded, half, &islands::in_fp32(&folded, islands))?)
}

/// The model in FP32, with the fastest forms for a provider.
pub(super) fn in_fp32(model: &Model, provider: Provider) -> Result<Model> {
    match provider {
        Provider::Cpu => for_cpu(model),
        Provider::OpenVino => Ok(fold_weight_casts(model)?),
        _ => Ok(model.clone()),
    }
}

/// The least number of channels for which an enlarged image's convolution is faster as one convolution for each phase:
/// measured 1.11 of its time at 64, 0.92 at 128, and about 0.8 from 256 on (docs/benchmarks.md).
const PHASE_CHANNELS: usize = 128;

/// The model with its FP32 nodes in the forms for which ONNX Runtime's CPU provider has faster kernels. Other
/// providers have no such forms.
pub(super) fn for_cpu(model: &Model) -> Result<Model> {
    let folded = fold_weight_casts(model)?;
    let faster = rewrite::repeated_channels_as_convolutions(&rewrite::prelu_as_products(&folded)?)?;
    let faster = rewrite::upsampled_convolutions_as_phases(&faster, PHASE_CHANNELS)?;
    // The kernel uses one thread for each head.
    let single_head: Vec<bool> = faster.nodes.iter().map(is_attention_of_one_head).collect();
    let faster = rewrite::attention_as_products(&faster, &single_head)?;
    // Without a gain, half-precision weights keep their stored form.
    Ok(if faster.nodes == folded.nodes { model.clone() } else { faster })
}

/// Whether a node is plain attention of one head, as in autoencoders.
fn is_attention_of_one_head(node: &Node) -> bool {
    let known = ["q_num_heads", "kv_num_heads", "is_causal", "scale"];
    node.is("Attention")
        && node.inputs.len() == 3
        && node.outputs.len() == 1
        && node.int("is_causal").unwrap_or(0) == 0
        && ["q_num_heads", "kv_num_heads"].iter().all(|heads| node.int(heads) == Some(1))
        && node.attributes.keys().all(|name| known.contains(&name.as_str()))
}

/// The layers that are quantised by default.
///
/// The last layer is left out: in 8 bits its pixels would have only 256 levels, which shows as bands in smooth skies.
/// With unsigned numbers, a last layer whose output is a residual is quantised, because the residual is added to the
/// pixels in FP32.
///
/// With signed numbers, the first layer is left out as well: 8-bit pixels have no sign, so half of the numbers would be
/// unused. Unsigned numbers of the whole range are the pixels themselves.
///
/// Layers that the provider's library computes in more bits anyway would only lose quality.
pub(super) fn default_layers(model: &Model, scheme: Scheme, provider: Provider) -> Result<Vec<String>> {
    let model = fold_weight_casts(model)?;
    let layers = rewrite::layers(&model);
    let is_residual = |layer: &String| {
        let makes = |node: &&Node| node.name == *layer;
        let outputs = model.nodes.iter().find(makes).map_or(&[][..], |node| node.outputs.as_slice());
        let mut readers =
            model.nodes.iter().filter(|node| outputs.iter().any(|output| node.inputs.contains(output))).peekable();
        readers.peek().is_some() && readers.all(|node| node.operator == "Add")
    };
    let mut chosen = match (layers.as_slice(), scheme) {
        ([.., last], Scheme::Unsigned) if is_residual(last) => layers,
        ([but_last @ .., _], Scheme::Unsigned) | ([_, but_last @ .., _], _) => but_last.to_vec(),
        _ => Vec::new(),
    };
    if provider == Provider::TensorRtRtx {
        let widened = model.nodes.iter().filter(|node| is_widened_in_plans(&model, node, scheme));
        let widened: BTreeSet<&str> = widened.map(|node| node.name.as_str()).collect();
        chosen.retain(|layer| !widened.contains(layer.as_str()));
    }
    Ok(chosen)
}

/// Whether TensorRT for RTX 1.7.1 computes a layer in more bits although its factors have 8: convolutions of a single
/// pixel after global pooling, and in FP8 those with filters larger than 3×3. A test reads this from the plans of
/// every architecture.
fn is_widened_in_plans(model: &Model, node: &Node, scheme: Scheme) -> bool {
    let sides = |name: Option<&String>| {
        let dims = name.and_then(|name| model.type_of(name)).and_then(|ty| ty.fixed_dims()).unwrap_or_default();
        dims.get(2..).map(<[usize]>::to_vec).unwrap_or_default()
    };
    let (pixels, filter) = (sides(node.outputs.first()), sides(node.inputs.get(1)));
    let is_of_one_pixel = !pixels.is_empty() && pixels.iter().all(|side| *side == 1);
    node.is("Conv") && (is_of_one_pixel || scheme == Scheme::Float8 && filter.iter().any(|side| *side > 3))
}
