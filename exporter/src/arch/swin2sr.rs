//! Swin2SR: SwinIR with the attention of the second Swin Transformer, for compressed pictures as well.
//!
//! Paper: <https://arxiv.org/abs/2209.11345>. Upstream: <https://github.com/mv-lab/swin2sr>,
//! `models/network_swin2sr.py`. Reference: spandrel 0.4.2, `architectures/Swin2SR`.

use super::reconstruction::{Residual, STAGES, Trunk, Upsampler};
use super::swin::{Frame, factor_of_logit, is_training_buffer, normalise};
use super::{Architecture, Keys, Mismatch};
use crate::nn::{Grid, Order, Scope, Scores, continuous_biases, linear, mlp, unit};
use crate::{Contract, Result, Shapes};
use serde::Serialize;
use tileforge_graph::{Value, Weight};

/// Hyperparameters.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Swin2Sr {
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
    /// Width of the networks of position biases.
    positions: usize,
    /// Whether queries and values have a bias.
    biased: bool,
    /// Whether tokens are normalised before the first group.
    normalised: bool,
    residual: Residual,
    upsampler: Upsampler,
}

/// Only the networks for JPEG artifacts have this window and compute in 0 … 255, as SwinIR's.
const JPEG_WINDOW: usize = 7;
const FIRST: &str = "layers.0.residual_group.blocks.0.attn";

impl Architecture for Swin2Sr {
    const NAME: &'static str = "Swin2SR";

    const SIGNATURES: &'static [&'static [&'static str]] = &[&[
        "conv_first.weight",
        "patch_embed.proj.weight",
        "layers.0.residual_group.blocks.0.norm1.weight",
        "layers.0.residual_group.blocks.0.mlp.fc1.bias",
        "layers.0.residual_group.blocks.0.attn.logit_scale",
        "layers.0.residual_group.blocks.0.attn.relative_position_index",
    ]];

    fn detect(keys: &Keys<'_>) -> Result<Self, Mismatch> {
        for (name, what) in [
            ("absolute_pos_embed", "embeddings of absolute positions"),
            ("conv_bicubic.weight", "the upsampler `pixelshuffle_aux`"),
            ("conv_after_body_hf.weight", "the upsampler `pixelshuffle_hf`"),
        ] {
            if keys.contains(name) {
                return Err(Mismatch::new(format!("{what} (`{name}`): not supported")));
            }
        }
        let [dim, channels, ..] = keys.dims::<4>("conv_first.weight")?;
        let [_, _, patch, _] = keys.dims::<4>("patch_embed.proj.weight")?;
        if patch != 1 {
            return Err(Mismatch::new(format!("expected patches of one pixel, found {patch}")));
        }
        let [area, _] = keys.dims::<2>(&format!("{FIRST}.relative_position_index"))?;
        let window = area.isqrt();
        if window * window != area || window < 2 {
            return Err(Mismatch::new(format!(
                "expected square windows of at least 2 × 2 pixels, found {area} pixels"
            )));
        }
        let groups = keys.count("layers.");
        let blocks = |group: usize| format!("layers.{group}.residual_group.blocks.");
        let heads = |group| Ok(keys.dims::<3>(&format!("{}0.attn.logit_scale", blocks(group)))?[0]);
        Ok(Swin2Sr {
            channels,
            dim,
            depths: (0..groups).map(|group| keys.count(&blocks(group))).collect(),
            heads: (0..groups).map(heads).collect::<Result<_, Mismatch>>()?,
            window,
            rolled: keys.mask_of_second_block()?,
            hidden: keys.dims::<2>("layers.0.residual_group.blocks.0.mlp.fc1.weight")?[0],
            positions: keys.dims::<2>(&format!("{FIRST}.cpb_mlp.0.weight"))?[0],
            biased: keys.contains(&format!("{FIRST}.q_bias")),
            normalised: keys.contains("patch_embed.norm.weight"),
            residual: Residual::detect(keys),
            upsampler: Upsampler::detect(keys, channels)?,
        })
    }

    fn contract(&self) -> Contract {
        self.frame().contract()
    }

    fn build(&self, w: &Scope<'_>, shapes: &Shapes) -> Result<()> {
        w.at(FIRST).marker("relative_position_index", &[self.window * self.window; 2]);
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
        let tiny = Swin2Sr {
            channels: 3,
            dim: 8,
            depths: vec![2, 1],
            heads: vec![2, 4],
            window: 4,
            rolled: true,
            hidden: 16,
            positions: 6,
            biased: true,
            normalised: true,
            residual: Residual::One,
            upsampler: Upsampler::shuffle(8, &[2]),
        };
        let bare = Swin2Sr { rolled: false, biased: false, normalised: false, ..tiny.clone() };
        let published = Swin2Sr {
            dim: 180,
            depths: vec![6; 6],
            heads: vec![6; 6],
            window: 8,
            hidden: 360,
            positions: 512,
            upsampler: Upsampler::shuffle(64, &[2, 2]),
            ..tiny.clone()
        };
        let light = Swin2Sr { dim: 60, depths: vec![6; 4], heads: vec![6; 4], hidden: 120, ..published.clone() };
        let nearest = |filters| Upsampler::NearestConv { filters, doublings: 2 };
        vec![
            ("tiny", tiny.clone()),
            ("tiny-bare-x3", Swin2Sr { upsampler: Upsampler::shuffle(4, &[3]), ..bare }),
            ("tiny-direct-x4", Swin2Sr { upsampler: Upsampler::PixelShuffleDirect { factor: 4 }, ..tiny.clone() }),
            ("tiny-nearest-x4", Swin2Sr { residual: Residual::Three, upsampler: nearest(4), ..tiny.clone() }),
            ("tiny-jpeg", Swin2Sr { channels: 1, window: JPEG_WINDOW, upsampler: Upsampler::None, ..tiny }),
            ("swin2sr-x2", Swin2Sr { upsampler: Upsampler::shuffle(64, &[2]), ..published.clone() }),
            ("swin2sr-x4", published.clone()),
            ("swin2sr-real-x4", Swin2Sr { upsampler: nearest(64), ..published.clone() }),
            ("swin2sr-light-x2", Swin2Sr { upsampler: Upsampler::PixelShuffleDirect { factor: 2 }, ..light }),
            ("swin2sr-jpeg", Swin2Sr { channels: 1, window: JPEG_WINDOW, upsampler: Upsampler::None, ..published }),
        ]
    }
}

