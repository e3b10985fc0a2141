//! SeemoRe: in each block, one of several experts of low rank is chosen for the whole image.
//!
//! Paper: <https://arxiv.org/abs/2402.03412>. Upstream: <https://github.com/eduardzamfir/seemoredetails>,
//! `basicsr/archs/seemore_arch.py`. Reference: spandrel 0.4.2, `architectures/SeemoRe`.

use super::{Architecture, Keys, Mismatch, odd, picture};
use crate::nn::{Conv2d, Scope, conv2d, image_input, layer_norm_of_channels, split_channels};
use crate::{Contract, Error, Result, Shapes};
use serde::Serialize;
use tileforge_contract::{Precision, Upscale};
use tileforge_graph::{Constant, ConvOptions, DataType, Value, Weight};

/// Hyperparameters.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct SeemoRe {
    /// Width of the network.
    filters: usize,
    blocks: usize,
    /// Rank of each expert.
    experts: Vec<usize>,
    /// Length of the kernels of the global attention.
    kernel: usize,
    scale: usize,
}

/// Input and output are RGB, of which this mean is subtracted.
const MEAN: [f32; 3] = [0.4488, 0.4371, 0.4040];
/// Upstream's, for its own LayerNorm.
const EPSILON: f32 = 1e-6;
/// Blocks and width of the published size whose channels are not shuffled and whose view is narrower. No tensor shows
/// either property; the reference recognises the size by these two numbers.
const LARGE: (usize, usize) = (16, 48);
/// Side of the windows that are summarised for an expert.
const WINDOW: usize = 4;

impl Architecture for SeemoRe {
    const NAME: &'static str = "SeemoRe";

    const SIGNATURES: &'static [&'static [&'static str]] = &[&[
        "conv_1.weight",
        "conv_1.bias",
        "norm.weight",
        "norm.bias",
        "conv_2.weight",
        "conv_2.bias",
        "upsampler.0.weight",
        "upsampler.0.bias",
        "body.0.local_block.norm_1.weight",
        "body.0.local_block.norm_1.bias",
        "body.0.local_block.block.conv_1.0.weight",
        "body.0.local_block.block.conv_1.2.weight",
        "body.0.local_block.block.agg_conv.0.weight",
        "body.0.local_block.block.conv.0.weight",
        "body.0.local_block.block.conv.1.weight",
        "body.0.local_block.block.conv_2.0.conv.0.weight",
        "body.0.local_block.block.conv_2.0.conv.1.weight",
        "body.0.local_block.block.moe_layer.experts.0.conv_1.weight",
        "body.0.local_block.block.moe_layer.experts.0.conv_2.weight",
        "body.0.local_block.block.moe_layer.experts.0.conv_3.weight",
        "body.0.local_block.block.proj.weight",
        "body.0.local_block.norm_2.weight",
        "body.0.local_block.ffn.gate.weight",
        "body.0.global_block.norm_1.weight",
        "body.0.global_block.block.proj.weight",
        "body.0.global_block.block.attn.conv.0.weight",
        "body.0.global_block.ffn.fn_2.0.weight",
        "body.0.global_block.ffn.gate.weight",
    ]];

    fn detect(keys: &Keys<'_>) -> Result<Self, Mismatch> {
        const EXPERTS: &str = "body.0.local_block.block.moe_layer.experts.";
        let [filters, channels, ..] = keys.dims::<4>("conv_1.weight")?;
        if channels != MEAN.len() {
            return Err(Mismatch::new(format!("expected {} channels, found {channels}", MEAN.len())));
        }
        let rank = |expert: usize| Ok(keys.dims::<4>(&format!("{EXPERTS}{expert}.conv_1.weight"))?[0]);
        let [_, _, _, kernel] = keys.dims::<4>("body.0.global_block.block.attn.conv.0.weight")?;
        Ok(SeemoRe {
            filters,
            blocks: keys.count("body."),
            experts: (0..keys.count(EXPERTS)).map(rank).collect::<Result<_, Mismatch>>()?,
            kernel: odd(kernel)?,
            scale: keys.shuffle_scale("upsampler.0.weight", channels)?,
        })
    }

    fn contract(&self) -> Contract {
        Upscale {
            size_minimum: self.least(),
            // Products of features overflow half precision.
            safe_precisions: vec![Precision::Fp32, Precision::Bf16],
            ..picture(self.scale, MEAN.len())
        }
        .contract()
    }

    fn build(&self, w: &Scope<'_>, shapes: &Shapes) -> Result<()> {
        let image = image_input(w, "image", MEAN.len(), shapes)?;
        let [_, _, height, width] = image.dims();
        let least = self.least();
        if let Some(size) = [height, width].iter().filter_map(tileforge_graph::Dim::fixed).find(|size| *size < least) {
            return Err(Error::ImageTooSmall { size, extended: size, least });
        }
        w.trace().output("upscaled", &self.network(w, &image));
        Ok(())
    }

    fn presets() -> Vec<(&'static str, Self)> {
        let tiny = SeemoRe { filters: 8, blocks: 1, experts: vec![2, 3, 4], kernel: 5, scale: 4 };
        let published = SeemoRe { filters: 36, blocks: 6, experts: vec![2, 4, 8], kernel: 11, scale: 4 };
        vec![
            ("tiny", tiny.clone()),
            ("tiny-one-expert-x1", SeemoRe { experts: vec![2], scale: 1, ..tiny.clone() }),
            ("tiny-large-x2", SeemoRe { filters: LARGE.1, blocks: LARGE.0, scale: 2, ..tiny }),
            ("seemore-t-x4", published.clone()),
            ("seemore-l-x4", SeemoRe { filters: LARGE.1, blocks: LARGE.0, experts: vec![2, 4, 8, 16], ..published }),
        ]
    }
}

