//! MoSR: gated convolutions, of which some of the channels have a large kernel of their own (MambaOut,
//! <https://arxiv.org/abs/2405.07992>, for super-resolution).
//!
//! Upstream: <https://github.com/umzi2/MoSR>. Reference: spandrel 0.4.2, `architectures/MoSR`.

use super::{Architecture, Keys, Mismatch, odd, picture, reach};
use crate::nn::{Conv2d, Scope, channels, conv2d, dysample, gated_convolution, image_input};
use crate::{Contract, Result, Shapes};
use serde::Serialize;
use tileforge_contract::{Precision, ReceptiveField, Upscale};
use tileforge_graph::{ConvOptions, DataType, Value, Weight};

/// Hyperparameters. All of them follow from names and shapes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct MoSr {
    /// Channels of the image, in and out.
    channels: usize,
    /// Width of the network.
    filters: usize,
    blocks: usize,
    /// Channels that a block gates, and as many gates.
    hidden: usize,
    /// How many of them are convolved with the large kernel.
    convolved: usize,
    /// Side of the large kernel.
    kernel: usize,
    upsampler: Upsampler,
    scale: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Upsampler {
    /// A convolution and a pixel shuffle ("ps").
    PixelShuffle,
    /// The mean of eight of them ("gps").
    Ensemble,
    /// Positions that are learned ("dys").
    DySample,
}

/// Pixel shuffles of an ensemble.
const ENSEMBLE: usize = 8;
/// Groups of channels with positions of their own. Upstream has no other number.
const POSITION_GROUPS: usize = 4;
impl Architecture for MoSr {
    const NAME: &'static str = "MoSR";

    const SIGNATURES: &'static [&'static [&'static str]] = &[&[
        "gblocks.0.weight",
        "gblocks.0.bias",
        "gblocks.1.norm.weight",
        "gblocks.1.norm.bias",
        "gblocks.1.fc1.weight",
        "gblocks.1.fc1.bias",
        "gblocks.1.conv.weight",
        "gblocks.1.conv.bias",
        "gblocks.1.fc2.weight",
        "gblocks.1.fc2.bias",
    ]];

    fn detect(keys: &Keys<'_>) -> Result<Self, Mismatch> {
        let [filters, channels, ..] = keys.dims::<4>("gblocks.0.weight")?;
        let [convolved, _, kernel, _] = keys.dims::<4>("gblocks.1.conv.weight")?;
        let [gated, ..] = keys.dims::<4>("gblocks.1.fc1.weight")?;
        // The first convolution, the blocks, and three convolutions with an activation after two of them.
        let blocks = keys.count("gblocks.").saturating_sub(6);
        let square = |shuffled: usize, name: &str| match shuffled.isqrt() {
            scale if scale * scale == shuffled && scale > 0 => Ok(scale),
            _ => Err(Mismatch::new(format!("no scale gives `{name}` its number of filters"))),
        };
        let (upsampler, scale) = if keys.contains("upsampler.init_pos") {
            let [outputs, ..] = keys.dims::<4>("upsampler.end_conv.weight")?;
            if outputs != channels {
                return Err(Mismatch::new(format!("expected {channels} channels in and out, found {outputs} out")));
            }
            let [positions, ..] = keys.dims::<4>("upsampler.offset.weight")?;
            (Upsampler::DySample, square(positions / (2 * POSITION_GROUPS), "upsampler.offset.weight")?)
        } else if keys.contains("upsampler.in_to_k.weight") {
            let [shuffled, ..] = keys.dims::<4>("upsampler.in_to_k.weight")?;
            (Upsampler::Ensemble, square(shuffled / ENSEMBLE / channels, "upsampler.in_to_k.weight")?)
        } else {
            (Upsampler::PixelShuffle, keys.shuffle_scale("upsampler.0.weight", channels)?)
        };
        let hidden = gated / 2;
        if convolved > hidden {
            return Err(Mismatch::new(format!("{convolved} of {hidden} gated channels cannot be convolved")));
        }
        if upsampler == Upsampler::DySample && filters % POSITION_GROUPS != 0 {
            return Err(Mismatch::new(format!("{filters} filters do not divide into {POSITION_GROUPS} groups")));
        }
        Ok(MoSr { channels, filters, blocks, hidden, convolved, kernel: odd(kernel)?, upsampler, scale })
    }

    fn contract(&self) -> Contract {
        let sampled = self.upsampler == Upsampler::DySample;
        // One pixel for each 3×3 convolution: one before the blocks, two in each, two behind them and one to enlarge.
        let radius = self.blocks * (2 + self.kernel / 2) + 4;
        let all = picture(self.scale, self.channels);
        Upscale {
            receptive_field: if sampled { ReceptiveField::Unbounded } else { reach(radius) },
            // Positions in half precision are wrong by pixels.
            safe_precisions: if sampled { vec![Precision::Fp32] } else { all.safe_precisions.clone() },
            ..all
        }
        .contract()
    }

    fn build(&self, w: &Scope<'_>, shapes: &Shapes) -> Result<()> {
        let image = image_input(w, "image", self.channels, shapes)?;
        w.trace().output("upscaled", &self.network(w, &image));
        Ok(())
    }

    fn presets() -> Vec<(&'static str, Self)> {
        let tiny = MoSr {
            channels: 3,
            filters: 8,
            blocks: 2,
            hidden: 12,
            convolved: 8,
            kernel: 7,
            upsampler: Upsampler::PixelShuffle,
            scale: 4,
        };
        let published = MoSr { filters: 64, blocks: 24, hidden: 96, convolved: 64, ..tiny.clone() };
        vec![
            ("tiny", tiny.clone()),
            ("tiny-all-channels-x1", MoSr { convolved: 12, scale: 1, kernel: 5, ..tiny.clone() }),
            ("tiny-ensemble-x2", MoSr { upsampler: Upsampler::Ensemble, scale: 2, blocks: 1, ..tiny.clone() }),
            ("tiny-dysample-x3", MoSr { upsampler: Upsampler::DySample, scale: 3, blocks: 1, ..tiny.clone() }),
            ("tiny-grey-x2", MoSr { channels: 1, scale: 2, ..tiny }),
            ("mosr-x2", MoSr { scale: 2, ..published.clone() }),
            ("mosr-x4", published.clone()),
            ("mosr-gps-x4", MoSr { upsampler: Upsampler::Ensemble, ..published.clone() }),
            ("mosr-dys-x4", MoSr { upsampler: Upsampler::DySample, ..published }),
        ]
    }
}

