//! DITN: channels that attend to each other in small patches, and large kernels over the whole image.
//!
//! Paper: <https://arxiv.org/abs/2308.02794>. Upstream: <https://github.com/yongliuy/DITN>,
//! `models/DITN_Real.py`. Reference: spandrel 0.4.2, `architectures/DITN`.

use super::{Architecture, Keys, Mismatch, picture, reach};
use crate::nn::{
    Conv2d, Mirror, Scope, attention_of_channels, conv2d, crop_to_image, gated_depthwise, image_input, pad_to_multiple,
    query_key_value_of_image, split_channels,
};
use crate::{Contract, Result, Shapes};
use serde::Serialize;
use tileforge_contract::{Precision, Upscale};
use tileforge_graph::Value;

/// Hyperparameters.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Ditn {
    /// Width of the network.
    filters: usize,
    groups: usize,
    /// Blocks of each group that work in patches.
    patch_blocks: usize,
    /// Blocks of each group that work on the whole image.
    image_blocks: usize,
    /// Width between the layers at the end of a block.
    hidden: usize,
    /// Side of the patches.
    patch: usize,
    /// Whether the layers of a block's gate and after its attention have biases.
    biased: bool,
    scale: usize,
}

/// Input and output are RGB.
const CHANNELS: usize = 3;
/// No tensor shows the side of the patches. Upstream's is 8, and the reference knows no other.
const PATCH: usize = 8;
/// Sides of the two large kernels, and the distance between the taps of the second.
const KERNELS: [usize; 2] = [5, 7];
const DILATION: usize = 3;

impl Architecture for Ditn {
    const NAME: &'static str = "DITN";

    const SIGNATURES: &'static [&'static [&'static str]] = &[&[
        "sft.weight",
        "UFONE.0.ITLs.0.attn.temperature",
        "UFONE.0.ITLs.0.attn.qkv.weight",
        "UFONE.0.ITLs.0.ffn.project_in.weight",
        "UFONE.0.ITLs.0.ffn.dwconv.weight",
        "UFONE.0.ITLs.0.ffn.project_out.weight",
        "conv_after_body.weight",
        "upsample.0.weight",
    ]];

    fn detect(keys: &Keys<'_>) -> Result<Self, Mismatch> {
        let [filters, channels, ..] = keys.dims::<4>("sft.weight")?;
        if channels != CHANNELS {
            return Err(Mismatch::new(format!("expected {CHANNELS} channels, found {channels}")));
        }
        let patch = keys.setting("patch")?.unwrap_or(PATCH);
        // Larger patches than any image make no sense.
        if !(1..=1 << 12).contains(&patch) {
            return Err(Mismatch::new(format!("expected `patch` to be at least 1, and not above 4096, found {patch}")));
        }
        Ok(Ditn {
            filters,
            groups: keys.count("UFONE."),
            patch_blocks: keys.count("UFONE.0.ITLs."),
            image_blocks: keys.count("UFONE.0.SALs."),
            hidden: keys.dims::<4>("UFONE.0.ITLs.0.ffn.project_in.weight")?[0] / 2,
            patch,
            biased: keys.contains("UFONE.0.ITLs.0.attn.project_out.bias"),
            scale: keys.shuffle_scale("upsample.0.weight", CHANNELS)?,
        })
    }

    fn contract(&self) -> Contract {
        // All blocks in patches together reach no further than the patch. A block on the image has two large kernels
        // and one of side 3. Convolutions of side 3 are at the beginning, after the groups, and before the pixel shuffle.
        let block = KERNELS[0] / 2 + KERNELS[1] / 2 * DILATION + 1;
        let group = self.patch - 1 + self.image_blocks * block;
        Upscale {
            size_multiple: self.patch,
            receptive_field: reach(self.groups * group + 3),
            // Lengths of vectors and products of features overflow half precision.
            safe_precisions: vec![Precision::Fp32, Precision::Bf16],
            ..picture(self.scale, CHANNELS)
        }
        .contract()
    }

    fn build(&self, w: &Scope<'_>, shapes: &Shapes) -> Result<()> {
        shapes.fixed_image("image", CHANNELS)?;
        let image = image_input(w, "image", CHANNELS, shapes)?;
        let padded = pad_to_multiple(&image, self.patch, Mirror::Reflect)?;
        let upscaled = self.network(w, &padded);
        w.trace().output("upscaled", &crop_to_image(&upscaled, &image, self.patch, self.scale));
        Ok(())
    }

    fn notes(&self) -> Vec<(&'static str, String)> {
        vec![("patch", self.patch.to_string())]
    }

    /// An image of several patches.
    fn example_shapes(&self) -> Shapes {
        Shapes::of("image", &[1, CHANNELS, 2 * self.patch, 2 * self.patch])
    }

    fn presets() -> Vec<(&'static str, Self)> {
        let tiny = Ditn {
            filters: 8,
            groups: 1,
            patch_blocks: 1,
            image_blocks: 1,
            hidden: 16,
            patch: PATCH,
            biased: false,
            scale: 4,
        };
        let published = Ditn { filters: 60, patch_blocks: 4, image_blocks: 4, hidden: 120, ..tiny.clone() };
        vec![
            ("tiny", tiny.clone()),
            ("tiny-biased-x1", Ditn { groups: 2, patch: 4, biased: true, scale: 1, ..tiny }),
            ("ditn-real-x2", Ditn { scale: 2, ..published.clone() }),
            ("ditn-real-x3", Ditn { scale: 3, ..published.clone() }),
            ("ditn-real-x4", published),
        ]
    }
}

