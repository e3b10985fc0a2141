//! DAT: blocks of attention in rectangular windows and of attention between channels in turn, each beside a convolution;
//! with its sizes DAT-S, DAT-2 and DAT-light.
//!
//! Paper: <https://arxiv.org/abs/2308.03364>. Upstream: <https://github.com/zhengchen1999/DAT>,
//! `basicsr/archs/dat_arch.py`. Reference: spandrel 0.4.2, `architectures/DAT`.
//!
//! Its values overflow half precision (<https://github.com/NVIDIA/TensorRT/issues/3921>), so FP16 needs layers in FP32.

use super::reconstruction::{Residual, STAGES, Trunk, Upsampler};
use super::swin::{Frame, is_training_buffer, normalise};
use super::{Architecture, Keys, Mismatch};
use crate::nn::{
    BATCH_NORM_EPSILON, Conv2d, Grid, Rectangles, Scope, conv2d, conv2d_batch_norm, gated_mlp, is_rolled, linear,
    pointwise, pointwise_batch_norm, query_key_value,
};
use crate::{Contract, Result, Shapes};
use serde::Serialize;
use tileforge_graph::Value;

/// Hyperparameters.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Dat {
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
    /// Whether queries, keys and values have a bias.
    biased: bool,
    residual: Residual,
    upsampler: Upsampler,
}

/// The first attention, whose buffers show the windows.
const ATTENTION: &str = "layers.0.blocks.0.attn.attns.0";

impl Architecture for Dat {
    const NAME: &'static str = "DAT";

    const SIGNATURES: &'static [&'static [&'static str]] = &[
        &[
            "conv_first.weight",
            "before_RG.1.weight",
            "layers.0.blocks.0.ffn.fc1.weight",
            "layers.0.blocks.0.attn.channel_interaction.1.weight",
            "layers.0.blocks.0.attn.attns.0.rpe_biases",
            "layers.0.blocks.0.attn.attns.0.relative_position_index",
            Residual::CONV,
        ],
        &[
            "conv_first.weight",
            "before_RG.1.weight",
            "layers.0.blocks.0.ffn.fc1.weight",
            "layers.0.blocks.0.attn.channel_interaction.1.weight",
            "layers.0.blocks.0.attn.attns.0.rpe_biases",
            "layers.0.blocks.0.attn.attns.0.relative_position_index",
            Residual::CONV_3,
        ],
    ];

