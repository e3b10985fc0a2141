//! CRAFT: attention in rectangular windows, refined by the features that max pooling finds.
//!
//! Paper: <https://arxiv.org/abs/2308.05022>. Upstream: <https://github.com/AVC2-UESTC/CRAFT-SR>,
//! `models/CRAFT.py`. Reference: spandrel 0.4.2, `architectures/CRAFT`.

use super::swin::{Frame, normalise};
use super::{Architecture, Keys, Mismatch};
use crate::nn::{
    Conv2d, Grid, LAYER_NORM_EPSILON, Rectangles, Scope, attention_of_channels, conv2d, conv2d_unbiased,
    gated_depthwise, layer_norm_of_channels, linear, mlp, query_key_value, split_channels,
};
use crate::{Contract, Error, Result, Shapes};
use serde::Serialize;
use tileforge_contract::Upscale;
use tileforge_graph::Value;

/// Hyperparameters.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Craft {
    channels: usize,
    /// Width of the network.
    dim: usize,
    /// Blocks of each group.
    depths: Vec<usize>,
    /// Attention heads in each group.
    heads: Vec<usize>,
    /// Height and width of the first half's windows.
    split: [usize; 2],
    /// Width between the layers of an MLP.
    hidden: usize,
    /// Width between the layers of a gate.
    gated: usize,
    /// Whether queries, keys and values of windows have a bias.
    biased: bool,
    /// Whether there is a convolution after the groups.
    convolved: bool,
    scale: usize,
}

/// Images are padded to the next larger multiple of this, even if their size is a multiple already. No tensor shows
/// it; upstream has no other value.
const MULTIPLE: usize = 16;
/// The buffers that show the windows, for the first half.
const BIASES: &str = "biases_h";
const INDEX: &str = "relative_position_index_h";

impl Architecture for Craft {
    const NAME: &'static str = "CRAFT";

