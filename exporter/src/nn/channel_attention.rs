//! Weights of channels that follow from the whole image.

use super::{Scope, channels, conv2d};
use tileforge_graph::Value;

/// A number in 0 … 1 for each channel of an image, from the means of all its channels, as in squeeze-and-excitation
/// (<https://arxiv.org/abs/1709.01507>): a layer to `squeezed` channels, ReLU, a layer back, and a sigmoid.
///
/// `x` `[batch, channels, height, width]` → `[batch, channels, 1, 1]`. `layers` are the scopes of the two layers.
pub fn channel_weights(layers: [&Scope<'_>; 2], x: &Value, squeezed: usize) -> Value {
    let means = conv2d(layers[0], &x.global_average_pool(), squeezed, 1).relu();
    conv2d(layers[1], &means, channels(x), 1).sigmoid()
}