    fn detect(keys: &Keys<'_>) -> Result<Self, Mismatch> {
        let [dim, channels, ..] = keys.dims::<4>("conv_first.weight")?;
        let groups = keys.count("layers.");
        let depths: Vec<usize> = (0..groups).map(|group| keys.count(&format!("layers.{group}.blocks."))).collect();
        let heads = |group: usize| {
            let attention = |block: usize| format!("layers.{group}.blocks.{block}.attn");
            if depths[group] > 1 {
                return Ok(keys.dims::<3>(&format!("{}.temperature", attention(1)))?[0]);
            }
            // Each half of the channels has half of the heads.
            Ok(2 * keys.dims::<2>(&format!("{}.attns.0.pos.pos3.2.weight", attention(0)))?[0])
        };
        let heads = (0..groups).map(heads).collect::<Result<Vec<usize>, Mismatch>>()?;
        let upsampler = Upsampler::detect(keys, channels)?;
        if matches!(upsampler, Upsampler::NearestConv { .. } | Upsampler::None) {
            return Err(Mismatch::new("expected the upsampler `pixelshuffle` or `pixelshuffledirect`"));
        }
        let [hidden, _] = keys.dims::<2>("layers.0.blocks.0.ffn.fc1.weight")?;
        unless_halves_fit(dim, &heads, hidden)?;
        Ok(Dat {
            channels,
            dim,
            split: windows(keys, ATTENTION)?,
            depths,
            heads,
            hidden,
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
        example_shapes(self.channels, self.split)
    }

    fn presets() -> Vec<(&'static str, Self)> {
        let shuffle = |factors: &[usize]| Upsampler::shuffle(64, factors);
        let tiny = Dat {
            channels: 3,
            dim: 32,
            split: [2, 4],
            depths: vec![3, 1],
            heads: vec![2, 4],
            hidden: 32,
            biased: true,
            residual: Residual::One,
            upsampler: Upsampler::shuffle(8, &[2]),
        };
        let published = Dat {
            dim: 180,
            split: [8, 32],
            depths: vec![6; 6],
            heads: vec![6; 6],
            hidden: 720,
            upsampler: shuffle(&[2, 2]),
            ..tiny.clone()
        };
        let small = Dat { split: [8, 16], hidden: 360, ..published.clone() };
        let second = Dat { hidden: 360, ..published.clone() };
        let light = Dat {
            dim: 60,
            depths: vec![18],
            heads: vec![6],
            hidden: 120,
            residual: Residual::Three,
            upsampler: Upsampler::PixelShuffleDirect { factor: 4 },
            ..published.clone()
        };
        vec![
            ("tiny", tiny.clone()),
            (
                "tiny-direct-x3",
                Dat {
                    residual: Residual::Three,
                    biased: false,
                    upsampler: Upsampler::PixelShuffleDirect { factor: 3 },
                    ..tiny.clone()
                },
            ),
            ("tiny-grey-x1", Dat { channels: 1, split: [4, 4], upsampler: shuffle(&[]), ..tiny }),
            ("dat-x2", Dat { upsampler: shuffle(&[2]), ..published.clone() }),
            ("dat-x4", published),
            ("dat-s-x4", small),
            ("dat-2-x4", second),
            ("dat-light-x2", Dat { upsampler: Upsampler::PixelShuffleDirect { factor: 2 }, ..light.clone() }),
            ("dat-light-x4", light),
        ]
    }
}

/// The windows of rectangular attention. The longer side must be a multiple of the shorter one: maps are extended to a
/// multiple of the longer one.
pub(super) fn windows(keys: &Keys<'_>, attention: &str) -> Result<[usize; 2], Mismatch> {
    let [height, width] = keys.rectangle(attention)?;
    match height.max(width).is_multiple_of(height.min(width)) {
        true => Ok([height, width]),
        false => Err(Mismatch::new(format!(
            "expected one side of the windows to be a multiple of the other, found {height} × {width}"
        ))),
    }
}

/// The buffers that show the windows.
pub(super) fn mark_windows(attention: &Scope<'_>, [height, width]: [usize; 2]) {
    attention.marker("rpe_biases", &[(2 * height - 1) * (2 * width - 1), 2]);
    attention.marker("relative_position_index", &[height * width; 2]);
}

/// Checks that the channels, and each half of them, divide into heads, and that half of an MLP can be a gate.
pub(super) fn unless_halves_fit(dim: usize, heads: &[usize], hidden: usize) -> Result<(), Mismatch> {
    let fits = |heads: &usize| heads / 2 > 0 && dim.is_multiple_of(*heads) && (dim / 2).is_multiple_of(heads / 2);
    match heads.iter().find(|heads| !fits(heads)) {
        Some(heads) => Err(Mismatch::new(format!("{dim} channels do not divide into two halves of {heads} heads"))),
        None if !dim.is_multiple_of(2) => Err(Mismatch::new(format!("expected an even width, found {dim}"))),
        None if !hidden.is_multiple_of(2) => {
            Err(Mismatch::new(format!("expected an even width between the layers of the MLPs, found {hidden}")))
        }
        None => Ok(()),
    }
}

/// The smallest image that has every kind of window and that the network extends.
pub(super) fn example_shapes(channels: usize, [height, width]: [usize; 2]) -> Shapes {
    let longer = height.max(width);
    Shapes::of("image", &[1, channels, 2 * longer, 2 * longer - 1])
}

impl Dat {
    fn frame(&self) -> Frame {
        Frame::new(self.channels, self.upsampler.factor(), 1)
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

    /// DATB: y = x + attention in windows or between channels, in turn, then y + MLP.
    fn block(&self, w: &Scope<'_>, x: &Value, grid: &Grid, group: usize, number: usize) -> Value {
        let (normalised, attn) = (normalise(&w.at("norm1"), x), w.at("attn"));
        let rows = query_key_value(&attn.at("qkv"), &normalised, ["weight", "bias"], self.biased);
        let heads = self.heads[group];
        let attended = if number.is_multiple_of(2) {
            self.spatial_attention(&attn, &rows, grid, heads / 2, is_rolled(group, number))
        } else {
            self.channel_attention(&attn, &rows, grid, heads)
        };
        let x = x + linear(&attn.at("proj"), &attended, self.dim);
        &x + gated_mlp(&w.at("ffn"), &normalise(&w.at("norm2"), &x), self.hidden, grid)
    }

    /// Attention in windows, beside a convolution of the values. The means of the convolution weight the channels of
    /// the attention; the attention weights the pixels of the convolution.
    fn spatial_attention(&self, w: &Scope<'_>, rows: &[Value; 3], grid: &Grid, heads: usize, rolled: bool) -> Value {
        let Grid { batch, height, width, .. } = *grid;
        let windows = Rectangles { batch, height, width, window: self.split, unmasked: false };
        let attended = windows.attention(&w.at("attns"), rows, heads, rolled);
        let convolved = self.convolved(w, &grid.image(&rows[2]));
        let channels = self.channel_map(w, &convolved).reshape(&[batch as i64, 1, self.dim as i64]);
        // On tokens, a convolution of side 1 is a product.
        let map = w.at("spatial_interaction");
        let pixels =
            pointwise_batch_norm([&map.at("0"), &map.at("1")], &attended, self.dim / 16, BATCH_NORM_EPSILON).gelu();
        let pixels = pointwise(&map.at("3"), &pixels, 1).sigmoid();
        let by_map = attended.reshape(&[batch as i64, -1, self.dim as i64]) * channels;
        by_map.reshape(&[-1, self.dim as i64]) + grid.tokens(&convolved) * pixels
    }

    /// Attention between the channels of a head, over all pixels, beside a convolution of the values. The means of the
    /// attention weight the channels of the convolution; the convolution weights the pixels of the attention.
    fn channel_attention(&self, w: &Scope<'_>, [q, k, v]: &[Value; 3], grid: &Grid, heads: usize) -> Value {
        let (batch, each) = (grid.batch as i64, (self.dim / heads) as i64);
        let split = |x: &Value| x.reshape(&[batch, -1, heads as i64, each]);
        let (q, k) = (split(q).transpose(&[0, 2, 3, 1]), split(k).transpose(&[0, 2, 1, 3]));
        let image = grid.image(v);
        // Queries and keys have the length 1 over all pixels. Instead of the keys, the smaller product is divided by
        // their lengths. It is at most the length of a key, because the queries are divided first.
        let temperature = w.tensor("temperature", [heads, 1, 1]);
        let scores = (q.clone() * (temperature / length(&q, -1))).matmul(&k) / length(&k, -2);
        let attended = scores.softmax(-1).matmul(&image.reshape(&[batch, heads as i64, each, -1]));
        let attended = attended.reshape(&[batch, self.dim as i64, grid.height as i64, grid.width as i64]);
        let convolved = self.convolved(w, &image);
        let channels = self.channel_map(w, &attended);
        let map = w.at("spatial_interaction");
        let pixels = normalised(Conv2d::new(self.dim / 16, 1), [&map.at("0"), &map.at("1")], &convolved).gelu();
        let pixels = conv2d(&map.at("3"), &pixels, 1, 1).sigmoid();
        grid.tokens(&(attended * pixels + convolved * channels))
    }

    fn convolved(&self, w: &Scope<'_>, values: &Value) -> Value {
        normalised(Conv2d::depthwise(self.dim, [3, 3]), [&w.at("dwconv.0"), &w.at("dwconv.1")], values).gelu()
    }

    /// A weight for each channel, from the means of all: `[batch, channels, 1, 1]`.
    fn channel_map(&self, w: &Scope<'_>, image: &Value) -> Value {
        let map = w.at("channel_interaction");
        let means = image.global_average_pool();
        let squeezed = normalised(Conv2d::new(self.dim / 8, 1), [&map.at("1"), &map.at("2")], &means).gelu();
        conv2d(&map.at("4"), &squeezed, self.dim, 1).sigmoid()
    }
}

/// A convolution and its batch normalisation.
fn normalised(convolution: Conv2d, scopes: [&Scope<'_>; 2], x: &Value) -> Value {
    conv2d_batch_norm(convolution, scopes, x, BATCH_NORM_EPSILON)
}

/// The length of vectors along an axis; 1e-12 for shorter ones, as in the reference.
fn length(x: &Value, axis: i64) -> Value {
    x.length(axis).at_least(1e-12)
}
