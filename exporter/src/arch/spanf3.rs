//! SPANF3: SPAN's blocks with a learned attention, ReLU, and an unshuffle of the image, as video players use it.
//!
//! Upstream: <https://github.com/the-database/traiNNer-redux>, `traiNNer/archs/spanf3_arch.py`, which is the reference.

use super::{Architecture, Keys, Mismatch, picture, reach};
use crate::nn::{Mirror, Scope, conv2d, conv3xc, crop_to_image, image_input, is_fused_copy, pad_to_multiple};
use crate::{Contract, Result, Shapes};
use serde::Serialize;
use tileforge_contract::Upscale;
use tileforge_graph::Value;

/// Hyperparameters. All of them follow from names and shapes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct SpanF3 {
    /// Channels of the image, in and out.
    channels: usize,
    /// Width of the network.
    filters: usize,
    blocks: usize,
    scale: usize,
    /// The input's pixels are first unshuffled in squares of this side.
    unshuffle: usize,
}

/// The networks that unshuffle their image enlarge it by this factor afterwards.
const UNSHUFFLED_FACTOR: usize = 4;

impl Architecture for SpanF3 {
    const NAME: &'static str = "SPANF3";

    const SIGNATURES: &'static [&'static [&'static str]] = &[
        &[
            "conv_1.sk.weight",
            "block_1.c1_r.sk.weight",
            "block_1.att_conv.weight",
            "conv_cat.weight",
            "to_pixel.sk.weight",
        ],
        &[
            "conv_1.1.sk.weight",
            "block_1.c1_r.sk.weight",
            "block_1.att_conv.weight",
            "conv_cat.weight",
            "to_pixel.sk.weight",
        ],
    ];

    fn detect(keys: &Keys<'_>) -> Result<Self, Mismatch> {
        let unshuffles = keys.contains("conv_1.1.sk.weight");
        let first = if unshuffles { "conv_1.1.sk.weight" } else { "conv_1.sk.weight" };
        let [filters, inputs, ..] = keys.dims::<4>(first)?;
        let channels = match unshuffles {
            true => keys.dims::<4>("to_pixel.sk.weight")?[0] / UNSHUFFLED_FACTOR.pow(2),
            false => inputs,
        };
        let factor = keys.shuffle_scale("to_pixel.sk.weight", channels)?;
        let unshuffle = (inputs / channels.max(1)).isqrt();
        if channels * unshuffle * unshuffle != inputs || unshuffle == 0 || factor % unshuffle != 0 {
            return Err(Mismatch::new(format!(
                "{inputs} channels at `{first}` are no pixel-unshuffled image of {channels} channels that is enlarged \
                 by {factor}"
            )));
        }
        let blocks = (1..).take_while(|number| keys.contains(&format!("block_{number}.att_conv.weight"))).count();
        Ok(SpanF3 { channels, filters, blocks, scale: factor / unshuffle, unshuffle })
    }

    fn contract(&self) -> Contract {
        // One pixel for each 3×3 convolution: three in each block, one before and one behind. With an unshuffled
        // image, each of these pixels is a square of the image's pixels.
        let radius = (3 * self.blocks + 3) * self.unshuffle - 1;
        Upscale {
            size_multiple: self.unshuffle,
            size_minimum: self.unshuffle,
            receptive_field: reach(radius),
            ..picture(self.scale, self.channels)
        }
        .contract()
    }

    fn build(&self, w: &Scope<'_>, shapes: &Shapes) -> Result<()> {
        let image = image_input(w, "image", self.channels, shapes)?;
        let padded = pad_to_multiple(&image, self.unshuffle, Mirror::Reflect)?;
        let upscaled = self.network(w, &padded);
        w.trace().output("upscaled", &crop_to_image(&upscaled, &image, self.unshuffle, self.scale));
        Ok(())
    }

    fn ignores(&self, name: &str) -> bool {
        is_fused_copy(name)
    }

    fn presets() -> Vec<(&'static str, Self)> {
        let tiny = SpanF3 { channels: 3, filters: 4, blocks: 2, scale: 4, unshuffle: 1 };
        let published = SpanF3 { filters: 48, blocks: 6, ..tiny.clone() };
        vec![
            ("tiny", tiny.clone()),
            ("tiny-unshuffle-x2", SpanF3 { scale: 2, unshuffle: 2, ..tiny.clone() }),
            ("tiny-unshuffle-x1", SpanF3 { scale: 1, unshuffle: 4, blocks: 1, ..tiny.clone() }),
            ("tiny-grey-x3", SpanF3 { channels: 1, scale: 3, ..tiny }),
            ("spanf3-x2", SpanF3 { scale: 2, unshuffle: 2, ..published.clone() }),
            // The networks of AnimeJaNai 3.1, which its benchmarks name Performance and Balanced.
            ("animejanai-performance-x2", SpanF3 { blocks: 5, scale: 2, unshuffle: 2, ..published.clone() }),
            ("animejanai-balanced-x2", SpanF3 { filters: 64, blocks: 8, scale: 2, unshuffle: 2, ..published.clone() }),
            ("spanf3-x4", published),
        ]
    }
}

impl SpanF3 {
    /// `image`: `[batch, channels, height, width]`.
    fn network(&self, w: &Scope<'_>, image: &Value) -> Value {
        let shallow = match self.unshuffle {
            1 => conv3xc(&w.at("conv_1"), image, self.filters),
            side => conv3xc(&w.at("conv_1.1"), &image.pixel_unshuffle(side), self.filters),
        };
        let (first, mut inner) = self.block(&w.at("block_1"), &shallow);
        let mut deep = first.clone();
        for number in 2..=self.blocks {
            (deep, inner) = self.block(&w.at(format!("block_{number}")), &deep);
        }
        let joined = conv2d(&w.at("conv_cat"), &shallow.concat(&[&deep, &first, &inner], 1), self.filters, 1);
        let factor = self.scale * self.unshuffle;
        conv3xc(&w.at("to_pixel"), &joined, self.channels * factor * factor).depth_to_space(factor)
    }

    /// The sum of x and three convolutions of it, times an attention in −1 … 1 that a layer makes of the convolutions;
    /// and the inner value after the first convolution, which upstream's ReLU changes in place.
    fn block(&self, w: &Scope<'_>, x: &Value) -> (Value, Value) {
        let inner = conv3xc(&w.at("c1_r"), x, self.filters).relu();
        let y = conv3xc(&w.at("c2_r"), &inner, self.filters).relu();
        let y = conv3xc(&w.at("c3_r"), &y, self.filters);
        let attention = conv2d(&w.at("att_conv"), &y, self.filters, 1).tanh();
        ((x + y) * attention, inner)
    }
}
