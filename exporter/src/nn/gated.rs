//! Gated convolutions.

use super::{Conv2d, Scope, channels, conv2d, layer_norm_of_channels, split_channels};
use tileforge_graph::Value;

/// Upstream's, for its own LayerNorm.
const EPSILON: f32 = 1e-6;

/// Features of `x` times gates that follow from it (MambaOut, <https://arxiv.org/abs/2405.07992>), both `hidden`
/// channels wide; `convolve` is applied to the last `convolved` features. `x` `[batch, channels, height, width]` → the
/// same. Parameters: `norm`, `fc1`, `fc2` and those of `convolve`.
pub fn gated_convolution(
    w: &Scope<'_>,
    x: &Value,
    [hidden, convolved]: [usize; 2],
    convolve: impl FnOnce(&Scope<'_>, &Value) -> Value,
) -> Value {
    let normalised = layer_norm_of_channels(&w.at("norm"), x, EPSILON);
    let wide = conv2d(&w.at("fc1"), &normalised, 2 * hidden, 3);
    let (gates, plain) = (wide.slice(1, 0, hidden).mish(), 2 * hidden - convolved);
    let features = convolve(&w.at("conv"), &wide.slice(1, plain, 2 * hidden));
    let features = if plain == hidden { features } else { wide.slice(1, hidden, plain).concat(&[&features], 1) };
    conv2d(&w.at("fc2"), &(gates * features), channels(x), 3).mish()
}

/// Features of `x` times GELU of as many gates, `hidden` channels each, from a pointwise and a depthwise convolution
/// (Restormer, <https://arxiv.org/abs/2111.09881>): `x` `[batch, channels, height, width]` → the same. Parameters:
/// `project_in`, `dwconv`, `project_out`, with biases if they are `biased`.
pub fn gated_depthwise(w: &Scope<'_>, x: &Value, hidden: usize, biased: bool) -> Value {
    let layer = |name: &str, x: &Value, convolution: Conv2d| {
        if biased { convolution } else { convolution.unbiased() }.apply(&w.at(name), x)
    };
    let wide = layer("project_in", x, Conv2d::new(2 * hidden, 1));
    let wide = layer("dwconv", &wide, Conv2d::depthwise(2 * hidden, [3, 3]));
    let [gates, features] = split_channels(&wide, [hidden; 2]);
    layer("project_out", &(gates.gelu() * features), Conv2d::new(channels(x), 1))
}