impl Ditn {
    /// `image`: `[batch, channels, height, width]`.
    fn network(&self, w: &Scope<'_>, image: &Value) -> Value {
        let shallow = conv2d(&w.at("sft"), image, self.filters, 3);
        let mut x = shallow.clone();
        for number in 0..self.groups {
            x = self.group(&w.at(format!("UFONE.{number}")), &x);
        }
        let deep = conv2d(&w.at("conv_after_body"), &x, self.filters, 3) + shallow;
        conv2d(&w.at("upsample.0"), &deep, CHANNELS * self.scale * self.scale, 3).depth_to_space(self.scale)
    }

    /// UFONE: blocks on patches, which are treated as separate images, then blocks on the whole image.
    fn group(&self, w: &Scope<'_>, x: &Value) -> Value {
        let [batch, filters, height, width] = x.fixed_dims().map(|size| size as i64);
        let side = self.patch as i64;
        let (rows, columns) = (height / side, width / side);
        let mut x = x.reshape(&[batch, filters, rows, side, columns, side]).transpose(&[0, 2, 4, 1, 3, 5]);
        x = x.reshape(&[-1, filters, side, side]);
        for number in 0..self.patch_blocks {
            x = self.block(&w.at(format!("ITLs.{number}")), &x, |w, x| self.channels_attend(&w.at("attn"), x));
        }
        x = x.reshape(&[batch, rows, columns, filters, side, side]).transpose(&[0, 3, 1, 4, 2, 5]);
        x = x.reshape(&[batch, filters, height, width]);
        for number in 0..self.image_blocks {
            x = self.block(&w.at(format!("SALs.{number}")), &x, |w, x| self.convolved(&w.at("SDA"), x));
        }
        x
    }

    /// y = x + a layer of tanh(x), then y + gated features of tanh(y).
    fn block(&self, w: &Scope<'_>, x: &Value, layer: impl FnOnce(&Scope<'_>, &Value) -> Value) -> Value {
        let x = layer(w, &conv2d(&w.at("conv1"), &x.tanh(), self.filters, 1)) + x;
        gated_depthwise(&w.at("ffn"), &conv2d(&w.at("conv2"), &x.tanh(), self.filters, 1), self.hidden, self.biased) + x
    }

    /// ISA: attention between channels over the pixels of a patch.
    fn channels_attend(&self, w: &Scope<'_>, x: &Value) -> Value {
        let rows = query_key_value_of_image(&w.at("qkv"), x, ["weight", "bias"], true);
        let attended = attention_of_channels(rows.each_ref(), 1, &w.tensor("temperature", [1, 1, 1]));
        let projection = Conv2d::new(self.filters, 1);
        let projection = if self.biased { projection } else { projection.unbiased() };
        projection.apply(&w.at("project_out"), &attended)
    }

    /// SDA: features times large kernels of others, and a number for each channel, which folds into the last layer.
    fn convolved(&self, w: &Scope<'_>, x: &Value) -> Value {
        let filters = self.filters;
        let wide = conv2d(&w.at("proj_first.0"), x, 2 * filters, 1);
        let [around, features] = split_channels(&wide, [filters; 2]);
        let around = Conv2d::depthwise(filters, [KERNELS[0]; 2]).apply(&w.at("DConvs.0"), &around);
        let around = Conv2d::depthwise(filters, [KERNELS[1]; 2]).dilated(DILATION).apply(&w.at("DConvs.1"), &around);
        let around = conv2d(&w.at("DConvs.2"), &around, filters, 1);
        let last = Conv2d::new(filters, 1);
        last.apply_scaled(&w.at("proj_last.0"), &(features * around), || w.stored("scale", &[1, filters, 1, 1]))
    }
}
