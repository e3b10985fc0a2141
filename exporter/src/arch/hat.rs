//! HAT: a hybrid of window attention, channel attention and attention to overlapping windows.
//!
//! Paper: <https://arxiv.org/abs/2205.04437>. Upstream: <https://github.com/XPixelGroup/HAT>, `hat/archs/hat_arch.py`.
//! Reference: spandrel 0.4.2, `architectures/HAT`.

use super::swin::{Frame, is_training_buffer, normalise};
use super::{Architecture, Keys, Mismatch};
use crate::nn::{Grid, Order, Scope, channel_weights, conv2d, mlp, shuffle_upsampling};
use crate::{Contract, Result, Shapes};
use serde::Serialize;
use tileforge_graph::Value;

/// Hyperparameters.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Hat {
    channels: usize,
    /// Width of the tokens.
    dim: usize,
    /// Hybrid blocks of each group.
    depths: Vec<usize>,
    /// Attention heads in each group.
    heads: Vec<usize>,
    window: usize,
    /// Side of the overlapping windows.
    overlapping: usize,
    /// Filters between the two convolutions beside the attention.
    compressed: usize,
    /// Channels between the two layers of the channel attention.
    squeezed: usize,
    /// Width between the layers of an MLP.
    hidden: usize,
    /// Whether queries, keys and values have a bias.
    biased: bool,
    /// Whether tokens are normalised before the first group.
    normalised: bool,
    /// Whether each group ends with a convolution, and one follows the last group.
    convolved: bool,
    /// Features before the upsampling.
    filters: usize,
    factors: Vec<usize>,
}

/// Factor of the convolutions' result before it is added to the attention's. No tensor determines it; every published
/// network has this one.
const CONV_SCALE: f32 = 0.01;

impl Architecture for Hat {
    const NAME: &'static str = "HAT";

