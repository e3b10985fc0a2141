//! RCAN: groups of residual blocks whose channels are weighted by a function of their means.
//!
//! Paper: <https://arxiv.org/abs/1807.02758>. Upstream: <https://github.com/yulunzhang/RCAN>, `RCAN_TrainCode`, and
//! <https://github.com/the-database/traiNNer-redux>, `traiNNer/archs/rcan_arch.py`, whose networks may unshuffle the
//! image. Reference: spandrel 0.4.2, `architectures/RCAN`.

use super::{Architecture, Keys, Mismatch, odd, picture};
use crate::nn::{Mirror, Scope, channel_weights, conv2d, crop_to_image, image_input, pad_to_multiple, shuffle_stages};
use crate::{Contract, Result, Shapes};
use serde::Serialize;
use tileforge_contract::{Precision, Upscale};
use tileforge_graph::{ConvOptions, DataType, Value, Weight};

/// Hyperparameters.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Rcan {
    /// Channels of the image, in and out.
    channels: usize,
    /// Width of the network.
    filters: usize,
    groups: usize,
    /// Residual blocks of each group.
    blocks: usize,
    /// Side of most kernels.
    kernel: usize,
    /// Channels between the two layers of the channel attention.
    squeezed: usize,
    /// Whether the image's mean is subtracted and its range enlarged.
    norm: bool,
    /// Factors of the pixel shuffles.
    factors: Vec<usize>,
    /// The input's pixels are first unshuffled in squares of this side.
    unshuffle: usize,
}

/// The range inside of networks that subtract the mean; no tensor determines it.
const RANGE: f64 = 255.0;

impl Architecture for Rcan {
    const NAME: &'static str = "RCAN";

    const SIGNATURES: &'static [&'static [&'static str]] = &[
        &["head.0.weight", "tail.1.weight", "body.0.body.0.body.0.weight", "body.0.body.0.body.3.conv_du.0.weight"],
        &["head.1.weight", "tail.1.weight", "body.0.body.0.body.0.weight", "body.0.body.0.body.3.conv_du.0.weight"],
    ];

    fn detect(keys: &Keys<'_>) -> Result<Self, Mismatch> {
        let first = if keys.contains("head.1.weight") { "head.1.weight" } else { "head.0.weight" };
        let [filters, inputs, kernel, _] = keys.dims::<4>(first)?;
        let [channels, ..] = keys.dims::<4>("tail.1.weight")?;
        let factors = keys.shuffle_factors("tail.0.")?;
        let (unshuffle, factor) = ((inputs / channels).isqrt(), factors.iter().product::<usize>());
        let unshuffles = first == "head.1.weight";
        if channels * unshuffle * unshuffle != inputs
            || unshuffles != (unshuffle > 1)
            || factor.checked_rem(unshuffle) != Some(0)
        {
            return Err(Mismatch::new(format!(
                "{inputs} channels at `{first}` are no image of {channels} channels that is enlarged by {factor}"
            )));
        }
        let norm = keys.contains("sub_mean.weight");
        if norm && channels != 3 {
            return Err(Mismatch::new(format!("expected 3 channels, whose mean is subtracted, found {channels}")));
        }
        Ok(Rcan {
            channels,
            filters,
            groups: keys.count("body.").saturating_sub(1),
            blocks: keys.count("body.0.body.").saturating_sub(1),
            kernel: odd(kernel)?,
            squeezed: keys.dims::<4>("body.0.body.0.body.3.conv_du.0.weight")?[0],
            norm,
            factors,
            unshuffle,
        })
    }

    fn contract(&self) -> Contract {
        Upscale {
            size_multiple: self.unshuffle,
            size_minimum: self.unshuffle,
            // Values of 0 … 255 grow with each of two hundred residual blocks, beyond half precision.
            safe_precisions: vec![Precision::Fp32, Precision::Bf16],
            ..picture(self.scale(), self.channels)
        }
        .contract()
    }

    fn build(&self, w: &Scope<'_>, shapes: &Shapes) -> Result<()> {
        let image = image_input(w, "image", self.channels, shapes)?;
        let padded = pad_to_multiple(&image, self.unshuffle, Mirror::Reflect)?;
        let upscaled = self.network(w, &padded);
        w.trace().output("upscaled", &crop_to_image(&upscaled, &image, self.unshuffle, self.scale()));
        Ok(())
    }

