//! KBNet-S: a U-Net in which each pixel has its own mixture of learned kernels.
//!
//! Paper: <https://arxiv.org/abs/2303.02881>. Upstream: <https://github.com/zhangyi-3/KBNet>,
//! `basicsr/models/archs/kbnet_s_arch.py`. Reference: spandrel 0.4.2, `architectures/KBNet`.

use super::restoration::{SummedUnet, levels};
use super::{Architecture, Keys, Mismatch, odd, picture};
use crate::nn::{Conv2d, Scope, channels, conv2d, kernel_basis_attention, layer_norm_of_channels, split_channels};
use crate::{Contract, Result, Shapes};
use serde::Serialize;
use tileforge_contract::{Precision, Upscale};
use tileforge_graph::Value;

/// Hyperparameters. All of them follow from names and shapes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct KbNetS {
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
    /// Width of the layers at the end of a block on the finest level.
    hidden: usize,
    /// Kernels that a pixel mixes.
    kernels: usize,
    /// Side of the plain convolution beside them.
    plain: usize,
    /// Channels that a filter of the plain convolution reads.
    plain_group: usize,
}

/// Upstream's, for its own LayerNorm.
const EPSILON: f32 = 1e-6;
/// Channels that a kernel of the basis reads. Upstream has no other number.
const GROUP: usize = 4;
/// Largest width inside the layers that mix. Upstream has no other number.
const MOST_INNER: usize = 32;

impl Architecture for KbNetS {
    const NAME: &'static str = "KBNet-S";

    const SIGNATURES: &'static [&'static [&'static str]] = &[&[
        "intro.weight",
        "encoders.0.0.attgamma",
        "encoders.0.0.conv11.1.weight",
        "middle_blks.0.w",
        "middle_blks.0.conv4.weight",
        "decoders.0.0.attgamma",
        "ending.weight",
    ]];

    fn detect(keys: &Keys<'_>) -> Result<Self, Mismatch> {
        let [filters, channels, ..] = keys.dims::<4>("intro.weight")?;
        let [encoders, decoders] = levels(keys)?;
        let [_, plain_group, plain, _] = keys.dims::<4>("encoders.0.0.conv11.1.weight")?;
        let [hidden, width, ..] = keys.dims::<4>("middle_blks.0.conv4.weight")?;
        let coarsest = filters << encoders.len();
        let mixes = (0..=encoders.len()).map(|level| filters << level);
        let mixes = mixes.into_iter().all(|width| width.is_multiple_of(MOST_INNER.min(width)));
        let whole = [GROUP, plain_group].iter().all(|divisor| filters.is_multiple_of(*divisor));
        if width != coarsest || !hidden.is_multiple_of(coarsest / filters) || !mixes || !whole {
            return Err(Mismatch::new(format!(
                "expected {coarsest} channels in the middle, a multiple of {} after them, and widths that divide into \
                 {GROUP}, {plain_group}, and {MOST_INNER} where they are larger; found {width}, {hidden} and {filters}",
                coarsest / filters
            )));
        }
        Ok(KbNetS {
            channels,
            filters,
            middle: keys.count("middle_blks."),
            hidden: hidden >> encoders.len(),
            encoders,
            decoders,
            kernels: keys.dims::<4>("encoders.0.0.attgamma")?[1],
            plain: odd(plain)?,
            plain_group,
        })
    }

    fn contract(&self) -> Contract {
        // Means over the picture weight its channels, so the receptive field is unbounded.
        Upscale {
            size_multiple: self.unet().multiple(),
            // Products of products of features overflow half precision.
            safe_precisions: vec![Precision::Fp32, Precision::Bf16],
            ..picture(1, self.channels)
        }
        .contract()
    }

    fn build(&self, w: &Scope<'_>, shapes: &Shapes) -> Result<()> {
        self.unet().build(w, shapes, self.channels, |w, x| self.block(w, x))
    }

    fn presets() -> Vec<(&'static str, Self)> {
        let tiny = KbNetS {
            channels: 3,
            filters: 8,
            encoders: vec![1],
            middle: 1,
            decoders: vec![1],
            hidden: 16,
            kernels: 12,
            plain: 5,
            plain_group: 4,
        };
        let published = KbNetS {
            filters: 64,
            encoders: vec![2, 2, 4, 8],
            middle: 12,
            decoders: vec![2; 4],
            hidden: 128,
            kernels: 32,
            ..tiny.clone()
        };
        vec![
            ("tiny", tiny.clone()),
            (
                "tiny-lightweight-grey",
                KbNetS {
                    channels: 1,
                    encoders: vec![1, 2],
                    middle: 2,
                    decoders: vec![1, 1],
                    hidden: 12,
                    plain: 3,
                    plain_group: 1,
                    kernels: 4,
                    ..tiny
                },
            ),
            ("kbnet-s-sidd", published),
        ]
    }
}

impl KbNetS {
    fn unet(&self) -> SummedUnet<'_> {
        let Self { filters, middle, .. } = *self;
        SummedUnet { filters, encoders: &self.encoders, middle, decoders: &self.decoders }
    }

    /// y = x + features from each pixel's own kernels, times plain features and weights of the channels, then y +
    /// gated layers.
    fn block(&self, w: &Scope<'_>, x: &Value) -> Value {
        let filters = channels(x);
        let y = layer_norm_of_channels(&w.at("norm1"), x, EPSILON);
        let weights = conv2d(&w.at("sca.1"), &y.global_average_pool(), filters, 1);
        let plain = Conv2d::new(filters, self.plain).grouped(filters / self.plain_group);
        let plain = plain.apply(&w.at("conv11.1"), &conv2d(&w.at("conv11.0"), &y, filters, 1));
        let mixture = mixture(w, &y, MOST_INNER.min(filters), self.kernels);
        let own = conv2d(&w.at("conv1"), &y, filters, 1);
        let own = Conv2d::depthwise(filters, [3, 3]).apply(&w.at("conv21"), &own);
        let own = kernel_basis_attention(w, &own, &mixture, GROUP, "ga1") + own;
        let y = scaled(w, ["conv3", "beta"], &(own * plain * weights), filters) + x;
        // Upstream rounds this down as well.
        let hidden = self.hidden * filters / self.filters;
        let z = conv2d(&w.at("conv4"), &layer_norm_of_channels(&w.at("norm2"), &y, EPSILON), hidden, 1);
        scaled(w, ["conv5", "gamma"], &gate(&z), filters) + y
    }
}

/// The share of each of the `kernels` in each pixel of `x`. The inner layers are `inner` wide.
pub(super) fn mixture(w: &Scope<'_>, x: &Value, inner: usize, kernels: usize) -> Value {
    let gated = gate(&Conv2d::new(inner, 3).grouped(inner).apply(&w.at("conv2.0"), x));
    let last = Conv2d::new(kernels, 1);
    let first = last.apply_scaled(&w.at("conv2.2"), &gated, || w.stored("attgamma", &[1, kernels, 1, 1]));
    first + conv2d(&w.at("conv211"), x, kernels, 1)
}

/// One half of the channels times the other.
fn gate(x: &Value) -> Value {
    let [first, second] = split_channels(x, [channels(x) / 2; 2]);
    first * second
}

/// A layer of each pixel, times a number for each channel, which folds into the layer's filters.
fn scaled(w: &Scope<'_>, [layer, factors]: [&str; 2], x: &Value, filters: usize) -> Value {
    Conv2d::new(filters, 1).apply_scaled(&w.at(layer), x, || w.stored(factors, &[1, filters, 1, 1]))
}
