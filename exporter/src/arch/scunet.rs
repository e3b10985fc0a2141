//! SCUNet: a U-Net whose blocks convolve one half of the channels and attend in windows to the other.
//!
//! Paper: <https://arxiv.org/abs/2203.13278>. Upstream: <https://github.com/cszn/SCUNet>, `models/network_scunet.py`.
//! Reference: spandrel 0.4.2, `architectures/SCUNet`.

use super::{Architecture, Keys, Mismatch, picture};
use crate::nn::{
    Conv2d, Grid, LAYER_NORM_EPSILON, Mirror, Order, Scope, Scores, channels, conv2d, conv2d_unbiased, crop_to_image,
    image_input, layer_norm, linear, mlp_of, pad_to_multiple, query_key_value, split_channels, width,
};
use crate::{Contract, Result, Shapes};
use serde::Serialize;
use tileforge_contract::{Precision, Upscale};
use tileforge_graph::Value;

/// Hyperparameters. All of them follow from names and shapes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct ScuNet {
    /// Channels of the image, in and out.
    channels: usize,
    /// Width of the finest level. Each coarser one is twice as wide.
    filters: usize,
    /// Blocks of each level: three on the way down, the coarsest, and three on the way up.
    blocks: [usize; 7],
    /// Width of an attention head.
    head: usize,
    window: usize,
}

/// The image is halved three times.
const LEVELS: usize = 3;

impl Architecture for ScuNet {
    const NAME: &'static str = "SCUNet";

    const SIGNATURES: &'static [&'static [&'static str]] = &[&["m_head.0.weight", "m_tail.0.weight"]];

    fn detect(keys: &Keys<'_>) -> Result<Self, Mismatch> {
        let [filters, channels, ..] = keys.dims::<4>("m_head.0.weight")?;
        let count = |name: &str, others: usize| keys.count(&format!("{name}.")).saturating_sub(others);
        let blocks = [
            count("m_down1", 1),
            count("m_down2", 1),
            count("m_down3", 1),
            count("m_body", 0),
            count("m_up3", 1),
            count("m_up2", 1),
            count("m_up1", 1),
        ];
        let [heads, distances, _] = keys.dims::<3>("m_body.0.trans_block.msa.relative_position_params")?;
        let attended = 4 * filters;
        if attended % heads != 0 || distances % 2 == 0 {
            return Err(Mismatch::new(format!(
                "{attended} channels do not divide into {heads} heads, or {distances} is no number of distances"
            )));
        }
        let head = attended / heads;
        if head == 0 || (filters / 2) % head != 0 {
            return Err(Mismatch::new(format!("{} channels do not divide into heads of {head}", filters / 2)));
        }
        Ok(ScuNet { channels, filters, blocks, head, window: distances.div_ceil(2) })
    }

    fn contract(&self) -> Contract {
        Upscale {
            size_multiple: self.multiple(),
            // Some attention scores overflow half precision and must stay in FP32.
            safe_precisions: vec![Precision::Fp32, Precision::Bf16],
            ..picture(1, self.channels)
        }
        .contract()
    }

    fn build(&self, w: &Scope<'_>, shapes: &Shapes) -> Result<()> {
        shapes.fixed_image("image", self.channels)?;
        let image = image_input(w, "image", self.channels, shapes)?;
        let padded = pad_to_multiple(&image, self.multiple(), Mirror::Reflect)?;
        w.trace().output("upscaled", &crop_to_image(&self.network(w, &padded), &image, self.multiple(), 1));
        Ok(())
    }

    /// One window on the coarsest level. This is also the smallest image that has every kind of window on the finest
    /// level.
    fn example_shapes(&self) -> Shapes {
        Shapes::of("image", &[1, self.channels, self.multiple(), self.multiple()])
    }

    fn presets() -> Vec<(&'static str, Self)> {
        let tiny = ScuNet { channels: 3, filters: 8, blocks: [2, 1, 1, 2, 1, 1, 1], head: 2, window: 4 };
        let published = ScuNet { filters: 64, blocks: [4; 7], head: 32, window: 8, ..tiny.clone() };
        vec![
            ("tiny", ScuNet { blocks: [2, 1, 1, 1, 1, 1, 1], ..tiny.clone() }),
            ("tiny-grey", ScuNet { channels: 1, head: 4, ..tiny }),
            ("scunet-gray", ScuNet { channels: 1, ..published.clone() }),
            ("scunet-color", published),
        ]
    }
}

impl ScuNet {
    /// The coarsest level has whole windows.
    fn multiple(&self) -> usize {
        self.window << LEVELS
    }

