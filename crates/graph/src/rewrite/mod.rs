//! Changes graphs: rules inspect one node after another, and one driver applies their patches.
//!
//! | module | holds |
//! |---|---|
//! | `driver` | [`Rule`] and [`apply`]: unique names, topological order, removal of dead parts, inferred types |
//! | `patch` | [`Patch`]: the nodes that replace one node, and the weights that they need |
//! | `reading` | the readers of each value |
//! | `layers` | the nodes that hold most of the arithmetic |
//! | `weight_casts` | a Cast of a weight becomes part of the weight |
//! | `attention` | attention written out as products, mask and softmax |
//! | `opset` | models of older operator sets in the operators of a newer one |
//! | `lifted` | half-precision models in FP32 |
//! | `half` | FP16 and BF16 by typed tensors, with a Cast wherever two types meet |
//! | `stored_half` | weights that are stored in half precision, with a Cast behind each |
//! | `in_fp32` | nodes of such a graph in FP32, between Casts |
//! | `rounding` | FP32 graphs that round as a graph in FP16 or BF16 does |
//! | `quantise` | INT8 and FP8 by QuantizeLinear and DequantizeLinear |
//! | `prelu` | PReLU in forms that ONNX Runtime's CPU provider and TensorRT for RTX compute with a convolution |
//! | `concatenated` | convolutions of concatenated features as sums, for TensorRT for RTX |
//! | `repeated_channels`, `upsampled` | forms for which ONNX Runtime's CPU provider has faster kernels |
//! | `segments` | a graph cut into pieces that follow each other |
//!
//! A rule only knows the graph and the numbers that it gets. The caller decides which precision a target needs, and
//! calibrates.

mod attention;
mod concatenated;
mod driver;
mod half;
mod in_fp32;
mod layers;
mod lifted;
mod opset;
mod patch;
mod prelu;
mod quantise;
mod reading;
mod repeated_channels;
mod rounding;
mod segments;
mod stored_half;
#[cfg(test)]
mod tests;
mod upsampled;
mod weight_casts;

pub use attention::attention_as_products;
pub use concatenated::concatenated_convolutions_as_sums;
pub use driver::{Rule, apply};
pub use half::to_half;
pub use in_fp32::in_fp32;
pub use layers::{is_layer, layers, only_moves};
pub use lifted::{is_half, lifted_to_fp32};
pub use opset::to_current_opset;
pub use patch::{Names, Patch};
pub use prelu::{prelu_as_extremes, prelu_as_products};
pub use quantise::{ChannelScales, Quantisation, Scheme, quantise_layers, quantise_weights};
pub(crate) use reading::reads_within_attribute;
pub use reading::{Readers, reads, reads_within, remove_unread};
pub use repeated_channels::repeated_channels_as_convolutions;
pub use rounding::rounding_to;
pub use segments::{Segment, kept_bytes, segments};
pub use stored_half::weights_in_half;
pub use upsampled::upsampled_convolutions_as_phases;
pub use weight_casts::fold_weight_casts;

/// Checks that `selected` has one entry for each node of a model.
fn one_for_each_node<T>(model: &crate::Model, selected: &[T]) -> crate::Result<()> {
    let (expected, found) = (model.nodes.len(), selected.len());
    if expected == found {
        return Ok(());
    }
    Err(crate::Error::Graph(format!("expected an entry for each of {expected} nodes, found {found}")))
}