impl Swin2Sr {
    fn frame(&self) -> Frame {
        let range = if self.window == JPEG_WINDOW { 255.0 } else { 1.0 };
        Frame { range, ..Frame::new(self.channels, self.upsampler.factor(), self.window) }
    }

    fn network(&self, w: &Scope<'_>, image: &Value, grid: &Grid) -> Value {
        let trunk = Trunk {
            channels: self.channels,
            dim: self.dim,
            first: "conv_first",
            projection: true,
            norm: self.normalised.then_some("patch_embed.norm"),
            last_norm: "norm",
            groups: self.depths.len(),
            residual: self.residual,
            upsampler: &self.upsampler,
            stages: STAGES,
        };
        trunk.apply(w, image, grid, |w, x, group| {
            let (mut y, mut order) = (x.clone(), Order::Raster);
            for number in 0..self.depths[group] {
                let roll = [if self.rolled && number % 2 == 1 { self.window / 2 } else { 0 }; 2];
                y = grid.reorder(&y, order, Order::Windows(roll));
                order = Order::Windows(roll);
                y = self.block(&w.at(format!("residual_group.blocks.{number}")), &y, grid, self.heads[group], roll);
            }
            grid.reorder(&y, order, Order::Raster)
        })
    }

    /// y = x + norm(window attention), then y + norm(MLP).
    fn block(&self, w: &Scope<'_>, x: &Value, grid: &Grid, heads: usize, roll: [usize; 2]) -> Value {
        let x = x + normalise(&w.at("norm1"), &self.attention(&w.at("attn"), x, grid, heads, roll));
        &x + normalise(&w.at("norm2"), &mlp(&w.at("mlp"), &x, self.hidden))
    }

    /// Attention with cosines of queries and keys, times a learned factor of each head.
    fn attention(&self, w: &Scope<'_>, x: &Value, grid: &Grid, heads: usize, roll: [usize; 2]) -> Value {
        let (dim, names) = (self.dim, ["query", "key", "value"]);
        let weights = w.at("qkv").parts("weight", [3 * dim, dim], names);
        // Keys have no bias.
        let biases = self.biased.then(|| ["q_bias", "v_bias"].map(|name| w.tensor(name, [dim])));
        let bias = |i: usize| biases.as_ref().map(|biases| &biases[i]);
        let q = x.linear(&weights[0], bias(0));
        let k = x.linear(&weights[1], None);
        let v = x.linear(&weights[2], bias(1));
        let each = (dim / heads.max(1)) as i64;
        let [q, k] = [q, k].map(|x| unit(&x.reshape(&[-1, each])).reshape(&[-1, dim as i64]));
        let factor = w.each_number(("logit_scale", "logit_scale"), &[heads, 1, 1], &[heads, 1, 1], factor_of_logit);
        let bias = w.made("bias", self.position_bias(w, grid, heads));
        let scores = Scores { heads, bias: &bias, factor: Some(&factor) };
        linear(&w.at("proj"), &grid.attention_of([&q, &k, &v], roll, scores), dim)
    }

    /// The biases of the scores in a window, from a network of the distance of two pixels.
    ///
    /// Distances are on a logarithmic scale, in a buffer. The reference reads it from the checkpoint, where it may be
    /// rounded to half precision, so it is read here, too.
    fn position_bias(&self, w: &Scope<'_>, grid: &Grid, heads: usize) -> tileforge_graph::Result<Weight> {
        let side = 2 * self.window - 1;
        let distances = w.stored("relative_coords_table", &[1, side, side, 2])?.to_f32s()?;
        let distances: Vec<f64> = distances.into_iter().map(f64::from).collect();
        grid.position_bias_of(&continuous_biases(w, &distances, self.positions, heads)?)
    }
}
