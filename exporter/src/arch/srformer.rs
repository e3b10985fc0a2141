//! SRFormer: SwinIR with attention to the blocks of larger windows, and a convolution in each MLP.
//!
//! Paper: <https://arxiv.org/abs/2303.09735>. Upstream: <https://github.com/HVision-NKU/SRFormer>,
//! `basicsr/archs/srformer_arch.py`. Reference: spandrel_extra_arches 0.2.0, `architectures/SRFormer`.

use super::reconstruction::{Residual, STAGES, Trunk, Upsampler};
use super::swin::{Frame, is_training_buffer, normalise};
use super::{Architecture, Keys, Mismatch};
use crate::nn::{Grid, Order, Scope, convolved_mlp};
use crate::{Contract, Result, Shapes};
use serde::Serialize;
use tileforge_graph::Value;

/// Hyperparameters.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct SrFormer {
    channels: usize,
    /// Width of the tokens.
    dim: usize,
    /// Blocks of each group.
    depths: Vec<usize>,
    /// Attention heads in each group.
    heads: Vec<usize>,
    window: usize,
    /// Whether every second block has rolled windows. A network that was trained on images of one window has none.
    rolled: bool,
    /// Width between the layers of an MLP.
    hidden: usize,
    /// Whether queries, keys and values have a bias.
    biased: bool,
    /// Whether tokens are normalised before the first group.
    normalised: bool,
    residual: Residual,
    upsampler: Upsampler,
}

/// Side of the convolution in an MLP.
const KERNEL: usize = 5;
const FIRST: &str = "layers.0.residual_group.blocks.0.attn";

impl Architecture for SrFormer {
    const NAME: &'static str = "SRFormer";