impl SeemoRe {
    fn is_large(&self) -> bool {
        (self.blocks, self.filters) == LARGE
    }

    /// How often a summary is made of summaries.
    fn summaries(&self) -> u32 {
        if self.is_large() { 1 } else { 2 }
    }

    /// The smallest side that has a summary.
    fn least(&self) -> usize {
        WINDOW.pow(self.summaries())
    }

    /// `image`: `[batch, 3, height, width]`.
    fn network(&self, w: &Scope<'_>, image: &Value) -> Value {
        let mean = w.trace().constant("mean", &[1, MEAN.len(), 1, 1], Constant::F32(&MEAN));
        let shallow = conv2d(&w.at("conv_1"), &(image - &mean), self.filters, 3);
        let mut x = shallow.clone();
        for number in 0..self.blocks {
            let w = w.at(format!("body.{number}"));
            x = self.half(&w.at("local_block"), &x, |w, x| self.local(w, x));
            x = self.half(&w.at("global_block"), &x, |w, x| self.global(w, x));
        }
        let deep = conv2d(&w.at("conv_2"), &normalised(&w.at("norm"), &x), self.filters, 3) + shallow;
        let shuffled = MEAN.len() * self.scale * self.scale;
        conv2d(&w.at("upsampler.0"), &deep, shuffled, 3).depth_to_space(self.scale) + mean
    }

