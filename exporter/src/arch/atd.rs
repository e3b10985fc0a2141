//! ATD: attention in windows, to a dictionary of tokens that each block refines, and among pixels of the same category.
//!
//! Paper: <https://arxiv.org/abs/2401.08209>. Upstream: <https://github.com/LabShuHangGU/Adaptive-Token-Dictionary>,
//! `basicsr/archs/atd_arch.py`. Reference: spandrel 0.4.2, `architectures/ATD`.

use super::reconstruction::{Residual, STAGES, Trunk, Upsampler};
use super::swin::{Frame, factor_of_logit, is_training_buffer, normalise};
use super::{Architecture, Keys, Mismatch};
use crate::nn::{
    Categories, Grid, LAYER_NORM_EPSILON, Mirror, Order, Scope, Scores, attention_scaled_by, convolved_mlp, linear,
    linear_unbiased, query_key_value, unit, width,
};
use crate::{Contract, Result, Shapes};
use serde::Serialize;
use tileforge_graph::Value;

/// Hyperparameters.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Atd {
    channels: usize,
    /// Width of the tokens.
    dim: usize,
    /// Blocks of each group.
    depths: Vec<usize>,
    /// Attention heads in each group.
    heads: Vec<usize>,
    window: usize,
    /// Tokens of a dictionary, which are the categories.
    tokens: usize,
    /// Width of queries and keys of the dictionary.
    reduced: usize,
    /// Pixels of sorted categories that attend to each other.
    category: usize,
    /// Width between the layers of an MLP.
    hidden: usize,
    /// Side of the convolution in an MLP.
    kernel: usize,
    /// Whether queries, keys and values have a bias.
    biased: bool,
    /// Whether tokens are normalised before the first group.
    normalised: bool,
    /// Whether the mean is subtracted from colour images.
    centred: bool,
    residual: Residual,
    upsampler: Upsampler,
}

/// No tensor determines the size of the groups of pixels. Every published network has 256, but the light ones.
const CATEGORY: usize = 256;
const LIGHT_CATEGORY: usize = 128;
/// The width of light networks, with the upsampler `pixelshuffledirect`.
const LIGHT_DIM: usize = 48;
/// The marker of a network that takes images as they are.
const NO_NORM: &str = "no_norm";

impl Architecture for Atd {
    const NAME: &'static str = "ATD";

    const SIGNATURES: &'static [&'static [&'static str]] = &[
        &[
            "relative_position_index_SA",
            "conv_first.weight",
            "layers.0.residual_group.td",
            "layers.0.residual_group.layers.0.sigma",
            "layers.0.residual_group.layers.0.attn_win.relative_position_bias_table",
            "layers.0.residual_group.layers.0.attn_atd.scale",
            "layers.0.residual_group.layers.0.attn_aca.logit_scale",
            "layers.0.residual_group.layers.0.convffn.dwconv.depthwise_conv.0.weight",
            Residual::CONV,
        ],
        &[
            "relative_position_index_SA",
            "conv_first.weight",
            "layers.0.residual_group.td",
            "layers.0.residual_group.layers.0.sigma",
            "layers.0.residual_group.layers.0.attn_win.relative_position_bias_table",
            "layers.0.residual_group.layers.0.attn_atd.scale",
            "layers.0.residual_group.layers.0.attn_aca.logit_scale",
            "layers.0.residual_group.layers.0.convffn.dwconv.depthwise_conv.0.weight",
            Residual::CONV_3,
        ],
    ];

