//! Blocks of transformers.

use super::{Grid, Scope, layer_norm, linear, width};
use tileforge_graph::Value;

/// PyTorch's default.
pub const LAYER_NORM_EPSILON: f32 = 1e-5;

/// Two linear layers with GELU between them, of `hidden` width: `[tokens, width]` → the same. Parameters: `fc1`, `fc2`.
pub fn mlp(w: &Scope<'_>, x: &Value, hidden: usize) -> Value {
    mlp_of([&w.at("fc1"), &w.at("fc2")], x, hidden)
}

/// As [`mlp`], with layers of other names.
pub fn mlp_of([first, second]: [&Scope<'_>; 2], x: &Value, hidden: usize) -> Value {
    linear(second, &linear(first, x, hidden).gelu(), width(x))
}

/// A block of a Swin Transformer.
#[derive(Debug, Clone, Copy)]
pub struct SwinBlock {
    /// Number of attention heads.
    pub heads: usize,
    /// Width between the two layers of its MLP.
    pub hidden: usize,
    /// By how many pixels the maps are rolled before they are cut into windows.
    pub roll: usize,
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
