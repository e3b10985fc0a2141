//! RGT: blocks of attention in rectangular windows and of attention to a small summary of the whole image in turn.
//!
//! Paper: <https://arxiv.org/abs/2303.06373>. Upstream: <https://github.com/zhengchen1999/RGT>,
//! `basicsr/archs/rgt_arch.py`. Reference: spandrel 0.4.2, `architectures/RGT`.

use super::dat::{example_shapes, mark_windows, unless_halves_fit, windows};
use super::reconstruction::{Residual, STAGES, Trunk, Upsampler};
use super::swin::{Frame, is_training_buffer, normalise};
use super::{Architecture, Keys, Mismatch};
use crate::nn::{
    Conv2d, Grid, Rectangles, Scope, attention, conv2d, gated_mlp, is_rolled, linear, linear_unbiased, query_key_value,
};
use crate::{Contract, Result, Shapes};
use serde::Serialize;
use tileforge_graph::Value;

/// Hyperparameters.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Rgt {
    channels: usize,
    /// Width of the tokens.
    dim: usize,
    /// Height and width of the first half's windows.
    split: [usize; 2],
    /// Blocks of each group.
    depths: Vec<usize>,
    /// Attention heads in each group.
    heads: Vec<usize>,
    /// Width between the layers of an MLP.
    hidden: usize,
    /// Width of queries and keys of the summary.
    compressed: usize,
    /// Whether queries, keys and values have a bias.
    biased: bool,
    residual: Residual,
    upsampler: Upsampler,
}

/// Factor by which each step of the summary makes the image smaller.
const STEP: usize = 4;
/// The summary has at least two steps, so the image has at least one pixel after them.
const SMALLEST: usize = STEP * STEP;
const ATTENTION: &str = "layers.0.blocks.0.attn.attns.0";

impl Architecture for Rgt {
    const NAME: &'static str = "RGT";

    const SIGNATURES: &'static [&'static [&'static str]] = &[
        &[
            "conv_first.weight",
            "before_RG.1.weight",
            "layers.0.blocks.0.gamma",
            "layers.0.blocks.0.mlp.fc1.weight",
            "layers.0.blocks.0.attn.attns.0.rpe_biases",
            "layers.0.blocks.0.attn.attns.0.relative_position_index",
            Residual::CONV,
            "conv_last.weight",
        ],
        &[
            "conv_first.weight",
            "before_RG.1.weight",
            "layers.0.blocks.0.gamma",
            "layers.0.blocks.0.mlp.fc1.weight",
            "layers.0.blocks.0.attn.attns.0.rpe_biases",
            "layers.0.blocks.0.attn.attns.0.relative_position_index",
            Residual::CONV_3,
            "conv_last.weight",
        ],
    ];

    fn detect(keys: &Keys<'_>) -> Result<Self, Mismatch> {
        let [dim, channels, ..] = keys.dims::<4>("conv_first.weight")?;
        let groups = keys.count("layers.");
        let depths: Vec<usize> = (0..groups).map(|group| keys.count(&format!("layers.{group}.blocks."))).collect();
        let heads = |group: usize| {
            let [half, _] = keys.dims::<2>(&format!("layers.{group}.blocks.0.attn.attns.0.pos.pos3.2.weight"))?;
            // Each half of the channels has half of the heads, rounded down.
            Ok(if dim.is_multiple_of(2 * half) { 2 * half } else { 2 * half + 1 })
        };
        let heads = (0..groups).map(heads).collect::<Result<Vec<usize>, Mismatch>>()?;
        let upsampler = Upsampler::detect(keys, channels)?;
        if !matches!(upsampler, Upsampler::PixelShuffle { .. }) {
            return Err(Mismatch::new("expected the upsampler `pixelshuffle`"));
        }
        let [hidden, _] = keys.dims::<2>("layers.0.blocks.0.mlp.fc1.weight")?;
        unless_halves_fit(dim, &heads, hidden)?;
        // Without a second block there is no summary.
        let second = depths.iter().position(|depth| *depth > 1);
        let compressed = match second {
            Some(group) => keys.dims::<4>(&format!("layers.{group}.blocks.1.attn.conv.weight"))?[0],
            None => dim / 2,
        };
        if let Some(heads) = heads.iter().find(|heads| second.is_some() && !compressed.is_multiple_of(**heads)) {
            return Err(Mismatch::new(format!(
                "{compressed} channels of the summary do not divide into {heads} heads"
            )));
        }
        Ok(Rgt {
            channels,
            dim,
            split: windows(keys, ATTENTION)?,
            depths,
            heads,
            hidden,
            compressed,
            biased: keys.contains("layers.0.blocks.0.attn.qkv.bias"),
            residual: Residual::detect(keys),
            upsampler,
        })
    }

    fn contract(&self) -> Contract {
        self.frame().contract()
    }

    fn build(&self, w: &Scope<'_>, shapes: &Shapes) -> Result<()> {
        mark_windows(&w.at(ATTENTION), self.split);
        self.frame().build(w, shapes, |image, grid| self.network(w, image, grid))
    }

    fn ignores(&self, name: &str) -> bool {
        is_training_buffer(name)
    }

    fn example_shapes(&self) -> Shapes {
        example_shapes(self.channels, self.split.map(|side| side.max(SMALLEST)))
    }