    fn detect(keys: &Keys<'_>) -> Result<Self, Mismatch> {
        if keys.contains("absolute_pos_embed") {
            return Err(Mismatch::new("embeddings of absolute positions (`absolute_pos_embed`) are not supported"));
        }
        let [dim, channels, ..] = keys.dims::<4>("conv_first.weight")?;
        let [area, _] = keys.dims::<2>("relative_position_index_SA")?;
        let window = area.isqrt();
        let groups = keys.count("layers.");
        let blocks = |group: usize| format!("layers.{group}.residual_group.layers.");
        let table =
            |group: usize| keys.bias_table(&format!("{}0.attn_win.relative_position_bias_table", blocks(group)));
        let tables = (0..groups).map(table).collect::<Result<Vec<_>, _>>()?;
        if let Some((found, _)) = tables.iter().find(|(found, _)| *found != window || window * window != area) {
            return Err(Mismatch::new(format!(
                "`relative_position_index_SA` is for windows of {area} pixels, a table of position biases for windows \
                 of side {found}"
            )));
        }
        let first = format!("{}0", blocks(0));
        let [kernel, across] = {
            let [_, _, kernel, across] = keys.dims::<4>(&format!("{first}.convffn.dwconv.depthwise_conv.0.weight"))?;
            [kernel, across]
        };
        if kernel != across || kernel % 2 == 0 {
            return Err(Mismatch::new(format!(
                "expected square kernels with an odd side in the MLPs, found {kernel} × {across}"
            )));
        }
        let upsampler = Upsampler::detect(keys, channels)?;
        let is_light = matches!(upsampler, Upsampler::PixelShuffleDirect { .. }) && dim == LIGHT_DIM;
        Ok(Atd {
            channels,
            dim,
            depths: (0..groups).map(|group| keys.count(&blocks(group))).collect(),
            heads: tables.iter().map(|(_, heads)| *heads).collect(),
            window,
            tokens: keys.dims::<1>(&format!("{first}.attn_atd.scale"))?[0],
            reduced: keys.dims::<2>(&format!("{first}.attn_atd.wq.weight"))?[0],
            category: if is_light { LIGHT_CATEGORY } else { CATEGORY },
            hidden: keys.dims::<2>(&format!("{first}.convffn.fc1.weight"))?[0],
            kernel,
            biased: keys.contains(&format!("{first}.wqkv.bias")),
            normalised: keys.contains("patch_embed.norm.weight"),
            centred: !keys.contains(NO_NORM),
            residual: Residual::detect(keys),
            upsampler,
        })
    }

    fn contract(&self) -> Contract {
        self.frame().contract()
    }

    fn build(&self, w: &Scope<'_>, shapes: &Shapes) -> Result<()> {
        w.marker("relative_position_index_SA", &[self.window * self.window; 2]);
        if !self.centred {
            w.marker(NO_NORM, &[1]);
        }
        self.frame().build(w, shapes, |image, grid| self.network(w, image, grid))
    }

    fn ignores(&self, name: &str) -> bool {
        is_training_buffer(name)
    }

    /// The smallest image that has every kind of rolled window, and two groups of pixels of which one is not full.
    fn example_shapes(&self) -> Shapes {
        let side = (2 * self.window).max((self.category + 1).isqrt() + 1).next_multiple_of(self.window);
        Shapes::of("image", &[1, self.channels, side, side])
    }

