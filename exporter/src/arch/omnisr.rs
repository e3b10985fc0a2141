//! OmniSR: attention between the pixels of blocks and of grids, and between channels, after convolutions whose channels
//! are weighted by a function of their means.
//!
//! Paper: <https://arxiv.org/abs/2304.10244>. Upstream: <https://github.com/Francis0625/Omni-SR>. Reference: spandrel
//! 0.4.2, `architectures/OmniSR`.

use super::{Architecture, Keys, Mismatch, picture};
use crate::nn::{
    Conv2d, Grid, LAYER_NORM_EPSILON, Order, Scope, attention, conv2d, conv2d_unbiased, crop_to_image, gated_depthwise,
    image_input, layer_norm, layer_norm_of_channels, linear_unbiased, pad_with_zeros_to_multiple, query_key_value,
    split_channels, unit,
};
use crate::{Contract, Error, Result, Shapes};
use serde::Serialize;
use tileforge_contract::{Precision, Upscale};
use tileforge_graph::Value;

/// Hyperparameters. All of them follow from names and shapes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct OmniSr {
    /// Channels of the image, in and out.
    channels: usize,
    /// Width of the network.
    filters: usize,
    groups: usize,
    /// Blocks of each group.
    blocks: usize,
    /// Side of a block of pixels, and number of pixels along a side of a grid.
    window: usize,
    /// Channels between the layers of the weights of a convolution's channels.
    squeezed: usize,
    /// Channels of the spatial attention at the end of each group.
    narrow: usize,
    /// Whether the scores depend on the distance of two pixels.
    positional: bool,
    /// Whether the convolutions around the groups have a bias.
    biased: bool,
    scale: usize,
}

/// Upstream has no other number.
const HEADS: usize = 4;
/// Upstream's default, which no tensor shows where the scores do not depend on distances.
const WINDOW: usize = 8;
/// Upstream's, for its LayerNorm of channels.
const CHANNELS_EPSILON: f32 = 1e-6;
/// The smallest side that the spatial attention's windows of 7 fit into, after a stride of 2.
const LEAST: usize = 15;

impl Architecture for OmniSr {
    const NAME: &'static str = "OmniSR";

    const SIGNATURES: &'static [&'static [&'static str]] =
        &[&["residual_layer.0.residual_layer.0.layer.0.fn.0.weight", "input.weight", "up.0.weight"]];

    fn detect(keys: &Keys<'_>) -> Result<Self, Mismatch> {
        const BLOCK: &str = "residual_layer.0.residual_layer.0.layer";
        let [filters, channels, ..] = keys.dims::<4>("input.weight")?;
        if filters % HEADS != 0 {
            return Err(Mismatch::new(format!("{filters} filters do not divide into {HEADS} heads")));
        }
        let table = format!("{BLOCK}.2.fn.rel_pos_bias.weight");
        let positional = keys.contains(&table);
        Ok(OmniSr {
            channels,
            filters,
            groups: keys.count("residual_layer."),
            blocks: keys.count("residual_layer.0.residual_layer.").saturating_sub(1),
            window: if positional { keys.bias_table(&table)?.0 } else { WINDOW },
            squeezed: keys.dims::<2>(&format!("{BLOCK}.0.fn.4.gate.1.weight"))?[0],
            narrow: keys.dims::<4>("residual_layer.0.esa.conv1.weight")?[0],
            positional,
            biased: keys.contains("input.bias"),
            scale: keys.shuffle_scale("up.0.weight", channels)?,
        })
    }

    fn contract(&self) -> Contract {
        Upscale {
            size_multiple: self.window,
            size_minimum: LEAST.next_multiple_of(self.window),
            // Lengths of vectors overflow half precision.
            safe_precisions: vec![Precision::Fp32, Precision::Bf16],
            ..picture(self.scale, self.channels)
        }
        .contract()
    }

    fn build(&self, w: &Scope<'_>, shapes: &Shapes) -> Result<()> {
        let [.., height, width] = shapes.fixed_image("image", self.channels)?;
        if let Some(size) = [height, width].into_iter().find(|size| size.next_multiple_of(self.window) < LEAST) {
            let least = LEAST.next_multiple_of(self.window);
            return Err(Error::ImageTooSmall { size, extended: size.next_multiple_of(self.window), least });
        }
        let image = image_input(w, "image", self.channels, shapes)?;
        let padded = pad_with_zeros_to_multiple(&image, self.window);
        let upscaled = self.network(w, &padded);
        w.trace().output("upscaled", &crop_to_image(&upscaled, &image, self.window, self.scale));
        Ok(())
    }

    fn ignores(&self, name: &str) -> bool {
        // Ignores operation counts that a profiler stored.
        name.ends_with("total_ops") || name.ends_with("total_params")
    }

    fn example_shapes(&self) -> Shapes {
        let side = LEAST.next_multiple_of(self.window);
        Shapes::of("image", &[1, self.channels, side, side])
    }

    fn presets() -> Vec<(&'static str, Self)> {
        let tiny = OmniSr {
            channels: 3,
            filters: 8,
            groups: 2,
            blocks: 1,
            window: 4,
            squeezed: 2,
            narrow: 16,
            positional: true,
            biased: true,
            scale: 4,
        };
        let published = OmniSr { filters: 64, groups: 5, window: 8, squeezed: 16, narrow: 16, ..tiny.clone() };
        vec![
            ("tiny", OmniSr { groups: 1, ..tiny.clone() }),
            ("tiny-unbiased-x2", OmniSr { biased: false, blocks: 2, groups: 1, scale: 2, ..tiny.clone() }),
            ("tiny-no-positions-x1", OmniSr { positional: false, window: WINDOW, groups: 1, scale: 1, ..tiny.clone() }),
            ("tiny-grey-x3", OmniSr { channels: 1, scale: 3, ..tiny }),
            ("omnisr-x2", OmniSr { scale: 2, ..published.clone() }),
            ("omnisr-x4", published),
        ]
    }
}

/// Which pixels attend to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Partition {
    /// Those of a block of window · window neighbours.
    Block,
    /// Those at equal distances over the whole image.
    Grid,
}