    const SIGNATURES: &'static [&'static [&'static str]] = &[&[
        "conv_first.weight",
        "layers.0.residual_group.blocks.0.norm1.weight",
        "layers.0.residual_group.blocks.0.conv_block.cab.0.weight",
        "layers.0.residual_group.blocks.0.conv_block.cab.3.attention.1.weight",
        "layers.0.residual_group.overlap_attn.relative_position_bias_table",
        "conv_last.weight",
    ]];

    fn detect(keys: &Keys<'_>) -> Result<Self, Mismatch> {
        let [dim, channels, ..] = keys.dims::<4>("conv_first.weight")?;
        let (groups, group) = (keys.count("layers."), "layers.0.residual_group");
        let blocks = |group: usize| format!("layers.{group}.residual_group.blocks.");
        let table = |group: usize| {
            keys.dims::<2>(&format!("layers.{group}.residual_group.overlap_attn.relative_position_bias_table"))
        };
        let (window, _) = keys.bias_table(&format!("{group}.blocks.0.attn.relative_position_bias_table"))?;
        let [distances, _] = table(0)?;
        // The table has a row for each of (window + overlapping − 1)² distances. The border is the same on all sides.
        let overlapping = (distances.isqrt() + 1).saturating_sub(window);
        if distances.isqrt().pow(2) != distances || overlapping < window || !(overlapping - window).is_multiple_of(2) {
            let expected = format!("(window + overlapping window − 1)² rows for a window of {window}");
            return Err(Mismatch::new(format!(
                "expected `overlap_attn.relative_position_bias_table` to have {expected}, found {distances}"
            )));
        }
        Ok(Hat {
            channels,
            dim,
            depths: (0..groups).map(|group| keys.count(&blocks(group))).collect(),
            heads: (0..groups).map(|group| Ok(table(group)?[1])).collect::<Result<_, Mismatch>>()?,
            window,
            overlapping,
            compressed: keys.dims::<4>(&format!("{group}.blocks.0.conv_block.cab.0.weight"))?[0],
            squeezed: keys.dims::<4>(&format!("{group}.blocks.0.conv_block.cab.3.attention.1.weight"))?[0],
            hidden: keys.dims::<2>(&format!("{group}.blocks.0.mlp.fc1.weight"))?[0],
            biased: keys.contains(&format!("{group}.blocks.0.attn.qkv.bias")),
            normalised: keys.contains("patch_embed.norm.weight"),
            convolved: keys.contains("conv_after_body.weight"),
            filters: keys.dims::<4>("conv_last.weight")?[1],
            factors: keys.shuffle_factors("upsample.")?,
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
        let tiny = Hat {
            channels: 3,
            dim: 8,
            depths: vec![2],
            heads: vec![2],
            window: 4,
            overlapping: 6,
            compressed: 4,
            squeezed: 2,
            hidden: 16,
            biased: true,
            normalised: true,
            convolved: true,
            filters: 8,
            factors: vec![2],
        };
        let published = Hat {
            dim: 180,
            depths: vec![6; 6],
            heads: vec![6; 6],
            window: 16,
            overlapping: 24,
            compressed: 60,
            squeezed: 6,
            hidden: 360,
            filters: 64,
            factors: vec![2, 2],
            ..tiny.clone()
        };
        let small = Hat { dim: 144, compressed: 6, squeezed: 6, hidden: 288, ..published.clone() };
        let bare = Hat { biased: false, normalised: false, convolved: false, ..tiny.clone() };
        vec![
            ("tiny", tiny.clone()),
            ("tiny-bare-x3", Hat { factors: vec![3], ..bare }),
            (
                "tiny-grey-x4",
                Hat { channels: 1, depths: vec![1, 2], heads: vec![2, 4], overlapping: 8, factors: vec![2, 2], ..tiny },
            ),
            ("hat-s-x2", Hat { factors: vec![2], ..small.clone() }),
            ("hat-s-x4", small),
            ("hat-x4", published.clone()),
            ("hat-l-x4", Hat { depths: vec![6; 12], heads: vec![6; 12], ..published }),
        ]
    }
}

impl Hat {
    fn frame(&self) -> Frame {
        Frame::new(self.channels, self.factors.iter().product(), self.window)
    }

    fn network(&self, w: &Scope<'_>, image: &Value, grid: &Grid) -> Value {
        let shallow = conv2d(&w.at("conv_first"), image, self.dim, 3);
        let mut tokens = grid.tokens(&shallow);
        if self.normalised {
            tokens = normalise(&w.at("patch_embed.norm"), &tokens);
        }
        for group in 0..self.depths.len() {
            tokens = self.group(&w.at(format!("layers.{group}")), &tokens, grid, group);
        }
        let deep = grid.image(&normalise(&w.at("norm"), &tokens));
        let deep = if self.convolved { conv2d(&w.at("conv_after_body"), &deep, self.dim, 3) } else { deep };
        shuffle_upsampling([w, &w.at("upsample")], &(deep + shallow), self.filters, &self.factors, self.channels)
    }

    /// RHAG: `x` + convolution of hybrid blocks and one block of overlapping windows. Tokens are always in raster
    /// order.
    fn group(&self, w: &Scope<'_>, x: &Value, grid: &Grid, group: usize) -> Value {
        let inner = w.at("residual_group");
        let mut y = x.clone();
        for number in 0..self.depths[group] {
            let roll = [if number % 2 == 0 { 0 } else { self.window / 2 }; 2];
            y = self.hybrid_block(&inner.at(format!("blocks.{number}")), &y, grid, self.heads[group], roll);
        }
        y = self.overlapping_block(&inner.at("overlap_attn"), &y, grid, self.heads[group]);
        if self.convolved {
            y = grid.tokens(&conv2d(&w.at("conv"), &grid.image(&y), self.dim, 3));
        }
        y + x
    }

    /// HAB: y = x + window attention + a small part of parallel convolutions, then y + MLP.
    fn hybrid_block(&self, w: &Scope<'_>, x: &Value, grid: &Grid, heads: usize, roll: [usize; 2]) -> Value {
        let normalised = normalise(&w.at("norm1"), x);
        let convolved = grid.tokens(&self.channel_attention_block(&w.at("conv_block.cab"), &grid.image(&normalised)));
        let windows = grid.reorder(&normalised, Order::Raster, Order::Windows(roll));
        let attended = grid.attention(&w.at("attn"), &windows, heads, roll, self.biased);
        let x = x + grid.reorder(&attended, Order::Windows(roll), Order::Raster) + convolved;
        &x + mlp(&w.at("mlp"), &normalise(&w.at("norm2"), &x), self.hidden)
    }

    /// OCAB: y = x + attention to overlapping windows, then y + MLP.
    fn overlapping_block(&self, w: &Scope<'_>, x: &Value, grid: &Grid, heads: usize) -> Value {
        let x = grid.overlapping_attention(w, &normalise(&w.at("norm1"), x), heads, self.overlapping, self.biased) + x;
        &x + mlp(&w.at("mlp"), &normalise(&w.at("norm2"), &x), self.hidden)
    }

    /// CAB: two convolutions, whose channels are weighted by a function of all channels' means, times [`CONV_SCALE`].
    fn channel_attention_block(&self, w: &Scope<'_>, x: &Value) -> Value {
        let x = conv2d(&w.at("2"), &conv2d(&w.at("0"), x, self.compressed, 3).gelu(), self.dim, 3);
        let weights = channel_weights([&w.at("3.attention.1"), &w.at("3.attention.3")], &x, self.squeezed);
        // The scale multiplies one number for each channel, not each pixel.
        &x * weights.scale(CONV_SCALE)
    }
}
