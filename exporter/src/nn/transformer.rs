//! Blocks of transformers.

use super::{Conv2d, Grid, Scope, layer_norm, linear, linear_unbiased, width};
use tileforge_graph::Value;

/// PyTorch's default.
pub const LAYER_NORM_EPSILON: f32 = 1e-5;

/// Two linear layers with GELU between them, `hidden` wide: `[tokens, width]` → the same. Parameters: `fc1`, `fc2`.
pub fn mlp(w: &Scope<'_>, x: &Value, hidden: usize) -> Value {
    mlp_of([&w.at("fc1"), &w.at("fc2")], x, hidden)
}

/// As [`mlp`], with layers of other names.
pub fn mlp_of([first, second]: [&Scope<'_>; 2], x: &Value, hidden: usize) -> Value {
    linear(second, &linear(first, x, hidden).gelu(), width(x))
}

/// As [`mlp`], with a depthwise convolution of side `kernel` and its activation beside the hidden tokens: tokens in
/// raster order → the same. Parameters: `fc1`, `dwconv.depthwise_conv.0`, `fc2`.
pub fn convolved_mlp(w: &Scope<'_>, x: &Value, hidden: usize, kernel: usize, grid: &Grid) -> Value {
    let made = linear(&w.at("fc1"), x, hidden).gelu();
    let convolution = Conv2d::depthwise(hidden, [kernel; 2]);
    let convolved = convolution.apply(&w.at("dwconv.depthwise_conv.0"), &grid.image(&made)).gelu();
    linear(&w.at("fc2"), &(made + grid.tokens(&convolved)), width(x))
}

/// As [`mlp`], where a depthwise convolution of one half of the hidden tokens multiplies the other half: tokens in
/// raster order → the same. Parameters: `fc1`, `sg.norm`, `sg.conv`, `fc2`.
pub fn gated_mlp(w: &Scope<'_>, x: &Value, hidden: usize, grid: &Grid) -> Value {
    let first = w.at("fc1");
    let (names, inputs) = (["value", "gate"], width(x));
    // Two products need no splitting of their result.
    let (weights, biases) = (first.parts("weight", [hidden, inputs], names), first.parts("bias", [hidden], names));
    let [value, gate] = [0, 1].map(|i| x.linear(&weights[i], Some(&biases[i])).gelu());
    let normalised = layer_norm(&w.at("sg.norm"), &gate, LAYER_NORM_EPSILON);
    let gate = grid.tokens(&Conv2d::depthwise(hidden / 2, [3, 3]).apply(&w.at("sg.conv"), &grid.image(&normalised)));
    linear(&w.at("fc2"), &(value * gate), inputs)
}

/// SwiGLU (<https://arxiv.org/abs/2002.05202>): `proj_out(silu(proj_in_gate(x)) · proj_in(x))`, `hidden` wide in
/// between and without biases: `[tokens, width]` → the same.
///
/// The sigmoid comes last: OpenVINO 2026.4.1 crashes while it compiles some small networks in which the results of two
/// linear layers are multiplied last.
pub fn swiglu(w: &Scope<'_>, x: &Value, hidden: usize) -> Value {
    let gate = linear_unbiased(&w.at("proj_in_gate"), x, hidden);
    let value = linear_unbiased(&w.at("proj_in"), x, hidden);
    linear_unbiased(&w.at("proj_out"), &(&gate * value * gate.sigmoid()), width(x))
}

/// A block of a Swin Transformer.
#[derive(Debug, Clone, Copy)]
pub struct SwinBlock {
    /// Number of attention heads.
    pub heads: usize,
    /// Width between the two layers of its MLP.
    pub hidden: usize,
    /// By how many pixels the maps are rolled up and left before they are cut into windows.
    pub roll: [usize; 2],
    /// Whether queries, keys and values have a bias.
    pub biased: bool,
}

impl SwinBlock {
    /// y = x + window attention(norm(x)), then y + mlp(norm(y)). Tokens are in the order
    /// [`Order::Windows`](super::Order::Windows) of the roll.
    pub fn apply(&self, w: &Scope<'_>, x: &Value, grid: &Grid) -> Value {
        let normalised = layer_norm(&w.at("norm1"), x, LAYER_NORM_EPSILON);
        let x = x + grid.attention(&w.at("attn"), &normalised, self.heads, self.roll, self.biased);
        let normalised = layer_norm(&w.at("norm2"), &x, LAYER_NORM_EPSILON);
        &x + mlp(&w.at("mlp"), &normalised, self.hidden)
    }
}
