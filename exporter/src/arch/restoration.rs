//! The common parts of networks for damaged pictures: a noise level, and U-Nets of residual blocks.

use super::{Keys, Mismatch};
use crate::nn::{
    Conv2d, Scope, channels, conv2d, conv2d_unbiased, crop_to_image, image_input_of_multiples,
    pad_with_zeros_to_multiple,
};
use crate::{Result, Shapes};
use serde::Serialize;
use tileforge_graph::Value;

/// The hyperparameter for the noise level that a network takes.
pub(super) const NOISE_LEVEL: &str = "noise_level";
/// The reference's default.
const DEFAULT_NOISE_LEVEL: f32 = 15.0;

/// The noise level that a network takes: the user's, or the reference's default. It is the standard deviation of the
/// noise in values of 0 … 255.
pub(super) fn noise_level(keys: &Keys<'_>) -> Result<f32, Mismatch> {
    let level = keys.setting::<f32>(NOISE_LEVEL)?.unwrap_or(DEFAULT_NOISE_LEVEL);
    match (0.0..=255.0).contains(&level) {
        true => Ok(level),
        false => Err(Mismatch::new(format!("expected `{NOISE_LEVEL}` to be 0 to 255, found {level}"))),
    }
}

/// An image of 0 … 1 and one more channel, which is the same number everywhere: a noise level of 0 … 255.
pub(super) fn with_noise_level(image: &Value, level: f32) -> Value {
    image.concat(&[&image.gather(&[0], 1).scale(0.0).offset(level / 255.0)], 1)
}

/// How a U-Net halves its images.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Down {
    /// A convolution of each 2 × 2 pixels.
    StrideConv,
    /// The mean of each 2 × 2 pixels, and a convolution.
    AvgPool,
}

/// How a U-Net doubles its images.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Up {
    /// A transposed convolution of each pixel.
    ConvTranspose,
    /// Nearest-neighbour upsampling, and a convolution.
    Nearest,
    /// A convolution, and a pixel shuffle.
    PixelShuffle,
}

/// The layers of the U-Nets of KAIR (<https://github.com/cszn/KAIR>, `models/basicblock.py`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct UnetLayers {
    pub(super) down: Down,
    pub(super) up: Up,
    pub(super) biased: bool,
}

impl UnetLayers {
    fn convolution(self, filters: usize) -> Conv2d {
        let convolution = Conv2d::new(filters, 3);
        if self.biased { convolution } else { convolution.unbiased() }
    }

    /// A 3×3 convolution.
    pub(super) fn convolve(self, w: &Scope<'_>, x: &Value, filters: usize) -> Value {
        self.convolution(filters).apply(w, x)
    }

    /// Two 3×3 convolutions with ReLU between them.
    pub(super) fn two(self, w: &Scope<'_>, x: &Value) -> Value {
        let y = self.convolve(&w.at("res.0"), x, channels(x)).relu();
        self.convolve(&w.at("res.2"), &y, channels(x))
    }

    /// `blocks` times x + two convolutions of x, the first one numbered `first`.
    pub(super) fn residual_blocks(self, w: &Scope<'_>, x: &Value, first: usize, blocks: usize) -> Value {
        let numbers = first..first + blocks;
        numbers.fold(x.clone(), |x, number| self.two(&w.at(number.to_string()), &x) + &x)
    }

    /// Half the size, with `filters` channels; the first of the layer's modules is number `number`.
    pub(super) fn halve(self, w: &Scope<'_>, x: &Value, number: usize, filters: usize) -> Value {
        match self.down {
            Down::StrideConv => {
                let convolution = Conv2d::new(filters, 2).padded(0).strided(2);
                let convolution = if self.biased { convolution } else { convolution.unbiased() };
                convolution.apply(&w.at(number.to_string()), x)
            }
            Down::AvgPool => self.convolve(&w.at((number + 1).to_string()), &x.average_pool(2), filters),
        }
    }