    fn presets() -> Vec<(&'static str, Self)> {
        let tiny = Rgt {
            channels: 3,
            dim: 32,
            split: [2, 4],
            depths: vec![3, 1],
            heads: vec![2, 4],
            hidden: 32,
            compressed: 16,
            biased: true,
            residual: Residual::One,
            upsampler: Upsampler::shuffle(8, &[2]),
        };
        let published = Rgt {
            dim: 180,
            split: [8, 32],
            depths: vec![6; 8],
            heads: vec![6; 8],
            hidden: 360,
            compressed: 90,
            upsampler: Upsampler::shuffle(64, &[2, 2]),
            ..tiny.clone()
        };
        let small = Rgt { depths: vec![6; 6], heads: vec![6; 6], ..published.clone() };
        vec![
            ("tiny", tiny.clone()),
            (
                "tiny-3conv-x3",
                Rgt {
                    residual: Residual::Three,
                    biased: false,
                    compressed: 8,
                    upsampler: Upsampler::shuffle(4, &[3]),
                    ..tiny.clone()
                },
            ),
            (
                "tiny-grey-x4",
                Rgt {
                    channels: 1,
                    split: [4, 4],
                    depths: vec![1],
                    heads: vec![2],
                    upsampler: Upsampler::shuffle(4, &[2, 2]),
                    ..tiny
                },
            ),
            ("rgt-x2", Rgt { upsampler: Upsampler::shuffle(64, &[2]), ..published.clone() }),
            ("rgt-x4", published),
            ("rgt-s-x2", Rgt { upsampler: Upsampler::shuffle(64, &[2]), ..small.clone() }),
            ("rgt-s-x4", small),
        ]
    }
}

impl Rgt {
    fn frame(&self) -> Frame {
        Frame { minimum: SMALLEST, ..Frame::new(self.channels, self.upsampler.factor(), 1) }
    }

    fn network(&self, w: &Scope<'_>, image: &Value, grid: &Grid) -> Value {
        let trunk = Trunk {
            channels: self.channels,
            dim: self.dim,
            first: "conv_first",
            projection: false,
            norm: Some("before_RG.1"),
            last_norm: "norm",
            groups: self.depths.len(),
            residual: self.residual,
            upsampler: &self.upsampler,
            stages: STAGES,
        };
        trunk.apply(w, image, grid, |w, x, group| {
            let block = |x, number| self.block(&w.at(format!("blocks.{number}")), &x, grid, group, number);
            (0..self.depths[group]).fold(x.clone(), block)
        })
    }

    /// y = x + attention in windows or to the summary, in turn, z = y + MLP, then z + a part of x.
    fn block(&self, w: &Scope<'_>, x: &Value, grid: &Grid, group: usize, number: usize) -> Value {
        let (normalised, attn) = (normalise(&w.at("norm1"), x), w.at("attn"));
        let attended = if number.is_multiple_of(2) {
            self.window_attention(&attn, &normalised, grid, self.heads[group] / 2, is_rolled(group, number))
        } else {
            self.summary_attention(&attn, &normalised, grid, self.heads[group])
        };
        let y = x + linear(&attn.at("proj"), &attended, self.dim);
        let y = &y + gated_mlp(&w.at("mlp"), &normalise(&w.at("norm2"), &y), self.hidden, grid);
        y + x * w.tensor("gamma", [self.dim])
    }

    /// L-SA: attention in windows plus a convolution of the values.
    fn window_attention(&self, w: &Scope<'_>, x: &Value, grid: &Grid, heads: usize, rolled: bool) -> Value {
        let rows = query_key_value(&w.at("qkv"), x, ["weight", "bias"], self.biased);
        let Grid { batch, height, width, .. } = *grid;
        let windows = Rectangles { batch, height, width, window: self.split, unmasked: false };
        let convolved = grid.tokens(&Conv2d::depthwise(self.dim, [3, 3]).apply(&w.at("get_v"), &grid.image(&rows[2])));
        windows.attention(&w.at("attns"), &rows, heads, rolled) + convolved
    }

    /// RG-SA: attention to an image that one convolution has shrunk several times.
    fn summary_attention(&self, w: &Scope<'_>, x: &Value, grid: &Grid, heads: usize) -> Value {
        let steps = steps(grid.height.max(grid.width));
        let smaller = |size: usize| size / STEP.pow(steps);
        let small = Grid { height: smaller(grid.height), width: smaller(grid.width), ..*grid };
        if small.height.min(small.width) == 0 {
            let (least, found) = (STEP.pow(steps), grid.height.min(grid.width));
            w.fail(format!("an image of this length must be at least {least} pixels on its other side, found {found}"));
            return x.clone();
        }
        // Sizes are rounded down.
        let reduction = Conv2d::depthwise(self.dim, [STEP; 2]).padded(0).strided(STEP);
        let reduced = (0..steps).fold(grid.image(x), |x, _| reduction.apply(&w.at("reduction1"), &x));
        let depthwise = Conv2d::depthwise(self.dim, [3, 3]);
        let summary = conv2d(&w.at("conv"), &depthwise.apply(&w.at("dwconv"), &reduced), self.compressed, 1);
        let summary = normalise(&w.at("norm_act.0"), &small.tokens(&summary)).gelu();
        let layer = |name, x, outputs| {
            if self.biased { linear(&w.at(name), x, outputs) } else { linear_unbiased(&w.at(name), x, outputs) }
        };
        let (q, k) = (layer("q", x, self.compressed), layer("k", &summary, self.compressed));
        let v = layer("v", &summary, self.dim);
        let v = &v + small.tokens(&depthwise.apply(&w.at("cpe"), &small.image(&v)));
        let sequences = |x: &Value, width: usize| x.reshape(&[grid.batch as i64, -1, width as i64]);
        let [q, k] = [q, k].map(|x| sequences(&x, self.compressed));
        attention(&q, &k, &sequences(&v, self.dim), heads, &[]).reshape(&[-1, self.dim as i64])
    }
}

/// How often the summary makes an image smaller: twice where the longer side is below 1024 pixels, and once more for
/// each factor of 4.
fn steps(longer: usize) -> u32 {
    (longer / SMALLEST).checked_ilog(STEP).unwrap_or(0).max(2)
}