    fn presets() -> Vec<(&'static str, Self)> {
        let tiny = Atd {
            channels: 3,
            dim: 8,
            depths: vec![3],
            heads: vec![2],
            window: 4,
            tokens: 6,
            reduced: 4,
            category: CATEGORY,
            hidden: 16,
            kernel: 5,
            biased: true,
            normalised: true,
            centred: true,
            residual: Residual::One,
            upsampler: Upsampler::shuffle(8, &[2]),
        };
        let bare = Atd { biased: false, normalised: false, centred: false, ..tiny.clone() };
        let published = Atd {
            dim: 210,
            depths: vec![6; 6],
            heads: vec![6; 6],
            window: 16,
            tokens: 128,
            reduced: 20,
            hidden: 420,
            upsampler: Upsampler::shuffle(64, &[2, 2]),
            ..tiny.clone()
        };
        let light = Atd {
            dim: LIGHT_DIM,
            depths: vec![6; 4],
            heads: vec![4; 4],
            tokens: 64,
            reduced: 8,
            category: LIGHT_CATEGORY,
            hidden: LIGHT_DIM, // 768,792 parameters at ×4, as published
            kernel: 7,
            upsampler: Upsampler::PixelShuffleDirect { factor: 4 },
            ..published.clone()
        };
        vec![
            ("tiny", tiny.clone()),
            (
                "tiny-bare-direct-x3",
                Atd {
                    depths: vec![2, 1],
                    heads: vec![2, 4],
                    residual: Residual::Three,
                    upsampler: Upsampler::PixelShuffleDirect { factor: 3 },
                    ..bare
                },
            ),
            (
                "tiny-light-x2",
                Atd {
                    dim: LIGHT_DIM,
                    category: LIGHT_CATEGORY,
                    upsampler: Upsampler::PixelShuffleDirect { factor: 2 },
                    ..tiny.clone()
                },
            ),
            (
                "tiny-nearest-x4",
                Atd { upsampler: Upsampler::NearestConv { filters: 4, doublings: 2 }, kernel: 3, ..tiny.clone() },
            ),
            ("tiny-grey-x1", Atd { channels: 1, upsampler: Upsampler::None, ..tiny }),
            ("atd-x2", Atd { upsampler: Upsampler::shuffle(64, &[2]), ..published.clone() }),
            ("atd-x4", published),
            ("atd-light-x2", Atd { upsampler: Upsampler::PixelShuffleDirect { factor: 2 }, ..light.clone() }),
            ("atd-light-x4", light),
        ]
    }
}