    const SIGNATURES: &'static [&'static [&'static str]] = &[&[
        "conv_first.weight",
        "layers.0.residual_group.srwa_blocks.0.norm1.weight",
        "layers.0.residual_group.srwa_blocks.0.mlp.fc1.weight",
        "layers.0.residual_group.hf_blocks.0.attn.temperature",
        "layers.0.residual_group.hf_blocks.0.ffn.project_in.weight",
        BIASES,
        INDEX,
        "upsample.0.weight",
    ]];

    fn detect(keys: &Keys<'_>) -> Result<Self, Mismatch> {
        let [dim, channels, ..] = keys.dims::<4>("conv_first.weight")?;
        let groups = keys.count("layers.");
        let blocks = |group: usize| format!("layers.{group}.residual_group.hf_blocks.");
        let heads = |group| Ok(keys.dims::<3>(&format!("{}0.attn.temperature", blocks(group)))?[0]);
        let heads = (0..groups).map(heads).collect::<Result<Vec<usize>, Mismatch>>()?;
        let fits = |heads: &usize| heads / 2 > 0 && dim.is_multiple_of(*heads) && (dim / 2).is_multiple_of(heads / 2);
        if let Some(heads) = heads.iter().find(|heads| !fits(heads)) {
            return Err(Mismatch::new(format!("{dim} channels do not divide into two halves of {heads} heads")));
        }
        let split = keys.rectangle_of(BIASES, INDEX)?;
        if let Some(side) = split.iter().find(|side| !MULTIPLE.is_multiple_of(**side)) {
            return Err(Mismatch::new(format!("expected sides of windows that divide {MULTIPLE}, found {side}")));
        }
        Ok(Craft {
            channels,
            dim,
            depths: (0..groups).map(|group| keys.count(&blocks(group))).collect(),
            heads,
            split,
            hidden: keys.dims::<2>("layers.0.residual_group.srwa_blocks.0.mlp.fc1.weight")?[0],
            gated: keys.dims::<4>("layers.0.residual_group.hf_blocks.0.ffn.project_in.weight")?[0] / 2,
            biased: keys.contains("layers.0.residual_group.srwa_blocks.0.qkv.bias"),
            convolved: keys.contains("conv_after_body.weight"),
            scale: keys.shuffle_scale("upsample.0.weight", channels)?,
        })
    }

    fn contract(&self) -> Contract {
        Upscale { size_minimum: MULTIPLE / 2, ..self.frame().upscale() }.contract()
    }

    fn build(&self, w: &Scope<'_>, shapes: &Shapes) -> Result<()> {
        let [.., height, width] = shapes.fixed_image("image", self.channels)?;
        if let Some(size) = [height, width].into_iter().find(|size| extended(*size) > 2 * size) {
            return Err(Error::ImageTooSmall { size, extended: extended(size), least: MULTIPLE / 2 });
        }
        let [height, width] = self.split;
        w.marker(BIASES, &[(2 * height - 1) * (2 * width - 1), 2]);
        w.marker(INDEX, &[height * width; 2]);
        self.frame().build(w, shapes, |image, grid| self.network(w, image, grid))
    }

    fn ignores(&self, name: &str) -> bool {
        // The same buffers for the second half.
        ["biases_v", "relative_position_index_v"].contains(&name)
    }

    /// The smallest image that has several windows in each direction.
    fn example_shapes(&self) -> Shapes {
        Shapes::of("image", &[1, self.channels, MULTIPLE, MULTIPLE - 1])
    }

    fn presets() -> Vec<(&'static str, Self)> {
        let tiny = Craft {
            channels: 3,
            dim: 32,
            depths: vec![1],
            heads: vec![2],
            split: [2, 4],
            hidden: 32,
            gated: 85,
            biased: true,
            convolved: true,
            scale: 4,
        };
        let published = Craft {
            dim: 48,
            depths: vec![2; 4],
            heads: vec![6; 4],
            split: [4, 16],
            hidden: 96,
            gated: 127,
            ..tiny.clone()
        };
        vec![
            ("tiny", tiny.clone()),
            (
                "tiny-grey-x1",
                Craft {
                    channels: 1,
                    depths: vec![1, 2],
                    heads: vec![4, 2],
                    split: [4, 4],
                    biased: false,
                    convolved: false,
                    scale: 1,
                    ..tiny
                },
            ),
            ("craft-x2", Craft { scale: 2, ..published.clone() }),
            ("craft-x3", Craft { scale: 3, ..published.clone() }),
            ("craft-x4", published),
        ]
    }
}

/// The height or width of a padded image.
fn extended(size: usize) -> usize {
    (size / MULTIPLE + 1) * MULTIPLE
}

impl Craft {
    fn frame(&self) -> Frame {
        Frame::new(self.channels, self.scale, 1)
    }

    fn network(&self, w: &Scope<'_>, image: &Value, grid: &Grid) -> Value {
        let (height, width) = (extended(grid.height), extended(grid.width));
        let mirrored = |image: &Value, size: usize, extended: usize, axis: i64| {
            let pixels: Vec<i64> =
                (0..size).chain((2 * size - extended..size).rev()).map(|pixel| pixel as i64).collect();
            image.gather(&pixels, axis)
        };
        let padded = mirrored(&mirrored(image, grid.height, height, 2), grid.width, width, 3);
        let larger = Grid { height, width, ..*grid };
        let shallow = conv2d(&w.at("conv_first"), &padded, self.dim, 3);
        let mut x = shallow.clone();
        for group in 0..self.depths.len() {
            x = self.group(&w.at(format!("layers.{group}")), &x, &larger, group);
        }
        let deep = layer_norm_of_channels(&w.at("norm.body"), &x, LAYER_NORM_EPSILON);
        let deep = if self.convolved { conv2d(&w.at("conv_after_body"), &deep, self.dim, 3) } else { deep } + shallow;
        let upscaled = conv2d(&w.at("upsample.0"), &deep, self.channels * self.scale * self.scale, 3);
        upscaled.depth_to_space(self.scale).crop(grid.height * self.scale, grid.width * self.scale)
    }

