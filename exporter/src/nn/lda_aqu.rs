//! Upsampling by attention to learned positions.

use super::{Conv2d, Scope, channels, conv2d, conv2d_unbiased, layer_norm_of_channels, sum_of_rows};
use tileforge_graph::{Constant, Value};

/// Upstream's numbers: queries and keys have a quarter of the channels, each half of the channels has its own
/// positions, and each new pixel attends to 3 × 3 of them.
const REDUCTION: usize = 4;
const GROUPS: usize = 2;
const SIDE: usize = 3;
const TAPS: usize = SIDE * SIDE;
/// The farthest that a position is moved, in pixels of the enlarged image.
const RANGE: f32 = 11.0;
/// Upstream's, for its own LayerNorm.
const EPSILON: f32 = 1e-6;

/// LDA-AQU: each new pixel attends to pixels around it that are sampled at positions that depend on the features
/// (<https://arxiv.org/abs/2411.19585>). `x` `[batch, channels, height, width]` → `[batch, channels, height · scale,
/// width · scale]`, with all sizes fixed and `scale` at least 2.
pub fn lda_aqu(w: &Scope<'_>, x: &Value, scale: usize) -> Value {
    let [batch, channels_of_x, height, width] = x.fixed_dims();
    let (hidden, height, width) = (channels_of_x / REDUCTION, height * scale, width * scale);
    let normalised = layer_norm_of_channels(&w.at("layer_norm"), x, EPSILON);
    let queries = conv2d_unbiased(&w.at("proj_q"), &normalised, hidden, 1).resize_bilinear_to_corners(height, width);
    let keys = conv2d_unbiased(&w.at("proj_k"), &normalised, hidden, 1);
    let grid = positions(&w.at("conv_offset"), &queries, [height, width]);
    // Groups of channels are images of their own. Their samples are stacked along the height.
    let sampled = |x: &Value| {
        let grouped = x.reshape(&[-1, (channels(x) / GROUPS) as i64, 0, 0]);
        grouped.grid_sample_of_corners(&grid).reshape(&[batch as i64, channels(x) as i64, TAPS as i64, -1])
    };
    let biases = w.computed_from("relative_position_bias_table", &[1, 1, 1, TAPS, hidden], "tap_bias", |table| {
        table.reshaped(vec![TAPS, hidden])?.transposed(&[1, 0])?.reshaped(vec![1, hidden, TAPS, 1])
    });
    let products = (sampled(&keys) + biases) * queries.reshape(&[batch as i64, hidden as i64, 1, -1]);
    let scores = sum_of_rows(w, hidden, &products.reshape(&[0, 0, -1])).reshape(&[0, 0, TAPS as i64, -1]);
    let weights = scores.scale((hidden as f32).sqrt().recip()).softmax(2);
    let attended = sum_of_rows(w, TAPS, &(sampled(x) * weights));
    attended.reshape(&[batch as i64, channels_of_x as i64, height as i64, width as i64])
}

/// Where each tap of each new pixel is sampled: `[batch · groups, taps · height, width, (x, y)]` in −1 … 1.
fn positions(w: &Scope<'_>, queries: &Value, [height, width]: [usize; 2]) -> Value {
    let each = channels(queries) / GROUPS;
    let grouped = queries.reshape(&[-1, each as i64, 0, 0]);
    let convolved = Conv2d::depthwise(each, [3, 3]).unbiased().apply(&w.at("0"), &grouped);
    let convolved = layer_norm_of_channels(&w.at("1"), &convolved, EPSILON).silu();
    let offsets = conv2d(&w.at("3"), &convolved, 2 * TAPS, 3).tanh();
    let offsets = offsets.reshape(&[-1, TAPS as i64, 2, height as i64, width as i64]);
    let coordinate = |axis: usize, size: usize| {
        let step = 2.0 / (size - 1) as f32;
        let first = |tap: usize| if axis == 0 { tap / SIDE } else { tap % SIDE } as f32 - (SIDE / 2) as f32;
        let numbers = (0..TAPS).flat_map(|tap| (0..size).map(move |pixel| (first(tap) + pixel as f32) * step - 1.0));
        let dims = if axis == 0 { [1, TAPS, 1, size, 1] } else { [1, TAPS, 1, 1, size] };
        let pixels = w.trace().constant("pixels", &dims, Constant::F32(&numbers.collect::<Vec<_>>()));
        offsets.slice(2, axis, axis + 1).scale(RANGE * step) + pixels
    };
    let (y, x) = (coordinate(0, height), coordinate(1, width));
    let grid = x.concat(&[&y], 2).transpose(&[0, 1, 3, 4, 2]);
    grid.reshape(&[-1, (TAPS * height) as i64, width as i64, 2])
}
