//! DCTLSA: attention in windows whose cost is linear in their pixels, in blocks that are connected densely.
//!
//! Paper: <https://doi.org/10.1016/j.knosys.2023.110781>. Upstream: <https://github.com/zengkun301/DCTLSA>,
//! `codes/models/archs/DCTLSA_arch.py`. Reference: spandrel 0.4.2, `architectures/DCTLSA`.

use super::swin::normalise;
use super::{Architecture, Keys, Mismatch, picture};
use crate::nn::{
    BATCH_NORM_EPSILON, Conv2d, Grid, Mirror, Order, Scope, batch_norm_pointwise, conv2d, conv2d_batch_norm,
    image_input, linear, mlp, pad_to_multiple, query_key_value,
};
use crate::{Contract, Result, Shapes};
use serde::Serialize;
use tileforge_contract::{Precision, Upscale};
use tileforge_graph::Value;

/// Hyperparameters.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Dctlsa {
    /// Channels of the image, in and out.
    channels: usize,
    /// Width of the network.
    dim: usize,
    heads: usize,
    /// Width between the layers of an MLP.
    hidden: usize,
    scale: usize,
}

/// No tensor shows the number of attention heads. Upstream has no other.
const HEADS: usize = 5;
/// Side of the windows, which no tensor shows. Upstream has no other.
const WINDOW: usize = 16;
/// Blocks of the network, layers of each, and blocks of each layer. Upstream has no others.
const BLOCKS: usize = 6;
const LAYERS: usize = 2;
const DEPTH: usize = 2;
/// Upstream's slope.
const SLOPE: f32 = 0.05;

impl Architecture for Dctlsa {
    const NAME: &'static str = "DCTLSA";

    const SIGNATURES: &'static [&'static [&'static str]] = &[&[
        "fea_conv.weight",
        "B1.body.0.transformer_body.0.blocks.0.attn.qkv.weight",
        "B1.body.0.transformer_body.0.blocks.0.attn.local.pointwise_prenorm_1.weight",
        "B1.body.1.transformer_body.0.blocks.0.attn.qkv.weight",
        "B1.body.1.transformer_body.0.blocks.0.attn.local.pointwise_prenorm_1.weight",
        "B6.body.0.transformer_body.0.blocks.0.attn.qkv.weight",
        "B6.body.0.transformer_body.0.blocks.0.attn.local.pointwise_prenorm_1.weight",
        "B6.body.1.transformer_body.0.blocks.0.attn.qkv.weight",
        "B6.body.1.transformer_body.0.blocks.0.attn.local.pointwise_prenorm_1.weight",
        "c.0.weight",
        "c1.0.weight",
        "c2.0.weight",
        "c3.0.weight",
        "c4.0.weight",
        "c5.0.weight",
        "LR_conv.weight",
        "upsampler.0.weight",
    ]];

    fn detect(keys: &Keys<'_>) -> Result<Self, Mismatch> {
        let [dim, channels, ..] = keys.dims::<4>("fea_conv.weight")?;
        let heads = keys.setting("heads")?.unwrap_or(HEADS);
        if heads == 0 || !dim.is_multiple_of(heads) {
            return Err(Mismatch::new(format!("a width of {dim} does not divide into {heads} heads (`heads`)")));
        }
        Ok(Dctlsa {
            channels,
            dim,
            heads,
            hidden: keys.dims::<2>("B1.body.0.transformer_body.0.blocks.0.mlp.fc1.weight")?[0],
            scale: keys.shuffle_scale("upsampler.0.weight", channels)?,
        })
    }

    fn contract(&self) -> Contract {
        // Rolled windows connect all pixels, so the receptive field is unbounded.
        Upscale {
            size_minimum: WINDOW / 2 + 1,
            // Sums over all pixels of a window overflow half precision.
            safe_precisions: vec![Precision::Fp32, Precision::Bf16],
            ..picture(self.scale, self.channels)
        }
        .contract()
    }

    fn build(&self, w: &Scope<'_>, shapes: &Shapes) -> Result<()> {
        shapes.fixed_image("image", self.channels)?;
        let image = image_input(w, "image", self.channels, shapes)?;
        let shallow = conv2d(&w.at("fea_conv"), &image, self.dim, 3);
        let deep = self.dense(w, &shallow)?;
        let deep = conv2d(&w.at("LR_conv"), &deep, self.dim, 3) + shallow;
        let shuffled = self.channels * self.scale * self.scale;
        let upscaled = conv2d(&w.at("upsampler.0"), &deep, shuffled, 3).depth_to_space(self.scale);
        w.trace().output("upscaled", &upscaled);
        Ok(())
    }

    fn ignores(&self, name: &str) -> bool {
        name.ends_with(".num_batches_tracked")
    }

    fn notes(&self) -> Vec<(&'static str, String)> {
        vec![("heads", self.heads.to_string())]
    }

    /// Two by two windows, of which the last ones are not full.
    fn example_shapes(&self) -> Shapes {
        Shapes::of("image", &[1, self.channels, 2 * WINDOW - 4, 2 * WINDOW - 1])
    }

    fn presets() -> Vec<(&'static str, Self)> {
        let tiny = Dctlsa { channels: 3, dim: 10, heads: HEADS, hidden: 20, scale: 4 };
        let published = Dctlsa { dim: 55, hidden: 110, ..tiny.clone() };
        vec![
            ("tiny", tiny.clone()),
            ("tiny-grey-x1", Dctlsa { channels: 1, dim: 8, heads: 2, hidden: 12, scale: 1 }),
            ("dctlsa-x2", Dctlsa { scale: 2, ..published.clone() }),
            ("dctlsa-x3", Dctlsa { scale: 3, ..published.clone() }),
            ("dctlsa-x4", published),
        ]
    }
}

