//! Swift-SRGAN: residual blocks of depthwise separable convolutions.
//!
//! Paper: <https://arxiv.org/abs/2111.14320>. Upstream: <https://github.com/Koushik0901/Swift-SRGAN>,
//! `swift-srgan/models.py`. Reference: spandrel 0.4.2, `architectures/SwiftSRGAN`.

use super::{Architecture, Keys, Mismatch, picture, reach};
use crate::nn::{BATCH_NORM_EPSILON, Conv2d, Scope, channels, conv2d, conv2d_batch_norm, image_input, prelu};
use crate::{Contract, Result, Shapes};
use serde::Serialize;
use tileforge_contract::Upscale;
use tileforge_graph::Value;

/// Hyperparameters. All of them follow from names and shapes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct SwiftSrgan {
    /// Channels of the image, in and out.
    channels: usize,
    /// Width of the network.
    filters: usize,
    blocks: usize,
    /// How often the image is doubled.
    doublings: usize,
}

/// Side of the kernels at both ends. Upstream has no other number.
const OUTER: usize = 9;
/// No published network comes near.
const MOST_DOUBLINGS: usize = 6;

impl Architecture for SwiftSrgan {
    const NAME: &'static str = "SwiftSRGAN";

    const SIGNATURES: &'static [&'static [&'static str]] =
        &[&["initial.cnn.depthwise.weight", "final_conv.pointwise.weight"]];

    fn detect(keys: &Keys<'_>) -> Result<Self, Mismatch> {
        let doublings = keys.count("upsampler.");
        if doublings > MOST_DOUBLINGS {
            return Err(Mismatch::new(format!("expected {MOST_DOUBLINGS} doublings at most, found {doublings}")));
        }
        Ok(SwiftSrgan {
            channels: keys.dims::<4>("initial.cnn.depthwise.weight")?[0],
            filters: keys.dims::<4>("initial.cnn.pointwise.weight")?[0],
            blocks: keys.count("residual."),
            doublings,
        })
    }

    fn contract(&self) -> Contract {
        // The kernels of each block and behind the blocks reach one pixel each. The kernels between doublings reach 1,
        // 1/2, 1/4 … pixels, together less than two.
        let radius = OUTER / 2 + 2 * self.blocks + 1 + 2 + OUTER / 2;
        Upscale { receptive_field: reach(radius), ..picture(1 << self.doublings, self.channels) }.contract()
    }

    fn build(&self, w: &Scope<'_>, shapes: &Shapes) -> Result<()> {
        let image = image_input(w, "image", self.channels, shapes)?;
        w.trace().output("upscaled", &self.network(w, &image));
        Ok(())
    }

    /// Ignores the slopes of unused activations, and counters of training images.
    fn ignores(&self, name: &str) -> bool {
        name.ends_with(".num_batches_tracked") || name.ends_with(".block2.act.weight") || name == "convblock.act.weight"
    }

    fn presets() -> Vec<(&'static str, Self)> {
        let tiny = SwiftSrgan { channels: 3, filters: 8, blocks: 2, doublings: 2 };
        let published = SwiftSrgan { filters: 64, blocks: 16, ..tiny.clone() };
        vec![
            ("tiny", tiny.clone()),
            ("tiny-grey-x1", SwiftSrgan { channels: 1, doublings: 0, ..tiny }),
            ("swift-srgan-x2", SwiftSrgan { doublings: 1, ..published.clone() }),
            ("swift-srgan-x4", published),
        ]
    }
}

impl SwiftSrgan {
    /// `image`: `[batch, channels, height, width]`.
    fn network(&self, w: &Scope<'_>, image: &Value) -> Value {
        let first = separable(&w.at("initial.cnn"), image, self.filters, OUTER);
        let first = prelu(&w.at("initial.act"), &first);
        let mut x = first.clone();
        for number in 0..self.blocks {
            let w = w.at(format!("residual.{number}"));
            let y = prelu(&w.at("block1.act"), &self.normalised(&w.at("block1"), &x));
            x = self.normalised(&w.at("block2"), &y) + &x;
        }
        x = self.normalised(&w.at("convblock"), &x) + first;
        for number in 0..self.doublings {
            let w = w.at(format!("upsampler.{number}"));
            x = prelu(&w.at("act"), &separable(&w.at("conv"), &x, 4 * self.filters, 3).depth_to_space(2));
        }
        separable(&w.at("final_conv"), &x, self.channels, OUTER).tanh().offset(1.0).scale(0.5)
    }

    /// A separable convolution and a batch normalisation.
    fn normalised(&self, w: &Scope<'_>, x: &Value) -> Value {
        let x = Conv2d::depthwise(self.filters, [3, 3]).unbiased().apply(&w.at("cnn.depthwise"), x);
        let pointwise = Conv2d::new(self.filters, 1).unbiased();
        conv2d_batch_norm(pointwise, [&w.at("cnn.pointwise"), &w.at("bn")], &x, BATCH_NORM_EPSILON)
    }
}

/// A convolution of each channel, then one of each pixel.
fn separable(w: &Scope<'_>, x: &Value, filters: usize, kernel: usize) -> Value {
    let x = Conv2d::depthwise(channels(x), [kernel; 2]).apply(&w.at("depthwise"), x);
    conv2d(&w.at("pointwise"), &x, filters, 1)
}
