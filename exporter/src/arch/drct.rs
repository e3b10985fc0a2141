//! DRCT: groups of five Swin Transformer blocks that are densely connected, so that no feature of an early block is
//! lost.
//!
//! Paper: <https://arxiv.org/abs/2404.00722>. Upstream: <https://github.com/ming053l/DRCT>, `drct/archs/DRCT_arch.py`.
//! Reference: spandrel 0.4.2, `architectures/DRCT`.

use super::swin::{Frame, is_training_buffer, normalise};
use super::{Architecture, Keys, Mismatch};
use crate::nn::{Grid, Order, Scope, SwinBlock, conv2d, pointwise, shuffle_upsampling, width};
use crate::{Contract, Result, Shapes};
use serde::Serialize;
use tileforge_graph::Value;

/// Hyperparameters.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Drct {
    channels: usize,
    /// Width of the tokens between groups.
    dim: usize,
    /// Attention heads of each group's first block. The other blocks have fewer if their width is not a multiple.
    heads: Vec<usize>,
    /// Channels that each block but the last adds.
    growth: usize,
    window: usize,
    /// Whether every second block has rolled windows. A network that was trained on images of one window has none.
    rolled: bool,
    /// Width between the layers of an MLP, as a multiple of the block's channels, in the first three blocks. It is 1
    /// in the last two blocks.
    expansion: usize,
    /// Whether queries, keys and values have a bias.
    biased: bool,
    /// Whether tokens are normalised before the first group.
    normalised: bool,
    /// Whether a convolution follows the last group.
    convolved: bool,
    /// Features before the upsampling.
    filters: usize,
    factors: Vec<usize>,
}

const BLOCKS: usize = 5;
const UNROLLED: Order = Order::Windows([0; 2]);
/// Slope of LeakyReLU behind each block.
const SLOPE: f32 = 0.2;
/// Factor of a group's result before it is added to the group's input.
const RESIDUAL: f32 = 0.2;

impl Architecture for Drct {
    const NAME: &'static str = "DRCT";