impl Dctlsa {
    /// DCTB: the input of each block is a layer of the features and of all earlier blocks; the result is a layer of
    /// all blocks.
    fn dense(&self, w: &Scope<'_>, x: &Value) -> Result<Value> {
        let mut made: Vec<Value> = Vec::new();
        let layer = |name: &str, parts: &[&Value]| match parts {
            [first, others @ ..] => {
                conv2d(&w.at(name).at("0"), &first.concat(others, 1), self.dim, 1).leaky_relu(SLOPE)
            }
            [] => x.clone(),
        };
        for number in 1..=BLOCKS {
            let parts: Vec<&Value> = std::iter::once(x).chain(&made).collect();
            let mut y = if number == 1 { x.clone() } else { layer(&format!("c{}", number - 1), &parts) };
            for part in 0..LAYERS {
                y = self.layer(&w.at(format!("B{number}.body.{part}.transformer_body.0")), &y)?;
            }
            made.push(y);
        }
        Ok(layer("c", &made.iter().collect::<Vec<_>>()))
    }

    /// Blocks with and without rolled windows in turn. The features are padded to whole windows.
    fn layer(&self, w: &Scope<'_>, x: &Value) -> Result<Value> {
        let padded = pad_to_multiple(x, WINDOW, Mirror::Reflect)?;
        let [batch, _, height, width] = padded.fixed_dims();
        let grid = Grid { batch, height, width, window: [WINDOW; 2] };
        let mut tokens = normalise(&w.at("patch_embed.norm"), &grid.tokens(&padded));
        let mut order = Order::Raster;
        for number in 0..DEPTH {
            let roll = [if number % 2 == 0 { 0 } else { WINDOW / 2 }; 2];
            let rolled = if number % 2 == 0 { Order::Raster } else { Order::Rolled(roll) };
            tokens = grid.reorder(&tokens, order, rolled);
            order = Order::Windows(roll);
            tokens = self.block(&w.at(format!("blocks.{number}")), &tokens, &grid, [rolled, order]);
        }
        let [_, _, height, width] = x.fixed_dims();
        Ok(grid.image(&grid.reorder(&tokens, order, Order::Raster)).crop(height, width))
    }

    /// y = convolutions of x + attention of them in windows, then y + MLP. The convolutions see the rolled image, so
    /// they cross the image's opposite edges. Tokens come in the first of the orders and leave in the second.
    fn block(&self, w: &Scope<'_>, x: &Value, grid: &Grid, [rolled, windows]: [Order; 2]) -> Value {
        let (attn, dim) = (w.at("attn"), self.dim);
        let local = attn.at("local");
        let scope = |name: &str| local.at(name);
        let y = batch_norm_pointwise(
            [&scope("pointwise_prenorm_0"), &scope("pointwise_conv_0")],
            x,
            dim,
            BATCH_NORM_EPSILON,
        );
        let depthwise = Conv2d::depthwise(dim, [3, 3]).unbiased();
        let scopes = [&scope("depthwise_conv"), &scope("pointwise_prenorm_1")];
        let y = grid.tokens(&conv2d_batch_norm(depthwise, scopes, &grid.image(&y), BATCH_NORM_EPSILON));
        let last = scope("pointwise_conv_1").tensor_as("weight", &[dim, dim, 1, 1], &[dim, dim]);
        let convolved = grid.reorder(&(y.linear(&last, None) + x), rolled, windows);
        let x = linear(&attn.at("proj"), &self.attention(&attn, &convolved), dim) + convolved;
        &x + mlp(&w.at("mlp"), &x, self.hidden)
    }

    /// Linear attention: the softmax of the keys is over the pixels of a window, so the small product of keys and
    /// values comes first.
    fn attention(&self, w: &Scope<'_>, x: &Value) -> Value {
        let [q, k, v] = query_key_value(&w.at("qkv"), x, ["weight", "bias"], true);
        let (each, area) = (self.dim / self.heads, (WINDOW * WINDOW) as i64);
        let split = |x: &Value, order: &[i64]| x.reshape(&[-1, area, self.heads as i64, each as i64]).transpose(order);
        let keys = split(&k, &[0, 2, 3, 1]).softmax(-1);
        let summary = keys.matmul(&split(&v, &[0, 2, 1, 3])).scale(1.0 / (each as f32).sqrt());
        let attended = split(&q, &[0, 2, 1, 3]).matmul(&summary).transpose(&[0, 2, 1, 3]);
        attended.reshape(&[-1, self.dim as i64])
    }
}