    fn presets() -> Vec<(&'static str, Self)> {
        let tiny = Rcan {
            channels: 3,
            filters: 8,
            groups: 2,
            blocks: 1,
            kernel: 3,
            squeezed: 2,
            norm: true,
            factors: vec![2, 2],
            unshuffle: 1,
        };
        let published = Rcan { filters: 64, groups: 10, blocks: 20, squeezed: 4, ..tiny.clone() };
        vec![
            ("tiny", tiny.clone()),
            ("tiny-no-norm-x3", Rcan { norm: false, factors: vec![3], kernel: 5, ..tiny.clone() }),
            ("tiny-unshuffle-x2", Rcan { norm: false, unshuffle: 2, ..tiny.clone() }),
            ("tiny-unshuffle-x1", Rcan { unshuffle: 4, groups: 1, ..tiny.clone() }),
            ("tiny-grey-x1", Rcan { channels: 1, norm: false, factors: vec![], ..tiny }),
            ("rcan-x2", Rcan { factors: vec![2], ..published.clone() }),
            ("rcan-x4", published),
        ]
    }
}

impl Rcan {
    fn scale(&self) -> usize {
        self.factors.iter().product::<usize>() / self.unshuffle
    }

    /// `image`: `[batch, channels, height, width]`.
    fn network(&self, w: &Scope<'_>, image: &Value) -> Value {
        let image = if self.norm { shift(&w.at("sub_mean"), image, [RANGE, 1.0]) } else { image.clone() };
        let shallow = match self.unshuffle {
            1 => conv2d(&w.at("head.0"), &image, self.filters, self.kernel),
            side => conv2d(&w.at("head.1"), &image.pixel_unshuffle(side), self.filters, self.kernel),
        };
        let mut deep = shallow.clone();
        for group in 0..self.groups {
            deep = self.group(&w.at(format!("body.{group}.body")), &deep);
        }
        let deep = conv2d(&w.at(format!("body.{}", self.groups)), &deep, self.filters, self.kernel) + shallow;
        let enlarged = shuffle_stages(&w.at("tail.0"), &deep, 0, &self.factors);
        let upscaled = conv2d(&w.at("tail.1"), &enlarged, self.channels, self.kernel);
        if self.norm { shift(&w.at("add_mean"), &upscaled, [1.0 / RANGE; 2]) } else { upscaled }
    }

    /// x + a convolution of residual blocks.
    fn group(&self, w: &Scope<'_>, x: &Value) -> Value {
        let mut y = x.clone();
        for block in 0..self.blocks {
            y = self.block(&w.at(format!("{block}.body")), &y);
        }
        conv2d(&w.at(self.blocks.to_string()), &y, self.filters, self.kernel) + x
    }

    /// x + two convolutions, each of whose channels is multiplied by a number.
    fn block(&self, w: &Scope<'_>, x: &Value) -> Value {
        let y = conv2d(&w.at("0"), x, self.filters, self.kernel).relu();
        let y = conv2d(&w.at("2"), &y, self.filters, self.kernel);
        &y * channel_weights([&w.at("3.conv_du.0"), &w.at("3.conv_du.2")], &y, self.squeezed) + x
    }
}

/// The stored 1×1 convolution that adds a mean or subtracts it, with its weight and its bias multiplied by a number
/// each, so that the change of the range takes no operation.
fn shift(w: &Scope<'_>, x: &Value, [weight, bias]: [f64; 2]) -> Value {
    let times = |stored: Weight, factor: f64| {
        let rows = vec![factor as f32; stored.dims().first().copied().unwrap_or(0)];
        stored.cast(DataType::F32)?.rows_scaled(&rows)
    };
    let weight = w.computed_from("weight", &[3, 3, 1, 1], "weight", |stored| times(stored, weight));
    let bias = w.computed_from("bias", &[3], "bias", |stored| times(stored, bias));
    x.conv(&weight, Some(&bias), &ConvOptions::same(1))
}