impl OmniSr {
    /// `image`: `[batch, channels, height, width]`.
    fn network(&self, w: &Scope<'_>, image: &Value) -> Value {
        let [batch, _, height, width] = image.fixed_dims();
        let grid = Grid { batch, height, width, window: [self.window; 2] };
        let convolve = |name: &str, x: &Value, filters| self.outer(3, filters).apply(&w.at(name), x);
        let shallow = convolve("input", image, self.filters);
        let mut deep = shallow.clone();
        for group in 0..self.groups {
            deep = self.group(&w.at(format!("residual_layer.{group}")), &deep, &grid);
        }
        let deep = convolve("output", &deep, self.filters) + shallow;
        convolve("up.0", &deep, self.channels * self.scale * self.scale).depth_to_space(self.scale)
    }

    /// One of the convolutions around and behind the blocks.
    fn outer(&self, kernel: usize, filters: usize) -> Conv2d {
        let convolution = Conv2d::new(filters, kernel);
        if self.biased { convolution } else { convolution.unbiased() }
    }

    /// x + a convolution of blocks, each pixel and channel times a spatial attention.
    fn group(&self, w: &Scope<'_>, x: &Value, grid: &Grid) -> Value {
        let mut y = x.clone();
        for block in 0..self.blocks {
            y = self.block(&w.at(format!("residual_layer.{block}.layer")), &y, grid);
        }
        let y = self.outer(1, self.filters).apply(&w.at(format!("residual_layer.{}", self.blocks)), &y) + x;
        self.spatial_attention(&w.at("esa"), &y)
    }

    /// OSA: convolutions, then attention of pixels and of channels in blocks, and again in grids. A gated convolution
    /// follows each attention.
    fn block(&self, w: &Scope<'_>, x: &Value, grid: &Grid) -> Value {
        let mut x = x + self.convolutions(&w.at("0.fn"), x);
        for (first, partition) in [(2, Partition::Block), (8, Partition::Grid)] {
            let layer = |offset: usize| w.at((first + offset).to_string());
            x = self.pixels_attend(&layer(0), &x, grid, partition);
            x = residual(&layer(2), &x, |w, x| gated_depthwise(w, x, self.filters, false));
            x = residual(&layer(3), &x, |w, x| self.channels_attend(w, x, grid, partition));
            x = residual(&layer(4), &x, |w, x| gated_depthwise(w, x, self.filters, false));
        }
        x
    }

    /// MBConv: a convolution of each pixel, one of each channel, weights of the channels, and a convolution of each
    /// pixel.
    fn convolutions(&self, w: &Scope<'_>, x: &Value) -> Value {
        let (filters, squeezed) = (self.filters, self.squeezed);
        let y = conv2d(&w.at("0"), x, filters, 1).gelu();
        let y = Conv2d::depthwise(filters, [3, 3]).apply(&w.at("2"), &y).gelu();
        // The means are one pixel each, so their linear layers are 1×1 convolutions.
        let layer = |name: &str, x: &Value, sizes: [usize; 2]| {
            let weight = w.at("4.gate").at(name).tensor_as("weight", &sizes, &[sizes[0], sizes[1], 1, 1]);
            x.conv(&weight, None, &tileforge_graph::ConvOptions::same(1))
        };
        let weights = layer("1", &y.global_average_pool(), [squeezed, filters]).silu();
        let weights = layer("3", &weights, [filters, squeezed]).sigmoid();
        conv2d(&w.at("5"), &(y * weights), filters, 1)
    }