    /// `image`: `[batch, channels, height, width]`.
    fn network(&self, w: &Scope<'_>, image: &Value) -> Value {
        let mut levels = vec![conv2d_unbiased(&w.at("m_head.0"), image, self.filters, 3)];
        let mut x = levels[0].clone();
        for level in 0..LEVELS {
            let w = w.at(format!("m_down{}", level + 1));
            x = self.blocks(&w, &x, 0, self.blocks[level]);
            let down = Conv2d::new(2 * channels(&x), 2).padded(0).strided(2).unbiased();
            x = down.apply(&w.at(self.blocks[level].to_string()), &x);
            levels.push(x.clone());
        }
        x = self.blocks(&w.at("m_body"), &x, 0, self.blocks[LEVELS]);
        for level in (1..=LEVELS).rev() {
            let w = w.at(format!("m_up{level}"));
            let sum = x + &levels[level];
            let filters = channels(&sum) / 2;
            let weight = w.at("0").tensor("weight", [2 * filters, filters, 2, 2]);
            x = self.blocks(&w, &sum.conv_transpose(&weight, None, 2, 0), 1, self.blocks[2 * LEVELS + 1 - level]);
        }
        conv2d_unbiased(&w.at("m_tail.0"), &(x + &levels[0]), self.channels, 3)
    }

    /// Blocks numbered from `first`. Every second one has rolled windows.
    fn blocks(&self, w: &Scope<'_>, x: &Value, first: usize, count: usize) -> Value {
        (0..count).fold(x.clone(), |x, number| {
            let roll = if number % 2 == 0 { [0; 2] } else { [self.window / 2; 2] };
            self.block(&w.at((first + number).to_string()), &x, roll)
        })
    }

    /// x + a layer of convolutions of one half of the channels and of attention in the other.
    fn block(&self, w: &Scope<'_>, x: &Value, roll: [usize; 2]) -> Value {
        let [batch, filters, height, width] = x.fixed_dims();
        let grid = Grid { batch, height, width, window: [self.window; 2] };
        let half = filters / 2;
        let [convolved, attended] = split_channels(&conv2d(&w.at("conv1_1"), x, filters, 1), [half; 2]);
        let y = conv2d_unbiased(&w.at("conv_block.0"), &convolved, half, 3).relu();
        let convolved = conv2d_unbiased(&w.at("conv_block.2"), &y, half, 3) + convolved;
        let order = Order::Windows(roll);
        let tokens = grid.reorder(&grid.tokens(&attended), Order::Raster, order);
        let tokens = self.transform(&w.at("trans_block"), &tokens, &grid, roll);
        let attended = grid.image(&grid.reorder(&tokens, order, Order::Raster));
        conv2d(&w.at("conv1_2"), &convolved.concat(&[&attended], 1), filters, 1) + x
    }

    /// y = x + window attention, then y + MLP. Tokens are in the order of the windows.
    fn transform(&self, w: &Scope<'_>, x: &Value, grid: &Grid, roll: [usize; 2]) -> Value {
        let (msa, dim) = (w.at("msa"), width(x));
        let (heads, distances) = (dim / self.head, 2 * self.window - 1);
        let normalised = layer_norm(&w.at("ln1"), x, LAYER_NORM_EPSILON);
        let rows = query_key_value(&msa.at("embedding_layer"), &normalised, ["weight", "bias"], true);
        let stored = [heads, distances, distances];
        let bias = msa.computed_from("relative_position_params", &stored, "relative_position_bias", |table| {
            grid.position_bias_of(&table.reshaped(vec![heads, distances * distances])?.transposed(&[1, 0])?)
        });
        let attended = grid.attention_of(rows.each_ref(), roll, Scores { heads, bias: &bias, factor: None });
        let x = linear(&msa.at("linear"), &attended, dim) + x;
        let normalised = layer_norm(&w.at("ln2"), &x, LAYER_NORM_EPSILON);
        mlp_of([&w.at("mlp.0"), &w.at("mlp.2")], &normalised, 4 * dim) + x
    }
}
