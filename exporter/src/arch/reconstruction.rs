//! The parts around the blocks of SwinIR and its successors: the first convolution, the groups, and the reconstruction
//! of the image.

use super::swin::normalise;
use super::{Keys, Mismatch};
use crate::nn::{Grid, Scope, channels, conv2d, linear_of_image, pointwise, shuffle_upsampling};
use serde::Serialize;
use tileforge_graph::Value;

/// Slope of LeakyReLU in the bottlenecks and between nearest-neighbour upsamplings.
const SLOPE: f32 = 0.2;
/// Slope before the upsampling: PyTorch's default.
const SLOPE_BEFORE: f32 = 0.01;

/// Where most networks have the convolutions of pixel shuffles.
pub(super) const STAGES: &str = "upsample";

/// A network of groups of blocks between convolutions.
#[derive(Debug)]
pub(super) struct Trunk<'a> {
    /// Channels of the image.
    pub(super) channels: usize,
    /// Width of the tokens.
    pub(super) dim: usize,
    /// The first convolution.
    pub(super) first: &'a str,
    /// Whether each image that becomes tokens is convolved with kernels of side 1 first (`patch_embed.proj`).
    pub(super) projection: bool,
    /// The normalisation before the first group, if there is one.
    pub(super) norm: Option<&'a str>,
    /// The normalisation after the last group.
    pub(super) last_norm: &'a str,
    pub(super) groups: usize,
    pub(super) residual: Residual,
    pub(super) upsampler: &'a Upsampler,
    /// Where the convolutions of pixel shuffles are.
    pub(super) stages: &'a str,
}

impl Trunk<'_> {
    /// From the normalised image to the upscaled one. `blocks` are the blocks of a group, by its number: tokens in
    /// raster order → the same.
    pub(super) fn apply(
        &self,
        w: &Scope<'_>,
        image: &Value,
        grid: &Grid,
        blocks: impl Fn(&Scope<'_>, &Value, usize) -> Value,
    ) -> Value {
        let shallow = conv2d(&w.at(self.first), image, self.dim, 3);
        let tokens_of = |w: &Scope<'_>, image: &Value| {
            let tokens = grid.tokens(image);
            if self.projection { pointwise(&w.at("patch_embed.proj"), &tokens, self.dim) } else { tokens }
        };
        let mut tokens = tokens_of(w, &shallow);
        if let Some(norm) = self.norm {
            tokens = normalise(&w.at(norm), &tokens);
        }
        for group in 0..self.groups {
            let layer = w.at(format!("layers.{group}"));
            let made = self.residual.apply(&layer.at("conv"), &grid.image(&blocks(&layer, &tokens, group)));
            tokens = tokens_of(&layer, &made) + tokens;
        }
        let deep = grid.image(&normalise(&w.at(self.last_norm), &tokens));
        let features = self.residual.apply(&w.at("conv_after_body"), &deep) + shallow;
        self.upsampler.apply(w, &features, image, self.channels, self.stages)
    }
}

/// The convolution at the end of each group, and after the last group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) enum Residual {
    /// One convolution.
    #[serde(rename = "1conv")]
    One,
    /// Three with a bottleneck of a quarter of the width.
    #[serde(rename = "3conv")]
    Three,
    /// One with a kernel of side 1 (GRL).
    #[serde(rename = "1conv1x1")]
    Pointwise,
    /// The same, as a linear layer (GRL).
    #[serde(rename = "linear")]
    Linear,
}

impl Residual {
    /// The tensors that show it.
    pub(super) const CONV: &'static str = "conv_after_body.weight";
    pub(super) const CONV_3: &'static str = "conv_after_body.0.weight";

    pub(super) fn detect(keys: &Keys<'_>) -> Self {
        if keys.contains(Self::CONV) { Residual::One } else { Residual::Three }
    }

    /// As [`Residual::detect`], among all.
    pub(super) fn detect_any(keys: &Keys<'_>) -> Result<Self, Mismatch> {
        if !keys.contains(Self::CONV) {
            return Ok(Residual::Three);
        }
        if keys.dims::<2>(Self::CONV).is_ok() {
            return Ok(Residual::Linear);
        }
        let [_, _, kernel, _] = keys.dims::<4>(Self::CONV)?;
        Ok(if kernel == 1 { Residual::Pointwise } else { Residual::One })
    }

