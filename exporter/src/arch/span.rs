//! SPAN: six blocks whose attention has no parameters, the winner of the NTIRE 2024 challenge on efficient
//! super-resolution.
//!
//! Paper: <https://arxiv.org/abs/2311.12770>. Upstream: <https://github.com/hongyuanyu/SPAN>,
//! `basicsr/archs/span_arch.py`. Reference: spandrel 0.4.2, `architectures/SPAN`.

use super::{Architecture, Keys, Mismatch, reach};
use crate::nn::{Scope, conv2d, conv3xc, image_input, is_fused_copy};
use crate::{Contract, Result, Shapes};
use serde::Serialize;
use tileforge_contract::{Padding, Precision, Upscale};
use tileforge_graph::{Constant, Value};

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
            only_size: None,
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

    fn ignores(&self, name: &str) -> bool {
        is_fused_copy(name)
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
        let shallow = conv3xc(&w.at("conv_1"), &image, self.filters);
        let (first, mut inner) = self.block(&w.at("block_1"), &shallow);
        let mut deep = first.clone();
        for number in 2..=BLOCKS {
            (deep, inner) = self.block(&w.at(format!("block_{number}")), &deep);
        }
        let deep = conv3xc(&w.at("conv_2"), &deep, self.filters);
        let joined = conv2d(&w.at("conv_cat"), &shallow.concat(&[&deep, &first, &inner], 1), self.filters, 1);
        conv2d(&w.at("upsampler.0"), &joined, self.channels * self.scale * self.scale, 3).depth_to_space(self.scale)
    }

    /// Three convolutions of x, whose result also gives the attention on its sum with x; and the inner value after the
    /// first convolution.
    ///
    /// The inner value is taken after the activation. The paper's figure does not show that: upstream activates in
    /// place.
    fn block(&self, w: &Scope<'_>, x: &Value) -> (Value, Value) {
        let inner = conv3xc(&w.at("c1_r"), x, self.filters).silu();
        let y = conv3xc(&w.at("c2_r"), &inner, self.filters).silu();
        let y = conv3xc(&w.at("c3_r"), &y, self.filters);
        // An odd function of y, so its product with y is even: strong features of either sign pass.
        let attention = y.sigmoid().offset(-0.5);
        ((y + x) * attention, inner)
    }
}