    const SIGNATURES: &'static [&'static [&'static str]] = &[&[
        "conv_first.weight",
        "layers.0.swin1.attn.relative_position_bias_table",
        "layers.0.swin5.norm1.weight",
        "layers.0.adjust1.weight",
        "layers.0.adjust5.weight",
        "conv_last.weight",
    ]];

    fn detect(keys: &Keys<'_>) -> Result<Self, Mismatch> {
        let [dim, channels, ..] = keys.dims::<4>("conv_first.weight")?;
        let tables = (0..keys.count("layers."))
            .map(|i| keys.bias_table(&format!("layers.{i}.swin1.attn.relative_position_bias_table")));
        let tables = tables.collect::<Result<Vec<_>, _>>()?;
        let [hidden, _] = keys.dims::<2>("layers.0.swin1.mlp.fc1.weight")?;
        if hidden % dim != 0 {
            return Err(Mismatch::new(format!(
                "expected `layers.0.swin1.mlp.fc1.weight` to have a multiple of {dim} rows, found {hidden}"
            )));
        }
        Ok(Drct {
            channels,
            dim,
            heads: tables.iter().map(|(_, heads)| *heads).collect(),
            growth: keys.dims::<4>("layers.0.adjust1.weight")?[0],
            window: keys.bias_table("layers.0.swin1.attn.relative_position_bias_table")?.0,
            rolled: is_rolled(keys)?,
            expansion: hidden / dim,
            biased: keys.contains("layers.0.swin1.attn.qkv.bias"),
            normalised: keys.contains("patch_embed.norm.weight"),
            convolved: keys.contains("conv_after_body.weight"),
            filters: keys.dims::<4>("conv_before_upsample.0.weight")?[0],
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

    fn notes(&self) -> Vec<(&'static str, String)> {
        vec![("rolled", self.rolled.to_string())]
    }

    fn example_shapes(&self) -> Shapes {
        self.frame().example_shapes()
    }

    fn presets() -> Vec<(&'static str, Self)> {
        let tiny = Drct {
            channels: 3,
            dim: 12,
            heads: vec![3],
            growth: 4,
            window: 4,
            rolled: true,
            expansion: 2,
            biased: true,
            normalised: true,
            convolved: true,
            filters: 8,
            factors: vec![2, 2],
        };
        let published = Drct { dim: 180, heads: vec![6; 6], growth: 32, window: 16, filters: 64, ..tiny.clone() };
        let bare = Drct { rolled: false, biased: false, normalised: false, convolved: false, ..tiny.clone() };
        vec![
            ("tiny", tiny.clone()),
            ("tiny-bare-x3", Drct { factors: vec![3], ..bare }),
            ("tiny-grey-x1", Drct { channels: 1, factors: vec![], expansion: 1, ..tiny }),
            ("drct-x2", Drct { factors: vec![2], ..published.clone() }),
            ("drct-x4", published.clone()),
            ("drct-l-x4", Drct { heads: vec![6; 12], ..published }),
        ]
    }
}

/// Only the buffers beside the weights show whether windows are rolled: a rolled block has a mask of the training
/// size.
fn is_rolled(keys: &Keys<'_>) -> Result<bool, Mismatch> {
    match keys.hint("rolled") {
        Some("true") => Ok(true),
        Some("false") => Ok(false),
        Some(other) => Err(Mismatch::new(format!("expected `rolled` to be true or false, found `{other}`"))),
        None if keys.contains("layers.0.swin2.attn_mask") => Ok(true),
        None if keys.contains("layers.0.swin2.attn.relative_position_index") => Ok(false),
        None => Err(Mismatch::missing(
            "without the buffers `attn_mask` and `relative_position_index`, the tensors do not tell whether every \
             second block has rolled windows, as every published network has",
            "rolled",
            &["true", "false"],
        )),
    }
}

impl Drct {
    fn frame(&self) -> Frame {
        Frame::new(self.channels, self.factors.iter().product(), self.window)
    }

    fn network(&self, w: &Scope<'_>, image: &Value, grid: &Grid) -> Value {
        let shallow = conv2d(&w.at("conv_first"), image, self.dim, 3);
        // All convolutions of a group are 1×1, so tokens stay in windows from the first group to the last.
        let mut tokens = grid.reorder(&grid.tokens(&shallow), Order::Raster, UNROLLED);
        if self.normalised {
            tokens = normalise(&w.at("patch_embed.norm"), &tokens);
        }
        for (group, heads) in self.heads.iter().enumerate() {
            tokens = self.group(&w.at(format!("layers.{group}")), &tokens, grid, *heads);
        }
        let tokens = normalise(&w.at("norm"), &tokens);
        let deep = grid.image(&grid.reorder(&tokens, UNROLLED, Order::Raster));
        let deep = if self.convolved { conv2d(&w.at("conv_after_body"), &deep, self.dim, 3) } else { deep };
        shuffle_upsampling([w, &w.at("upsample")], &(deep + shallow), self.filters, &self.factors, self.channels)
    }

    /// RDG: `x` plus a part of the result of five blocks. Each block reads `x` and the results of the blocks before it.
    fn group(&self, w: &Scope<'_>, x: &Value, grid: &Grid, heads: usize) -> Value {
        let mut features = vec![Feature::new(x, UNROLLED)];
        for number in 1..=BLOCKS {
            let roll = [if self.rolled && number % 2 == 0 { self.window / 2 } else { 0 }; 2];
            let order = Order::Windows(roll);
            let inputs: Vec<Value> = features.iter_mut().map(|feature| feature.in_order(order, grid)).collect();
            let (first, rest) = (&inputs[0], inputs[1..].iter().collect::<Vec<_>>());
            let input = if rest.is_empty() { first.clone() } else { first.concat(&rest, 1) };
            let channels = width(&input);
            let block = SwinBlock {
                heads: if number == 1 { heads } else { heads - channels % heads },
                hidden: if number > 3 { channels } else { self.expansion * channels },
                roll,
                biased: self.biased,
            };
            let made = block.apply(&w.at(format!("swin{number}")), &input, grid);
            let adjust = w.at(format!("adjust{number}"));
            if number == BLOCKS {
                return pointwise(&adjust, &made, self.dim).scale(RESIDUAL) + x;
            }
            features.push(Feature::new(&pointwise(&adjust, &made, self.growth).leaky_relu(SLOPE), order));
        }
        x.clone()
    }
}

/// Tokens in every order in which they have been needed.
struct Feature(Vec<(Order, Value)>);

impl Feature {
    fn new(tokens: &Value, order: Order) -> Self {
        Feature(vec![(order, tokens.clone())])
    }

    fn in_order(&mut self, order: Order, grid: &Grid) -> Value {
        if let Some((_, known)) = self.0.iter().find(|(known, _)| *known == order) {
            return known.clone();
        }
        let (from, tokens) = &self.0[0];
        let tokens = grid.reorder(tokens, *from, order);
        self.0.push((order, tokens.clone()));
        tokens
    }
}