    const SIGNATURES: &'static [&'static [&'static str]] = &[&[
        "conv_first.weight",
        "layers.0.residual_group.blocks.0.norm1.weight",
        "layers.0.residual_group.blocks.0.attn.aligned_relative_position_index",
        "layers.0.residual_group.blocks.0.mlp.fc1.bias",
    ]];

    fn detect(keys: &Keys<'_>) -> Result<Self, Mismatch> {
        if keys.contains("absolute_pos_embed") {
            return Err(Mismatch::new("embeddings of absolute positions (`absolute_pos_embed`) are not supported"));
        }
        let [dim, channels, ..] = keys.dims::<4>("conv_first.weight")?;
        let groups = keys.count("layers.");
        let blocks = |group: usize| format!("layers.{group}.residual_group.blocks.");
        let table = |group: usize| keys.bias_table(&format!("{}0.attn.relative_position_bias_table", blocks(group)));
        let tables = (0..groups).map(table).collect::<Result<Vec<_>, _>>()?;
        if !dim.is_multiple_of(4) {
            return Err(Mismatch::new(format!("expected a width that is a multiple of 4, found {dim}")));
        }
        Ok(SrFormer {
            channels,
            dim,
            depths: (0..groups).map(|group| keys.count(&blocks(group))).collect(),
            heads: tables.iter().map(|(_, heads)| *heads).collect(),
            // The table is of blocks of 2 × 2 pixels.
            window: 2 * keys.bias_table(&format!("{FIRST}.relative_position_bias_table"))?.0,
            rolled: keys.mask_of_second_block()?,
            hidden: keys.dims::<2>("layers.0.residual_group.blocks.0.mlp.fc1.weight")?[0],
            biased: keys.contains(&format!("{FIRST}.q.bias")),
            normalised: keys.contains("patch_embed.norm.weight"),
            residual: Residual::detect(keys),
            upsampler: Upsampler::detect(keys, channels)?,
        })
    }

    fn contract(&self) -> Contract {
        self.frame().contract()
    }

    fn build(&self, w: &Scope<'_>, shapes: &Shapes) -> Result<()> {
        let area = self.window * self.window;
        w.at(FIRST).marker("aligned_relative_position_index", &[area, area / 4]);
        self.frame().build(w, shapes, |image, grid| self.network(w, image, grid))
    }

    fn ignores(&self, name: &str) -> bool {
        is_training_buffer(name)
    }

    fn notes(&self) -> Vec<(&'static str, String)> {
        vec![("rolled", self.rolled.to_string())]
    }

    fn example_shapes(&self) -> Shapes {
        self.frame().example_shapes()
    }

    fn presets() -> Vec<(&'static str, Self)> {
        let tiny = SrFormer {
            channels: 3,
            dim: 8,
            depths: vec![2, 1],
            heads: vec![2, 4],
            window: 4,
            rolled: true,
            hidden: 16,
            biased: true,
            normalised: true,
            residual: Residual::One,
            upsampler: Upsampler::shuffle(8, &[2]),
        };
        let bare = SrFormer { rolled: false, biased: false, normalised: false, ..tiny.clone() };
        let published = SrFormer {
            dim: 180,
            depths: vec![6; 6],
            heads: vec![6; 6],
            window: 24,
            hidden: 360,
            upsampler: Upsampler::shuffle(64, &[2, 2]),
            ..tiny.clone()
        };
        let light = SrFormer {
            dim: 60,
            depths: vec![6; 4],
            heads: vec![6; 4],
            window: 16,
            hidden: 120,
            upsampler: Upsampler::PixelShuffleDirect { factor: 4 },
            ..published.clone()
        };
        let nearest = |filters| Upsampler::NearestConv { filters, doublings: 2 };
        vec![
            ("tiny", tiny.clone()),
            ("tiny-bare-x3", SrFormer { upsampler: Upsampler::shuffle(4, &[3]), ..bare }),
            (
                "tiny-odd-direct-x4",
                SrFormer { window: 6, upsampler: Upsampler::PixelShuffleDirect { factor: 4 }, ..tiny.clone() },
            ),
            ("tiny-nearest-x4", SrFormer { residual: Residual::Three, upsampler: nearest(4), ..tiny.clone() }),
            ("tiny-grey-x1", SrFormer { channels: 1, upsampler: Upsampler::None, ..tiny }),
            ("srformer-x2", SrFormer { window: 22, upsampler: Upsampler::shuffle(64, &[2]), ..published.clone() }),
            ("srformer-x4", published.clone()),
            ("srformer-real-x4", SrFormer { upsampler: nearest(64), ..published }),
            ("srformer-light-x2", SrFormer { upsampler: Upsampler::PixelShuffleDirect { factor: 2 }, ..light.clone() }),
            ("srformer-light-x4", light),
        ]
    }
}

impl SrFormer {
    fn frame(&self) -> Frame {
        Frame::new(self.channels, self.upsampler.factor(), self.window)
    }

    fn network(&self, w: &Scope<'_>, image: &Value, grid: &Grid) -> Value {
        let trunk = Trunk {
            channels: self.channels,
            dim: self.dim,
            first: "conv_first",
            projection: false,
            norm: self.normalised.then_some("patch_embed.norm"),
            last_norm: "norm",
            groups: self.depths.len(),
            residual: self.residual,
            upsampler: &self.upsampler,
            stages: STAGES,
        };
        trunk.apply(w, image, grid, |w, x, group| {
            let block = |x, number: usize| {
                let roll = [if self.rolled && number % 2 == 1 { self.window / 2 } else { 0 }; 2];
                self.block(&w.at(format!("residual_group.blocks.{number}")), &x, grid, self.heads[group], roll)
            };
            (0..self.depths[group]).fold(x.clone(), block)
        })
    }

    /// y = x + permuted window attention, then y + MLP. Tokens are in raster order.
    fn block(&self, w: &Scope<'_>, x: &Value, grid: &Grid, heads: usize, roll: [usize; 2]) -> Value {
        let order = Order::Blocks(roll);
        let windows = grid.reorder(&normalise(&w.at("norm1"), x), Order::Raster, order);
        let attended = grid.permuted_attention(&w.at("attn"), &windows, heads, roll, self.biased);
        let x = x + grid.reorder(&attended, order, Order::Raster);
        &x + convolved_mlp(&w.at("mlp"), &normalise(&w.at("norm2"), &x), self.hidden, KERNEL, grid)
    }
}
