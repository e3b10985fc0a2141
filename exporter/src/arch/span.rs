//! SPAN: six blocks whose attention has no parameters, the winner of the NTIRE 2024 challenge on efficient
//! super-resolution.
//!
//! Paper: <https://arxiv.org/abs/2311.12770>. Upstream: <https://github.com/hongyuanyu/SPAN>,
//! `basicsr/archs/span_arch.py`. Reference: spandrel 0.4.2, `architectures/SPAN`.

use super::{Architecture, Keys, Mismatch, reach};
use crate::nn::{Scope, channels, conv2d, image_input};
use crate::{Contract, Result, Shapes};
use serde::Serialize;
use tileforge_contract::{Padding, Precision, Upscale};
use tileforge_graph::{Constant, ConvOptions, DataType, Value, Weight};

/// Hyperparameters. All of them follow from names and shapes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Span {
    /// Channels of the image, in and out.
    channels: usize,
    /// Width of the network.
    filters: usize,
    scale: usize,
    /// Whether the image's mean is subtracted and its range enlarged. Training code that does not do this marks its
    /// checkpoints.
    norm: bool,
}

/// Upstream's constant; no tensor determines it. The mean of each of R, G and B, in 0 … 1.
const MEAN: [f32; 3] = [0.4488, 0.4371, 0.4040];
/// The range that the image is enlarged to; as [`MEAN`], upstream's constant.
const RANGE: f32 = 255.0;
/// The network always has this many blocks: the last convolution reads three of them by number.
const BLOCKS: usize = 6;
/// Convolutions are this many times wider inside while they are trained; the network has no other gain.
const GAIN: usize = 2;
/// Taps of a 3×3 kernel.
const TAPS: usize = 9;

impl Architecture for Span {
    const NAME: &'static str = "SPAN";

    const SIGNATURES: &'static [&'static [&'static str]] = &[&[
        "conv_1.sk.weight",
        "block_1.c1_r.sk.weight",
        "block_6.c3_r.sk.weight",
        "conv_2.sk.weight",
        "conv_cat.weight",
        "upsampler.0.weight",
    ]];

    fn detect(keys: &Keys<'_>) -> Result<Self, Mismatch> {
        let [filters, channels, ..] = keys.dims::<4>("conv_1.sk.weight")?;
        let scale = keys.shuffle_scale("upsampler.0.weight", channels)?;
        let norm = !keys.contains("no_norm");
        if norm && channels != MEAN.len() {
            return Err(Mismatch::new(format!(
                "expected 3 channels, of which the means are known, or a tensor `no_norm`; found {channels}"
            )));
        }
        Ok(Span { channels, filters, scale, norm })
    }

    fn contract(&self) -> Contract {
        Upscale {
            input: "image".into(),
            output: "upscaled".into(),
            scale: self.scale,
            channels: self.channels,
            range: [0.0, 1.0],
            size_multiple: 1,
            size_minimum: 1,
            padding: Padding::Reflect,
            // One pixel for each 3×3 convolution: three in each block, one before them, two behind.
            receptive_field: reach(3 * BLOCKS + 3),
            safe_precisions: vec![Precision::Fp32, Precision::Fp16, Precision::Bf16],
        }
        .contract()
    }

    fn build(&self, w: &Scope<'_>, shapes: &Shapes) -> Result<()> {
        let image = image_input(w, "image", self.channels, shapes)?;
        w.trace().output("upscaled", &self.network(w, &image));
        Ok(())
    }

    /// The fused weights of the last evaluation. The other weights may have changed since, so the reference computes
    /// the fused ones again at every inference.
    fn ignores(&self, name: &str) -> bool {
        name.ends_with(".eval_conv.weight") || name.ends_with(".eval_conv.bias")
    }

    fn presets() -> Vec<(&'static str, Self)> {
        let tiny = Span { channels: 3, filters: 4, scale: 4, norm: true };
        vec![
            ("tiny", tiny.clone()),
            ("tiny-x1", Span { scale: 1, ..tiny.clone() }),
            ("tiny-no-norm-x2", Span { scale: 2, norm: false, ..tiny.clone() }),
            ("tiny-grey-x3", Span { channels: 1, scale: 3, norm: false, ..tiny.clone() }),
            ("span-x2-ch48", Span { filters: 48, scale: 2, ..tiny.clone() }),
            ("span-x4-ch48", Span { filters: 48, ..tiny.clone() }),
            ("span-x4-ch52", Span { filters: 52, ..tiny }),
        ]
    }
}