impl MoSr {
    /// `image`: `[batch, channels, height, width]`.
    fn network(&self, w: &Scope<'_>, image: &Value) -> Value {
        let layer = |number: usize| w.at(format!("gblocks.{number}"));
        let mut x = conv2d(&layer(0), image, self.filters, 3);
        for number in 1..=self.blocks {
            x = self.block(&layer(number), &x);
        }
        let x = conv2d(&layer(self.blocks + 1), &x, 2 * self.filters, 3).mish();
        let x = conv2d(&layer(self.blocks + 3), &x, self.filters, 3).mish();
        let x = conv2d(&layer(self.blocks + 5), &x, self.filters, 1) + self.shortcut(&w.at("shortcut"), image);
        let shuffled = self.channels * self.scale * self.scale;
        match self.upsampler {
            Upsampler::PixelShuffle => conv2d(&w.at("upsampler.0"), &x, shuffled, 3).depth_to_space(self.scale),
            Upsampler::Ensemble => ensemble(&w.at("upsampler.in_to_k"), &x, shuffled).depth_to_space(self.scale),
            Upsampler::DySample => dysample(&w.at("upsampler"), &x, POSITION_GROUPS, self.scale, Some(self.channels)),
        }
    }

    /// x − 0.5 + gated features of x.
    fn block(&self, w: &Scope<'_>, x: &Value) -> Value {
        let large = Conv2d::depthwise(self.convolved, [self.kernel; 2]);
        let gated = gated_convolution(w, x, [self.hidden, self.convolved], |w, part| large.apply(w, part));
        gated + x.offset(-0.5)
    }

    /// Two convolutions of the image and one beside them, − 0.5.
    fn shortcut(&self, w: &Scope<'_>, image: &Value) -> Value {
        let x = conv2d(&w.at("block.0"), image, self.filters, 3).mish();
        let x = conv2d(&w.at("block.2"), &x, self.filters, 3).mish();
        (x + conv2d(&w.at("conv11"), image, self.filters, 1)).offset(-0.5)
    }
}

/// The mean of the convolutions of an ensemble, which is one convolution: the weights' mean is computed in f64 and
/// rounded once.
fn ensemble(w: &Scope<'_>, x: &Value, filters: usize) -> Value {
    let mean = |weight: Weight, dims: &[usize]| {
        let shares = Weight::from_bytes(
            DataType::F64,
            vec![1, ENSEMBLE],
            (1.0 / ENSEMBLE as f64).to_le_bytes().repeat(ENSEMBLE),
        )?;
        let each = dims.iter().product();
        let stacked = weight.cast(DataType::F64)?.reshaped(vec![ENSEMBLE, each])?;
        shares.product(&stacked)?.reshaped(dims.to_vec())?.cast(DataType::F32)
    };
    let inputs = channels(x);
    let weight = w.computed_from("weight", &[ENSEMBLE * filters, inputs, 3, 3], "mean.weight", |weight| {
        mean(weight, &[filters, inputs, 3, 3])
    });
    let bias = w.computed_from("bias", &[ENSEMBLE * filters], "mean.bias", |bias| mean(bias, &[filters]));
    x.conv(&weight, Some(&bias), &ConvOptions::same(3))
}