    /// x + attention of the pixels of each part to each other.
    fn pixels_attend(&self, w: &Scope<'_>, x: &Value, grid: &Grid, partition: Partition) -> Value {
        let area = (self.window * self.window) as i64;
        let order = match partition {
            Partition::Block => Order::Windows([0; 2]),
            Partition::Grid => Order::Dilated,
        };
        let tokens = grid.reorder(&grid.tokens(x), Order::Raster, order);
        let normalised = layer_norm(&w.at("norm"), &tokens, LAYER_NORM_EPSILON);
        let w = w.at("fn");
        let [q, k, v] = query_key_value(&w.at("to_qkv"), &normalised, ["weight", "bias"], false)
            .map(|x| x.reshape(&[-1, area, self.filters as i64]));
        let bias = self.positional.then(|| self.position_bias(&w.at("rel_pos_bias"), grid));
        let attended = attention(&q, &k, &v, HEADS, bias.as_ref().as_slice());
        let attended = linear_unbiased(&w.at("to_out.0"), &attended.reshape(&[-1, self.filters as i64]), self.filters);
        grid.image(&grid.reorder(&(attended + tokens), order, Order::Raster))
    }

    /// `[1, heads, window², window²]`, from a table with a row for each distance of two pixels.
    fn position_bias(&self, w: &Scope<'_>, grid: &Grid) -> Value {
        let distances = 2 * self.window - 1;
        w.computed_from("weight", &[distances * distances, HEADS], "relative_position_bias", |table| {
            grid.position_bias_of(&table)
        })
    }

    /// Attention of the channels of a head to each other, whose features are the pixels of each part. Queries and keys
    /// have length 1, so a learned factor of each head replaces the usual one.
    fn channels_attend(&self, w: &Scope<'_>, x: &Value, grid: &Grid, partition: Partition) -> Value {
        let filters = self.filters;
        let [batch, height, width, side] = [grid.batch, grid.height, grid.width, self.window].map(|size| size as i64);
        let (rows, columns) = (height / side, width / side);
        let wide = conv2d_unbiased(&w.at("qkv"), x, 3 * filters, 1);
        let wide = Conv2d::depthwise(3 * filters, [3, 3]).unbiased().apply(&w.at("qkv_dwconv"), &wide);
        let (parts, pixels) = match partition {
            // From [batch, channels, rows, side, columns, side] to [batch, rows, columns, channels, side, side].
            Partition::Block => {
                let blocks = wide.reshape(&[batch, 3 * filters as i64, rows, side, columns, side]);
                (blocks.transpose(&[0, 2, 4, 1, 3, 5]), side * side)
            }
            // To [batch, side, side, channels, rows, columns]. ONNX Runtime's Transpose takes 6 times as long.
            Partition::Grid => (wide.space_to_depth_of_blocks(self.window), rows * columns),
        };
        let parts = parts.reshape(&[-1, 3 * HEADS as i64, (filters / HEADS) as i64, pixels]);
        let [q, k, v] = split_channels(&parts, [HEADS; 3]);
        let scores = unit(&q).matmul(&unit(&k).transpose(&[0, 1, 3, 2]));
        let scores = scores * w.tensor("temperature", [HEADS, 1, 1]);
        let attended = scores.softmax(-1).matmul(&v);
        let attended = match partition {
            Partition::Block => attended
                .reshape(&[batch, rows, columns, filters as i64, side, side])
                .transpose(&[0, 3, 1, 4, 2, 5])
                .reshape(&[batch, filters as i64, height, width]),
            Partition::Grid => attended
                .reshape(&[batch, side * side * filters as i64, rows, columns])
                .depth_to_space_of_blocks(self.window),
        };
        conv2d_unbiased(&w.at("project_out"), &attended, filters, 1)
    }

    /// ESA: x times an attention in 0 … 1 that follows from a coarse view and a fine view of x.
    fn spatial_attention(&self, w: &Scope<'_>, x: &Value) -> Value {
        let narrow = conv2d(&w.at("conv1"), x, self.narrow, 1);
        let coarse = Conv2d::new(self.narrow, 3).padded(0).strided(2).apply(&w.at("conv2"), &narrow);
        let coarse = conv2d(&w.at("conv3"), &coarse.max_pool_strided(7, 3), self.narrow, 3).resize_bilinear_like(x);
        let fine = conv2d(&w.at("conv_f"), &narrow, self.narrow, 1);
        conv2d(&w.at("conv4"), &(coarse + fine), self.filters, 1).sigmoid() * x
    }
}

/// x + a layer of the normalised x.
fn residual(w: &Scope<'_>, x: &Value, layer: impl FnOnce(&Scope<'_>, &Value) -> Value) -> Value {
    let normalised = layer_norm_of_channels(&w.at("norm"), x, CHANNELS_EPSILON);
    layer(&w.at("fn"), &normalised) + x
}