impl Span {
    /// `image`: `[batch, channels, height, width]`.
    fn network(&self, w: &Scope<'_>, image: &Value) -> Value {
        let image = if self.norm {
            (image - w.trace().constant("mean", &[1, MEAN.len(), 1, 1], Constant::F32(&MEAN))).scale(RANGE)
        } else {
            w.marker("no_norm", &[1]);
            image.clone()
        };
        let shallow = self.conv3xc(&w.at("conv_1"), &image);
        let (first, mut inner) = self.block(&w.at("block_1"), &shallow);
        let mut deep = first.clone();
        for number in 2..=BLOCKS {
            (deep, inner) = self.block(&w.at(format!("block_{number}")), &deep);
        }
        let deep = self.conv3xc(&w.at("conv_2"), &deep);
        let joined = conv2d(&w.at("conv_cat"), &shallow.concat(&[&deep, &first, &inner], 1), self.filters, 1);
        conv2d(&w.at("upsampler.0"), &joined, self.channels * self.scale * self.scale, 3).depth_to_space(self.scale)
    }

    /// Three convolutions of x, whose result is the attention on its own sum with x; and the inner value after the
    /// first convolution.
    ///
    /// The inner value is taken after the activation. The paper's figure does not show that: upstream activates in
    /// place.
    fn block(&self, w: &Scope<'_>, x: &Value) -> (Value, Value) {
        let inner = self.conv3xc(&w.at("c1_r"), x).silu();
        let y = self.conv3xc(&w.at("c2_r"), &inner).silu();
        let y = self.conv3xc(&w.at("c3_r"), &y);
        // An odd function of y, so its product with y is even: strong features of either sign pass.
        let attention = y.sigmoid().offset(-0.5);
        ((y + x) * attention, inner)
    }

    /// A 3×3 convolution that was trained as a chain of three (1×1, 3×3, 1×1) with a 1×1 convolution in parallel.
    fn conv3xc(&self, w: &Scope<'_>, x: &Value) -> Value {
        match fused(w, channels(x), self.filters) {
            Ok((weight, bias)) => {
                let (weight, bias) = (w.computed("eval_conv.weight", weight), w.computed("eval_conv.bias", bias));
                x.conv(&weight, Some(&bias), &ConvOptions::same(3))
            }
            Err(error) => {
                w.trace().fail(error);
                x.clone()
            }
        }
    }
}

/// The weight `[filters, channels, 3, 3]` and the bias `[filters]` of the one convolution that a Conv3XC amounts to.
///
/// The image is padded with zeros before the first convolution, so that its bias also counts in the border, and
/// everything in between is linear. The single convolution is therefore the same everywhere. It is computed in f64 and
/// rounded once.
fn fused(w: &Scope<'_>, channels: usize, filters: usize) -> tileforge_graph::Result<(Weight, Weight)> {
    let (wide_in, wide_out) = (GAIN * channels, GAIN * filters);
    let stored = |name: &str, dims: &[usize]| w.stored(name, dims)?.cast(DataType::F64);
    let matrix =
        |name: &str, rows: usize, columns: usize| stored(name, &[rows, columns, 1, 1])?.reshaped(vec![rows, columns]);
    let column = |name: &str, rows: usize| stored(name, &[rows])?.reshaped(vec![rows, 1]);
    let (first, first_bias) = (matrix("conv.0.weight", wide_in, channels)?, column("conv.0.bias", wide_in)?);
    let (second, second_bias) =
        (stored("conv.1.weight", &[wide_out, wide_in, 3, 3])?, column("conv.1.bias", wide_out)?);
    let (third, third_bias) = (matrix("conv.2.weight", filters, wide_out)?, column("conv.2.bias", filters)?);
    let (beside, beside_bias) = (stored("sk.weight", &[filters, channels, 1, 1])?, column("sk.bias", filters)?);

    // [wide_out · taps, wide_in] · [wide_in, channels], and then [filters, wide_out] · [wide_out, channels · taps].
    let second = second.transposed(&[0, 2, 3, 1])?.reshaped(vec![wide_out * TAPS, wide_in])?;
    let two = second.product(&first)?.reshaped(vec![wide_out, TAPS, channels])?.transposed(&[0, 2, 1])?;
    let three = third.product(&two.reshaped(vec![wide_out, channels * TAPS])?)?;
    // A 1×1 kernel is the middle of a 3×3 one.
    let around = Weight::zeros(DataType::F64, vec![filters, channels, TAPS / 2])?;
    let beside = Weight::concatenated(&[around.clone(), beside.reshaped(vec![filters, channels, 1])?, around], 2)?;
    let weight = three.reshaped(vec![filters, channels, TAPS])?.plus(&beside)?;

    // Every tap adds the first bias.
    let taps = Weight::from_bytes(DataType::F64, vec![TAPS, 1], 1_f64.to_le_bytes().repeat(TAPS))?;
    let bias = second.product(&first_bias)?.reshaped(vec![wide_out, TAPS])?.product(&taps)?.plus(&second_bias)?;
    let bias = third.product(&bias)?.plus(&third_bias)?.plus(&beside_bias)?;
    let single = |weight: Weight, dims: &[usize]| weight.reshaped(dims.to_vec())?.cast(DataType::F32);
    Ok((single(weight, &[filters, channels, 3, 3])?, single(bias, &[filters])?))
}