    /// An image → the same sizes.
    pub(super) fn apply(self, w: &Scope<'_>, x: &Value) -> Value {
        let dim = channels(x);
        match self {
            Residual::One => conv2d(w, x, dim, 3),
            Residual::Pointwise => conv2d(w, x, dim, 1),
            Residual::Linear => linear_of_image(w, x, dim),
            Residual::Three => {
                let narrow = conv2d(&w.at("0"), x, dim / 4, 3).leaky_relu(SLOPE);
                let narrow = conv2d(&w.at("2"), &narrow, dim / 4, 1).leaky_relu(SLOPE);
                conv2d(&w.at("4"), &narrow, dim, 3)
            }
        }
    }
}

/// From features to an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Upsampler {
    /// "pixelshuffle", for classical super-resolution.
    PixelShuffle { filters: usize, factors: Vec<usize> },
    /// "pixelshuffledirect", for light networks.
    PixelShuffleDirect { factor: usize },
    /// "nearest+conv", for real photographs: doubles the size `doublings` times.
    NearestConv { filters: usize, doublings: usize },
    /// For denoising and JPEG artifacts: the network's result is added to the image.
    None,
}

impl Upsampler {
    /// Pixel shuffles by these factors, of this many filters.
    pub(super) fn shuffle(filters: usize, factors: &[usize]) -> Self {
        Upsampler::PixelShuffle { filters, factors: factors.to_vec() }
    }

    /// `channels` is the image's number of channels, for the upsampler whose tensors do not show it.
    pub(super) fn detect(keys: &Keys<'_>, channels: usize) -> Result<Self, Mismatch> {
        Self::detect_below(keys, channels, STAGES)
    }

    /// As [`Upsampler::detect`], with the convolutions of pixel shuffles below `stages`.
    pub(super) fn detect_below(keys: &Keys<'_>, channels: usize, stages: &str) -> Result<Self, Mismatch> {
        if !keys.contains("conv_before_upsample.0.weight") {
            let first = format!("{stages}.0.weight");
            let direct = keys.contains(&first);
            let factor = if direct { keys.shuffle_scale(&first, channels)? } else { 1 };
            return Ok(if direct { Upsampler::PixelShuffleDirect { factor } } else { Upsampler::None });
        }
        let [filters, ..] = keys.dims::<4>("conv_before_upsample.0.weight")?;
        let doublings = (1..8).take_while(|number| keys.contains(&format!("conv_up{number}.weight"))).count();
        match doublings {
            0 => Ok(Upsampler::PixelShuffle { filters, factors: keys.shuffle_factors(&format!("{stages}."))? }),
            doublings => Ok(Upsampler::NearestConv { filters, doublings }),
        }
    }

    /// Output pixels for each pixel of the features.
    pub(super) fn factor(&self) -> usize {
        match self {
            Upsampler::PixelShuffle { factors, .. } => factors.iter().product(),
            Upsampler::PixelShuffleDirect { factor } => *factor,
            Upsampler::NearestConv { doublings, .. } => 1 << doublings,
            Upsampler::None => 1,
        }
    }

    /// Features `x` → an image of `outputs` channels. `image` is the network's input; the convolutions of pixel
    /// shuffles are below `stages`.
    pub(super) fn apply(&self, w: &Scope<'_>, x: &Value, image: &Value, outputs: usize, stages: &str) -> Value {
        match self {
            Upsampler::PixelShuffle { filters, factors } => {
                shuffle_upsampling([w, &w.at(stages)], x, *filters, factors, outputs)
            }
            Upsampler::PixelShuffleDirect { factor } => {
                conv2d(&w.at(stages).at("0"), x, outputs * factor * factor, 3).depth_to_space(*factor)
            }
            Upsampler::NearestConv { filters, doublings } => nearest(w, x, *filters, *doublings, outputs),
            Upsampler::None => image + conv2d(&w.at("conv_last"), x, outputs, 3),
        }
    }
}

fn nearest(w: &Scope<'_>, x: &Value, filters: usize, doublings: usize, outputs: usize) -> Value {
    let mut x = conv2d(&w.at("conv_before_upsample.0"), x, filters, 3).leaky_relu(SLOPE_BEFORE);
    for number in 1..=doublings {
        x = conv2d(&w.at(format!("conv_up{number}")), &x.upsample_nearest(2), filters, 3).leaky_relu(SLOPE);
    }
    let x = conv2d(&w.at("conv_hr"), &x, filters, 3).leaky_relu(SLOPE);
    conv2d(&w.at("conv_last"), &x, outputs, 3)
}