    /// y = x + a layer, then y + gated features.
    fn half(&self, w: &Scope<'_>, x: &Value, layer: impl FnOnce(&Scope<'_>, &Value) -> Value) -> Value {
        let x = layer(&w.at("block"), &normalised(&w.at("norm_1"), x)) + x;
        self.gated(&w.at("ffn"), &normalised(&w.at("norm_2"), &x)) + x
    }

    fn gated(&self, w: &Scope<'_>, x: &Value) -> Value {
        let wide = conv2d(&w.at("fn_1.0"), x, 2 * self.filters, 1).gelu();
        let [features, gates] = split_channels(&wide, [self.filters; 2]);
        let gates = Conv2d::depthwise(self.filters, [3, 3]).apply(&w.at("gate"), &gates);
        conv2d(&w.at("fn_2.0"), &(features * gates), self.filters, 1).gelu()
    }

    /// Features that are weighted by a view along rows and columns.
    fn global(&self, w: &Scope<'_>, x: &Value) -> Value {
        let wide = conv2d(&w.at("to_qv.0"), x, 2 * self.filters, 1).gelu();
        let [queries, values] = split_channels(&wide, [self.filters; 2]);
        let seen = self.striped(&w.at("attn"), &queries, self.kernel);
        conv2d(&w.at("proj"), &(seen * values), self.filters, 1)
    }

    /// A convolution along rows, then one along columns.
    fn striped(&self, w: &Scope<'_>, x: &Value, kernel: usize) -> Value {
        let x = Conv2d::depthwise(self.filters, [1, kernel]).apply(&w.at("conv.0"), x);
        Conv2d::depthwise(self.filters, [kernel, 1]).apply(&w.at("conv.1"), &x)
    }

    /// Features, and summaries of their surroundings, through the expert that suits the image.
    fn local(&self, w: &Scope<'_>, x: &Value) -> Value {
        let filters = self.filters;
        let y = conv2d(&w.at("conv_1.0"), x, filters, 3).gelu();
        // Upstream shuffles the channels of both halves into each other, except in one size. The order of the filters
        // does the same.
        let rows =
            (0..2 * filters as u32).map(|to| if self.is_large() { to } else { to % 2 * filters as u32 + to / 2 });
        let rows: Vec<u32> = rows.collect();
        let layer = w.at("conv_1.2");
        let weight =
            layer.computed_from("weight", &[2 * filters, filters, 1, 1], "weight", |weight| weight.rows(rows.clone()));
        let bias = layer.computed_from("bias", &[2 * filters], "bias", |bias| bias.rows(rows));
        let [features, around] = split_channels(&y.conv(&weight, Some(&bias), &ConvOptions::same(1)), [filters; 2]);
        let features = self.striped(&w.at("conv_2.0"), &features, 3).gelu();
        let mut summary = around.clone();
        for _ in 0..self.summaries() {
            let windows = Conv2d::depthwise(filters, [WINDOW; 2]).padded(0).strided(WINDOW);
            summary = windows.apply(&w.at("agg_conv.0"), &summary).gelu();
        }
        let summary = Conv2d::depthwise(filters, [3, 3]).apply(&w.at("conv.0"), &summary);
        let summary = conv2d(&w.at("conv.1"), &summary, filters, 1).resize_bilinear_like(&around);
        let chosen = self.chosen(&w.at("moe_layer"), &features, &(around + summary));
        conv2d(&w.at("proj"), &chosen, filters, 1)
    }

    /// x + the expert with the largest probability, times that probability.
    ///
    /// All experts together have a rank of only a few channels, so all are computed: corresponding layers of all
    /// experts are one layer, and experts that are not chosen are multiplied by zero.
    fn chosen(&self, w: &Scope<'_>, x: &Value, around: &Value) -> Value {
        let (filters, experts) = (self.filters, self.experts.len());
        let router = w.at("gate.body.2").tensor_as("weight", &[experts, filters], &[experts, filters, 1, 1]);
        let scores = x.global_average_pool().conv(&router, None, &ConvOptions::same(1));
        let numbers: Vec<i64> = (0..experts as i64).collect();
        let numbers = w.trace().constant("experts", &[1, experts, 1, 1], Constant::I64(&numbers));
        let is_chosen = w.trace().node("Equal", &[&scores.arg_max(1), &numbers], []).cast(DataType::F32);
        let probabilities = scores.softmax(1) * is_chosen;
        // The layers of all experts, one below the other.
        let stacked = |name: &str, x: &Value| {
            let parts = |part: &str, sizes: fn(usize, usize) -> Vec<usize>| {
                let stored = self.experts.iter().enumerate().map(|(expert, rank)| {
                    w.at(format!("experts.{expert}.{name}")).stored(part, &sizes(*rank, filters))?.cast(DataType::F32)
                });
                let stored = stored.collect::<tileforge_graph::Result<Vec<_>>>();
                w.at(name).made(part, stored.and_then(|stored| Weight::concatenated(&stored, 0)))
            };
            let weight = parts("weight", |rank, filters| vec![rank, filters, 1, 1]);
            let bias = parts("bias", |rank, _| vec![rank]);
            x.conv(&weight, Some(&bias), &ConvOptions::same(1))
        };
        let of_rank: Vec<i64> =
            self.experts.iter().zip(0..).flat_map(|(rank, expert)| std::iter::repeat_n(expert, *rank)).collect();
        let low = stacked("conv_1", x) * stacked("conv_2", around) * probabilities.gather(&of_rank, 1);
        // Their last layers, one beside the other; a bias counts as often as its expert.
        let beside = |part: &str, sizes: &dyn Fn(usize) -> Vec<usize>| {
            let stored = self.experts.iter().enumerate().map(|(expert, rank)| {
                let w = w.at(format!("experts.{expert}.conv_3"));
                let stored = w.stored(part, &sizes(*rank))?.cast(DataType::F32)?;
                let columns = if part == "bias" { 1 } else { *rank };
                stored.reshaped(vec![filters, columns, 1, 1])
            });
            let stored = stored.collect::<tileforge_graph::Result<Vec<_>>>();
            w.at("conv_3").made(part, stored.and_then(|stored| Weight::concatenated(&stored, 1)))
        };
        let weight = beside("weight", &|rank| vec![filters, rank, 1, 1]);
        let biases = beside("bias", &|_| vec![filters]);
        let same = ConvOptions::same(1);
        x + low.conv(&weight, None, &same) + probabilities.conv(&biases, None, &same)
    }
}

/// The channels of each pixel, normalised.
fn normalised(w: &Scope<'_>, x: &Value) -> Value {
    layer_norm_of_channels(w, x, EPSILON)
}