impl Atd {
    fn frame(&self) -> Frame {
        Frame {
            centred: self.centred,
            mirror: Mirror::Symmetric,
            ..Frame::new(self.channels, self.upsampler.factor(), self.window)
        }
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
            let (group_scope, depth) = (w.at("residual_group"), self.depths[group]);
            // Images share the dictionary until the first block has refined it.
            let mut dictionary = group_scope.tensor_as("td", &[self.tokens, self.dim], &[1, self.tokens, self.dim]);
            let mut x = x.clone();
            for number in 0..depth {
                let layer = group_scope.at(format!("layers.{number}"));
                let roll = [if number % 2 == 0 { 0 } else { self.window / 2 }; 2];
                let similar;
                (x, similar) = self.block(&layer, &x, &dictionary, grid, self.heads[group], roll);
                if number + 1 < depth {
                    dictionary = self.refined(&layer, &dictionary, &x, &similar, grid);
                }
            }
            x
        })
    }

    /// y = x + the three attentions, then y + MLP; and the similarity of each pixel to each token of the dictionary.
    fn block(
        &self,
        w: &Scope<'_>,
        x: &Value,
        dictionary: &Value,
        grid: &Grid,
        heads: usize,
        roll: [usize; 2],
    ) -> (Value, Value) {
        let normalised = normalise(&w.at("norm1"), x);
        let rows = query_key_value(&w.at("wqkv"), &normalised, ["weight", "bias"], self.biased);
        let (of_dictionary, similar) = self.dictionary_attention(&w.at("attn_atd"), &normalised, dictionary, grid);
        let of_category = self.category_attention(&w.at("attn_aca"), &rows, &similar, heads);
        let of_window = window_attention(&w.at("attn_win"), &rows, grid, heads, roll);
        let x = x + of_window + of_dictionary + of_category;
        let made = convolved_mlp(&w.at("convffn"), &normalise(&w.at("norm2"), &x), self.hidden, self.kernel, grid);
        (&x + made, similar)
    }

    /// ATD-CA: attention of pixels to the dictionary `[1 or batch, tokens, width]`. Scores are cosines, times a factor
    /// of up to 1 + ln(tokens). Also gives the weights `[batch, pixels, tokens]`.
    fn dictionary_attention(&self, w: &Scope<'_>, x: &Value, dictionary: &Value, grid: &Grid) -> (Value, Value) {
        let rows = dictionary.reshape(&[-1, self.dim as i64]);
        let q = unit(&self.linear(&w.at("wq"), x, self.reduced));
        let k = unit(&self.linear(&w.at("wk"), &rows, self.reduced));
        let v = self.linear(&w.at("wv"), &rows, self.dim);
        let of_tokens = |x: &Value| x.reshape(&[-1, self.tokens as i64, width(x) as i64]);
        let q = q.reshape(&[grid.batch as i64, -1, self.reduced as i64]);
        let most = (self.tokens as f64).ln();
        let scale = w.each_number(("scale", "scale"), &[self.tokens], &[self.tokens, 1], |scale| {
            1.0 + scale.clamp(0.0, 1.0) * most
        });
        // Factors of the few keys are cheaper than those of all scores.
        let keys = of_tokens(&k) * scale;
        let similar = q.matmul(&keys.transpose(&[0, 2, 1])).softmax(-1);
        (similar.matmul(&of_tokens(&v)).reshape(&[-1, self.dim as i64]), similar)
    }

    /// AC-MSA: pixels are sorted by the token that is most similar to each, and attend to each other in groups.
    fn category_attention(&self, w: &Scope<'_>, rows: &[Value; 3], similar: &Value, heads: usize) -> Value {
        let categories = Categories::new(similar, self.category);
        let [q, k, v] = rows.each_ref().map(|x| categories.groups(x));
        let factor = w.each_number(("logit_scale", "logit_scale"), &[1, 1], &[], factor_of_logit);
        let attended = categories.pixels(&attention_scaled_by(&factor, [&q, &k, &v], heads, &[]));
        self.linear(&w.at("proj"), &attended, self.dim)
    }

    /// Adds to each token of the dictionary the mean of the pixels, weighted by their similarity among all pixels.
    fn refined(&self, w: &Scope<'_>, dictionary: &Value, x: &Value, similar: &Value, grid: &Grid) -> Value {
        let norm = w.at("norm3");
        let (scale, shift) = (norm.tensor("weight", [self.tokens]), norm.tensor("bias", [self.tokens]));
        let weights = similar.transpose(&[0, 2, 1]).instance_norm(&scale, &shift, LAYER_NORM_EPSILON).softmax(-1);
        let x = x.reshape(&[grid.batch as i64, -1, self.dim as i64]);
        // ONNX Runtime's CPU kernel divides the longer side of a product among threads, and its sums depend on the
        // number of columns of each thread. So the rows must be the longer side: then no number of threads changes a
        // bit.
        let means = if self.tokens < self.dim {
            x.transpose(&[0, 2, 1]).matmul(&weights.transpose(&[0, 2, 1])).transpose(&[0, 2, 1])
        } else {
            weights.matmul(&x)
        };
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        let sigma = |name: &'static str, share: fn(f64) -> f64| {
            let share = move |x| share(sigmoid(x));
            w.each_number(("sigma", name), &[self.tokens, 1], &[self.tokens, 1], share)
        };
        dictionary * sigma("kept", |share| share) + means * sigma("added", |share| 1.0 - share)
    }

    fn linear(&self, w: &Scope<'_>, x: &Value, outputs: usize) -> Value {
        if self.biased { linear(w, x, outputs) } else { linear_unbiased(w, x, outputs) }
    }
}

/// SW-MSA of queries, keys and values in raster order.
fn window_attention(w: &Scope<'_>, rows: &[Value; 3], grid: &Grid, heads: usize, roll: [usize; 2]) -> Value {
    let order = Order::Windows(roll);
    let [q, k, v] = rows.each_ref().map(|x| grid.reorder(x, Order::Raster, order));
    let bias = grid.position_bias(w, heads);
    let attended = grid.attention_of([&q, &k, &v], roll, Scores { heads, bias: &bias, factor: None });
    linear(&w.at("proj"), &grid.reorder(&attended, order, Order::Raster), width(&rows[0]))
}
