//! Upsampling at learned positions.

use super::{Scope, channels, conv2d};
use tileforge_graph::{ConvOptions, Value};

/// DySample: each new pixel is sampled at a position that depends on the features (<https://arxiv.org/abs/2308.15085>).
///
/// `x` `[batch, channels, height, width]` → `[batch, filters, height · scale, width · scale]`. Each of `groups` of
/// channels has its own positions. Without `filters` there is no last convolution.
pub fn dysample(w: &Scope<'_>, x: &Value, groups: usize, scale: usize, filters: Option<usize>) -> Value {
    let channels = channels(x);
    let positions = groups * scale * scale;
    let weight = w.at("scope").tensor("weight", [2 * positions, channels, 1, 1]);
    let scope = x.conv(&weight, None, &ConvOptions::same(1)).sigmoid().scale(0.5);
    let start = w.tensor("init_pos", [1, 2 * positions, 1, 1]);
    let offsets = conv2d(&w.at("offset"), x, 2 * positions, 1) * scope + start;
    // Turns offsets in pixels, first all x and then all y, into [batch · groups, 1, height · scale, width · scale] in
    // −1 … 1.
    let coordinate = |half: usize, axis: usize| {
        let offset = offsets.slice(1, half * positions, (half + 1) * positions);
        let place = (pixel_centres(x, axis) + offset).scale(2.0) / x.size(axis);
        place.offset(-1.0).depth_to_space(scale).reshape(&[-1, 1, 0, 0])
    };
    let grid = coordinate(0, 3).concat(&[&coordinate(1, 2)], 1).transpose(&[0, 2, 3, 1]);
    let grouped = x.reshape(&[-1, (channels / groups) as i64, 0, 0]);
    let sampled = grouped.grid_sample(&grid).reshape(&[-1, channels as i64, 0, 0]);
    filters.map_or_else(|| sampled.clone(), |filters| conv2d(&w.at("end_conv"), &sampled, filters, 1))
}

/// 0.5, 1.5, 2.5, … along one axis of an image, as one row or one column of each image. The size may be dynamic.
fn pixel_centres(x: &Value, axis: usize) -> Value {
    let across = if axis == 3 { 2 } else { 3 };
    let ones = x.gather(&[0], 1).gather(&[0], across).scale(0.0).offset(1.0);
    ones.cumulative_sum(axis as i64).offset(-0.5)
}
