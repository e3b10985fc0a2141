//! SwinIR: groups of Swin Transformer blocks between convolutions, for super-resolution, denoising and the removal of
//! JPEG artifacts.
//!
//! Paper: <https://arxiv.org/abs/2108.10257>. Upstream: <https://github.com/JingyunLiang/SwinIR>,
//! `models/network_swinir.py`. Reference: spandrel 0.4.2, `architectures/SwinIR`.

use super::reconstruction::{Residual, STAGES, Trunk, Upsampler};
use super::swin::{Frame, is_training_buffer};
use super::{Architecture, Keys, Mismatch};
use crate::nn::{Grid, Order, Scope, SwinBlock};
use crate::{Contract, Result, Shapes};
use serde::Serialize;
use tileforge_graph::Value;

/// Hyperparameters.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct SwinIr {
    channels: usize,
    /// Width of the tokens.
    dim: usize,
    /// Blocks of each group.
    depths: Vec<usize>,
    /// Attention heads in each group.
    heads: Vec<usize>,
    window: usize,
    /// Width between the layers of an MLP.
    hidden: usize,
    residual: Residual,
    upsampler: Upsampler,
    /// Side of the blocks of pixels that become channels at the input.
    unshuffle: usize,
}

/// Only the networks for JPEG artifacts have this window, because JPEG's blocks are 8 pixels wide. Only these networks
/// compute in 0 … 255.
const JPEG_WINDOW: usize = 7;

impl Architecture for SwinIr {
    const NAME: &'static str = "SwinIR";

    const SIGNATURES: &'static [&'static [&'static str]] = &[
        &[
            "conv_first.weight",
            "layers.0.residual_group.blocks.0.norm1.weight",
            "layers.0.residual_group.blocks.0.attn.qkv.bias",
            Residual::CONV,
        ],
        &[
            "conv_first.weight",
            "layers.0.residual_group.blocks.0.norm1.weight",
            "layers.0.residual_group.blocks.0.attn.qkv.bias",
            Residual::CONV_3,
        ],
        &[
            "conv_first.1.weight",
            "layers.0.residual_group.blocks.0.norm1.weight",
            "layers.0.residual_group.blocks.0.attn.qkv.bias",
            Residual::CONV,
        ],
        &[
            "conv_first.1.weight",
            "layers.0.residual_group.blocks.0.norm1.weight",
            "layers.0.residual_group.blocks.0.attn.qkv.bias",
            Residual::CONV_3,
        ],
    ];

    /// HAT has the same names and more.
    fn shapes_fit(keys: &Keys<'_>) -> bool {
        !keys.contains("layers.0.residual_group.overlap_attn.relative_position_bias_table")
    }

    fn detect(keys: &Keys<'_>) -> Result<Self, Mismatch> {
        let first = if keys.contains("conv_first.weight") { "conv_first.weight" } else { "conv_first.1.weight" };
        let [dim, inputs, ..] = keys.dims::<4>(first)?;
        let groups = keys.count("layers.");
        let blocks = |group: usize| format!("layers.{group}.residual_group.blocks.");
        let tables =
            (0..groups).map(|group| keys.bias_table(&format!("{}0.attn.relative_position_bias_table", blocks(group))));
        let tables = tables.collect::<Result<Vec<_>, _>>()?;
        // Nothing else determines the factor of a direct shuffle; all published networks are for RGB.
        let upsampler = Upsampler::detect(keys, 3)?;
        let channels = match upsampler {
            Upsampler::PixelShuffleDirect { .. } => 3,
            _ => keys.dims::<4>("conv_last.weight")?[0],
        };
        let unshuffle = (inputs / channels).isqrt();
        if channels * unshuffle * unshuffle != inputs || (unshuffle > 1) != (first != "conv_first.weight") {
            return Err(Mismatch::new(format!(
                "{inputs} channels at `{first}` are no pixel-unshuffled image of {channels} channels"
            )));
        }
        if upsampler.factor() % unshuffle != 0 {
            return Err(Mismatch::new(format!(
                "an upsampling by {} after an unshuffle by {unshuffle} is not supported",
                upsampler.factor()
            )));
        }
        Ok(SwinIr {
            channels,
            dim,
            depths: (0..groups).map(|group| keys.count(&blocks(group))).collect(),
            heads: tables.iter().map(|(_, heads)| *heads).collect(),
            window: keys.bias_table(&format!("{}0.attn.relative_position_bias_table", blocks(0)))?.0,
            hidden: keys.dims::<2>("layers.0.residual_group.blocks.0.mlp.fc1.weight")?[0],
            residual: Residual::detect(keys),
            upsampler,
            unshuffle,
        })
    }

    fn contract(&self) -> Contract {
        self.frame().contract()
    }

    fn build(&self, w: &Scope<'_>, shapes: &Shapes) -> Result<()> {
        self.frame().build(w, shapes, |image, grid| self.network(w, image, grid))
    }