    /// Twice the size, with `filters` channels. `scopes` are those of the layer's first and second module.
    pub(super) fn double(self, scopes: [&Scope<'_>; 2], x: &Value, filters: usize) -> Value {
        match self.up {
            Up::ConvTranspose => {
                let weight = scopes[0].tensor("weight", [channels(x), filters, 2, 2]);
                let bias = self.biased.then(|| scopes[0].tensor("bias", [filters]));
                x.conv_transpose(&weight, bias.as_ref(), 2, 0)
            }
            Up::Nearest => self.convolve(scopes[1], &x.upsample_nearest(2), filters),
            Up::PixelShuffle => self.convolve(scopes[0], x, 4 * filters).depth_to_space(2),
        }
    }

    /// The number of modules that double the size.
    pub(super) fn modules_up(self) -> usize {
        if self.up == Up::ConvTranspose { 1 } else { 2 }
    }

    /// How many pixels such a U-Net reaches in each direction, with this many residual blocks on each of its four
    /// levels, down and up.
    pub(super) fn reach(self, blocks: usize) -> usize {
        // Two pixels for each block, on levels whose pixels have sides of 1, 2, 4 and 8; the pixels of the coarsest
        // level form a grid in which every pixel reaches every other. Two convolutions at the ends.
        let convolutions = 2 * blocks * (1 + 2 + 4 + 8 + 4 + 2 + 1) + 7 + 2;
        let down = if self.down == Down::AvgPool { 2 + 4 + 8 } else { 0 };
        let up = match self.up {
            Up::ConvTranspose => 0,
            Up::Nearest => 4 + 2 + 1,
            Up::PixelShuffle => 8 + 4 + 2,
        };
        convolutions + down + up
    }
}

/// A U-Net that adds each level on the way down to the one of the same size on the way up, as in NAFNet and KBNet-S.
#[derive(Debug, Clone, Copy)]
pub(super) struct SummedUnet<'a> {
    /// Width of the finest level. Each coarser one is twice as wide.
    pub(super) filters: usize,
    /// Blocks of each level on the way down, from the finest.
    pub(super) encoders: &'a [usize],
    /// Blocks of the coarsest level.
    pub(super) middle: usize,
    /// Blocks of each level on the way up, from the coarsest.
    pub(super) decoders: &'a [usize],
}

/// No published network comes near.
const MOST_LEVELS: usize = 8;

/// The numbers of blocks of a [`SummedUnet`], down and up.
pub(super) fn levels(keys: &Keys<'_>) -> Result<[Vec<usize>; 2], Mismatch> {
    let [encoders, decoders] = ["encoders", "decoders"].map(|kind| -> Vec<usize> {
        (0..keys.count(&format!("{kind}."))).map(|level| keys.count(&format!("{kind}.{level}."))).collect()
    });
    match encoders.len() == decoders.len() && encoders.len() <= MOST_LEVELS {
        true => Ok([encoders, decoders]),
        false => Err(Mismatch::new(format!(
            "expected as many levels up as down, {MOST_LEVELS} at most, found {} and {}",
            decoders.len(),
            encoders.len()
        ))),
    }
}

impl SummedUnet<'_> {
    /// Sides of images are padded with zeros to multiples of this.
    pub(super) fn multiple(&self) -> usize {
        1 << self.encoders.len()
    }

    /// The input `image`, the network, and the output `upscaled`, each of `channels` channels.
    pub(super) fn build(
        &self,
        w: &Scope<'_>,
        shapes: &Shapes,
        channels: usize,
        block: impl Fn(&Scope<'_>, &Value) -> Value,
    ) -> Result<()> {
        let image = image_input_of_multiples(w, "image", channels, self.multiple(), shapes)?;
        let padded = pad_with_zeros_to_multiple(&image, self.multiple());
        let restored = self.apply(w, &padded, block);
        w.trace().output("upscaled", &crop_to_image(&restored, &image, self.multiple(), 1));
        Ok(())
    }

    /// x + the network: `image` `[batch, channels, height, width]` → the same.
    fn apply(&self, w: &Scope<'_>, image: &Value, block: impl Fn(&Scope<'_>, &Value) -> Value) -> Value {
        let blocks = |w: Scope<'_>, x: &Value, count: usize| {
            (0..count).fold(x.clone(), |x, number| block(&w.at(number.to_string()), &x))
        };
        let mut x = conv2d(&w.at("intro"), image, self.filters, 3);
        let mut levels = Vec::new();
        for (level, count) in self.encoders.iter().enumerate() {
            x = blocks(w.at(format!("encoders.{level}")), &x, *count);
            levels.push(x.clone());
            let down = Conv2d::new(2 * channels(&x), 2).padded(0).strided(2);
            x = down.apply(&w.at(format!("downs.{level}")), &x);
        }
        x = blocks(w.at("middle_blks"), &x, self.middle);
        for (level, (count, fine)) in self.decoders.iter().zip(levels.iter().rev()).enumerate() {
            let up = conv2d_unbiased(&w.at(format!("ups.{level}.0")), &x, 2 * channels(&x), 1).depth_to_space(2);
            x = blocks(w.at(format!("decoders.{level}")), &(up + fine), *count);
        }
        conv2d(&w.at("ending"), &x, channels(image), 3) + image
    }
}
