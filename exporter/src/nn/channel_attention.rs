//! Weights of channels, and attention between them, that follow from the whole image.

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

/// Attention between the channels of a head; the features of a channel are all of its pixels (Restormer,
/// <https://arxiv.org/abs/2111.09881>): `q`, `k` and `v` `[batch, channels, height, width]` → the same. Queries and
/// keys have the length 1, so `temperature` `[heads, 1, 1]` replaces the usual scale.
pub fn attention_of_channels([q, k, v]: [&Value; 3], heads: usize, temperature: &Value) -> Value {
    let each = (channels(q) / heads.max(1)) as i64;
    let split = |x: &Value| x.reshape(&[0, heads as i64, each, -1]);
    let (q, k) = (split(q), split(k).transpose(&[0, 1, 3, 2]));
    let length = |x: &Value, axis: i64| x.length(axis).at_least(1e-12);
    // Instead of the keys, the smaller product is divided by their lengths. It is at most the length of a key, because
    // the queries are divided first.
    let scores = (&q * (temperature / length(&q, -1))).matmul(&k) / length(&k, -2);
    scores.softmax(-1).matmul(&split(v)).reshape_like(v)
}