    fn ignores(&self, name: &str) -> bool {
        is_training_buffer(name)
    }

    fn example_shapes(&self) -> Shapes {
        self.frame().example_shapes()
    }

    fn presets() -> Vec<(&'static str, Self)> {
        let shuffle = |factors: &[usize]| Upsampler::shuffle(64, factors);
        let nearest = |filters, doublings| Upsampler::NearestConv { filters, doublings };
        let tiny = SwinIr {
            channels: 3,
            dim: 8,
            depths: vec![2, 1],
            heads: vec![2, 4],
            window: 4,
            hidden: 16,
            residual: Residual::One,
            upsampler: Upsampler::shuffle(8, &[2]),
            unshuffle: 1,
        };
        let medium = SwinIr {
            dim: 180,
            depths: vec![6; 6],
            heads: vec![6; 6],
            window: 8,
            hidden: 360,
            upsampler: shuffle(&[2, 2]),
            ..tiny.clone()
        };
        let light = SwinIr { dim: 60, depths: vec![6; 4], heads: vec![6; 4], hidden: 120, ..medium.clone() };
        let large = SwinIr {
            dim: 240,
            depths: vec![6; 9],
            heads: vec![8; 9],
            hidden: 480,
            residual: Residual::Three,
            upsampler: nearest(64, 2),
            ..medium.clone()
        };
        let jpeg = SwinIr { channels: 1, window: JPEG_WINDOW, upsampler: Upsampler::None, ..medium.clone() };
        vec![
            ("tiny", tiny.clone()),
            ("tiny-x3", SwinIr { upsampler: Upsampler::shuffle(4, &[3]), ..tiny.clone() }),
            ("tiny-direct-x4", SwinIr { upsampler: Upsampler::PixelShuffleDirect { factor: 4 }, ..tiny.clone() }),
            ("tiny-nearest-x8", SwinIr { upsampler: nearest(4, 3), residual: Residual::Three, ..tiny.clone() }),
            ("tiny-unshuffle-x1", SwinIr { upsampler: nearest(4, 1), unshuffle: 2, ..tiny.clone() }),
            ("tiny-denoise", SwinIr { upsampler: Upsampler::None, ..tiny.clone() }),
            ("tiny-jpeg", SwinIr { channels: 1, window: JPEG_WINDOW, upsampler: Upsampler::None, ..tiny }),
            ("swinir-s-x2", SwinIr { upsampler: Upsampler::PixelShuffleDirect { factor: 2 }, ..light.clone() }),
            ("swinir-s-x4", SwinIr { upsampler: Upsampler::PixelShuffleDirect { factor: 4 }, ..light }),
            ("swinir-m-x2", SwinIr { upsampler: shuffle(&[2]), ..medium.clone() }),
            ("swinir-m-x4", medium.clone()),
            ("swinir-m-real-x4", SwinIr { upsampler: nearest(64, 2), ..medium.clone() }),
            ("swinir-l-real-x4", large),
            ("swinir-m-denoise", SwinIr { upsampler: Upsampler::None, ..medium }),
            ("swinir-m-jpeg", jpeg),
        ]
    }
}

impl SwinIr {
    fn frame(&self) -> Frame {
        Frame {
            unshuffle: self.unshuffle,
            range: if self.window == JPEG_WINDOW { 255.0 } else { 1.0 },
            ..Frame::new(self.channels, self.upsampler.factor() / self.unshuffle, self.window)
        }
    }

    fn network(&self, w: &Scope<'_>, image: &Value, grid: &Grid) -> Value {
        let trunk = Trunk {
            channels: self.channels,
            dim: self.dim,
            first: if self.unshuffle > 1 { "conv_first.1" } else { "conv_first" },
            projection: false,
            norm: Some("patch_embed.norm"),
            last_norm: "norm",
            groups: self.depths.len(),
            residual: self.residual,
            upsampler: &self.upsampler,
            stages: STAGES,
        };
        trunk.apply(w, image, grid, |w, x, group| self.blocks(w, x, grid, group))
    }

    /// The blocks of an RSTB. Every second block has rolled windows. Input and output are in raster order.
    fn blocks(&self, w: &Scope<'_>, x: &Value, grid: &Grid, group: usize) -> Value {
        let (mut y, mut order) = (x.clone(), Order::Raster);
        for number in 0..self.depths[group] {
            let roll = [if number % 2 == 0 { 0 } else { self.window / 2 }; 2];
            y = grid.reorder(&y, order, Order::Windows(roll));
            order = Order::Windows(roll);
            let block = SwinBlock { heads: self.heads[group], hidden: self.hidden, roll, biased: true };
            y = block.apply(&w.at(format!("residual_group.blocks.{number}")), &y, grid);
        }
        grid.reorder(&y, order, Order::Raster)
    }
}