    /// RCRFG: x + a convolution of blocks.
    fn group(&self, w: &Scope<'_>, x: &Value, grid: &Grid, group: usize) -> Value {
        let (blocks, heads) = (w.at("residual_group"), self.heads[group]);
        let mut y = x.clone();
        for number in 0..self.depths[group] {
            let high = self.high_frequencies(&blocks.at(format!("hfer_blocks.{number}")), &y);
            let low = [2 * number, 2 * number + 1].into_iter().fold(grid.tokens(&y), |tokens, number| {
                self.rectangles(&blocks.at(format!("srwa_blocks.{number}")), &tokens, grid, heads, number % 2 == 1)
            });
            y = self.fused(&blocks.at(format!("hf_blocks.{number}")), &grid.image(&low), &high, heads);
        }
        conv2d(&w.at("conv"), &y, self.dim, 3) + x
    }

    /// SRWAB: y = x + attention in rectangular windows and a convolution of its values, then y + MLP. Pixels that only
    /// a roll made neighbours are not masked.
    fn rectangles(&self, w: &Scope<'_>, x: &Value, grid: &Grid, heads: usize, rolled: bool) -> Value {
        let Grid { batch, height, width, .. } = *grid;
        let windows = Rectangles { batch, height, width, window: self.split, unmasked: true };
        let normalised = normalise(&w.at("norm1"), x);
        let rows = query_key_value(&w.at("qkv"), &normalised, ["weight", "bias"], self.biased);
        let local = Conv2d::depthwise(self.dim, [3, 3]).apply(&w.at("get_v"), &grid.image(&rows[2]));
        let attended = windows.attention(&w.at("attns"), &rows, heads / 2, rolled) + grid.tokens(&local);
        let x = x + linear(&w.at("proj"), &attended, self.dim);
        &x + mlp(&w.at("mlp"), &normalise(&w.at("norm2"), &x), self.hidden)
    }

    /// HFERB: x + a layer that reads a convolution of one half of the channels and the local maxima of the other half.
    fn high_frequencies(&self, w: &Scope<'_>, x: &Value) -> Value {
        let half = self.dim / 2;
        let [first, second] = split_channels(x, [half; 2]);
        let local = conv2d(&w.at("conv"), &first, half, 3).gelu();
        let high = conv2d(&w.at("fc"), &second.max_pool_around(3), half, 1).gelu();
        conv2d(&w.at("last_fc"), &local.concat(&[&high], 1), self.dim, 1) + x
    }

    /// HFB: y = low + attention between channels, with queries of the high frequencies, then y + gated features.
    fn fused(&self, w: &Scope<'_>, low: &Value, high: &Value, heads: usize) -> Value {
        let (attn, dim) = (w.at("attn"), self.dim);
        let layers = |name: &str, x: &Value, filters: usize| {
            let y = conv2d_unbiased(&attn.at(name), x, filters, 1);
            Conv2d::depthwise(filters, [3, 3]).unbiased().apply(&attn.at(format!("{name}_dwconv")), &y)
        };
        let normalised = |name: &str, x: &Value| layer_norm_of_channels(&w.at(name).at("body"), x, LAYER_NORM_EPSILON);
        let q = layers("q", high, dim);
        let [k, v] = split_channels(&layers("kv", &normalised("norm1", low), 2 * dim), [dim; 2]);
        let attended = attention_of_channels([&q, &k, &v], heads, &attn.tensor("temperature", [heads, 1, 1]));
        let y = conv2d_unbiased(&attn.at("project_out"), &attended, dim, 1) + low;
        gated_depthwise(&w.at("ffn"), &normalised("norm2", &y), self.gated, false) + y
    }
}
