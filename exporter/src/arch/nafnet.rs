//! NAFNet: a U-Net without activations, whose channels are multiplied by each other and by functions of their means.
//!
//! Paper: <https://arxiv.org/abs/2204.04676>. Upstream: <https://github.com/megvii-research/NAFNet>,
//! `basicsr/models/archs/NAFNet_arch.py`. Reference: spandrel 0.4.2, `architectures/NAFNet`.

use super::restoration::{SummedUnet, levels};
use super::{Architecture, Keys, Mismatch, picture};
use crate::nn::{Conv2d, Scope, channels, conv2d, layer_norm_of_channels, split_channels};
use crate::{Contract, Result, Shapes};
use serde::Serialize;
use tileforge_contract::{Precision, Upscale};
use tileforge_graph::Value;

/// Hyperparameters. All of them follow from names and shapes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct NafNet {
    /// Channels of the image, in and out.
    channels: usize,
    /// Width of the finest level. Each coarser one is twice as wide.
    filters: usize,
    /// Blocks of each level on the way down, from the finest.
    encoders: Vec<usize>,
    /// Blocks of the coarsest level.
    middle: usize,
    /// Blocks of each level on the way up, from the coarsest.
    decoders: Vec<usize>,
}

/// Upstream's, for its own LayerNorm.
const EPSILON: f32 = 1e-6;
/// A block is this many times wider inside. Upstream has no other number.
const EXPANSION: usize = 2;

impl Architecture for NafNet {
    const NAME: &'static str = "NAFNet";

    const SIGNATURES: &'static [&'static [&'static str]] = &[&[
        "intro.weight",
        "ending.weight",
        "ups.0.0.weight",
        "downs.0.weight",
        "middle_blks.0.beta",
        "middle_blks.0.gamma",
        "middle_blks.0.conv1.weight",
        "middle_blks.0.conv2.weight",
        "middle_blks.0.conv3.weight",
        "middle_blks.0.sca.1.weight",
        "middle_blks.0.conv4.weight",
        "middle_blks.0.conv5.weight",
        "middle_blks.0.norm1.weight",
        "middle_blks.0.norm2.weight",
        "encoders.0.0.beta",
        "encoders.0.0.gamma",
        "decoders.0.0.beta",
        "decoders.0.0.gamma",
    ]];

    fn detect(keys: &Keys<'_>) -> Result<Self, Mismatch> {
        let [filters, channels, ..] = keys.dims::<4>("intro.weight")?;
        let [encoders, decoders] = levels(keys)?;
        Ok(NafNet { channels, filters, encoders, middle: keys.count("middle_blks."), decoders })
    }

    fn contract(&self) -> Contract {
        Upscale {
            size_multiple: self.unet().multiple(),
            // Products of products of features overflow half precision.
            safe_precisions: vec![Precision::Fp32, Precision::Bf16],
            ..picture(1, self.channels)
        }
        .contract()
    }

    fn build(&self, w: &Scope<'_>, shapes: &Shapes) -> Result<()> {
        self.unet().build(w, shapes, self.channels, block)
    }

    fn presets() -> Vec<(&'static str, Self)> {
        let tiny = NafNet { channels: 3, filters: 4, encoders: vec![1, 2], middle: 1, decoders: vec![1, 1] };
        let published =
            NafNet { filters: 32, encoders: vec![2, 2, 4, 8], middle: 12, decoders: vec![2; 4], ..tiny.clone() };
        vec![
            ("tiny", tiny.clone()),
            ("tiny-grey", NafNet { channels: 1, encoders: vec![1], decoders: vec![2], middle: 2, ..tiny }),
            ("nafnet-sidd-width32", published.clone()),
            ("nafnet-sidd-width64", NafNet { filters: 64, ..published.clone() }),
            (
                "nafnet-gopro-width64",
                NafNet { filters: 64, encoders: vec![1, 1, 1, 28], middle: 1, decoders: vec![1; 4], ..published },
            ),
        ]
    }
}

impl NafNet {
    fn unet(&self) -> SummedUnet<'_> {
        let Self { filters, middle, .. } = *self;
        SummedUnet { filters, encoders: &self.encoders, middle, decoders: &self.decoders }
    }
}

/// y = x + gated convolutions with weights of their channels, then y + gated layers.
fn block(w: &Scope<'_>, x: &Value) -> Value {
    let filters = channels(x);
    let wide = EXPANSION * filters;
    let norm = |name: &str, x: &Value| layer_norm_of_channels(&w.at(name), x, EPSILON);
    let y = conv2d(&w.at("conv1"), &norm("norm1", x), wide, 1);
    let y = gate(&Conv2d::depthwise(wide, [3, 3]).apply(&w.at("conv2"), &y));
    let y = &y * conv2d(&w.at("sca.1"), &y.global_average_pool(), wide / 2, 1);
    let y = scaled(w, ["conv3", "beta"], &y, filters) + x;
    let z = gate(&conv2d(&w.at("conv4"), &norm("norm2", &y), wide, 1));
    scaled(w, ["conv5", "gamma"], &z, filters) + y
}

/// One half of the channels times the other half.
fn gate(x: &Value) -> Value {
    let [first, second] = split_channels(x, [channels(x) / 2; 2]);
    first * second
}

/// A layer of each pixel, times a number for each channel, which folds into the layer's filters.
fn scaled(w: &Scope<'_>, [layer, factors]: [&str; 2], x: &Value, filters: usize) -> Value {
    Conv2d::new(filters, 1).apply_scaled(&w.at(layer), x, || w.stored(factors, &[1, filters, 1, 1]))
}
