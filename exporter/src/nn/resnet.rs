//! The residual blocks of latent diffusion's networks, and the layers between them that change sizes.

use super::{Scope, channels, conv2d, group_norm, linear};
use tileforge_graph::{ConvOptions, Value};

/// How a network normalises: groups of channels over the whole image.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Groups {
    /// The number of groups.
    pub count: usize,
    /// Added to the variance.
    pub epsilon: f32,
}

/// x + two convolutions. Where the channels change, a 1×1 convolution is applied to x.
///
/// `x` `[batch, inputs, height, width]` → `[batch, filters, height, width]`; `time` `[1 or batch, any]` is projected to
/// one number for each channel, which is added between the convolutions.
pub fn resnet(w: &Scope<'_>, x: &Value, filters: usize, groups: Groups, time: Option<&Value>) -> Value {
    let norm = |name: &str, x: &Value| group_norm(&w.at(name), x, groups.count, groups.epsilon).silu();
    let mut y = conv2d(&w.at("conv1"), &norm("norm1", x), filters, 3);
    if let Some(time) = time {
        y = y + linear(&w.at("time_emb_proj"), time, filters).reshape(&[0, filters as i64, 1, 1]);
    }
    let y = conv2d(&w.at("conv2"), &norm("norm2", &y), filters, 3);
    if channels(x) == filters { x + y } else { conv2d(&w.at("conv_shortcut"), x, filters, 1) + y }
}

/// A 3×3 convolution that halves the size, with `before` and `after` zeros around rows and columns.
pub fn downsample(w: &Scope<'_>, x: &Value, filters: usize, [before, after]: [i64; 2]) -> Value {
    let (weight, bias) = (w.tensor("weight", [filters, channels(x), 3, 3]), w.tensor("bias", [filters]));
    let options =
        ConvOptions { strides: vec![2, 2], pads: vec![before, before, after, after], dilations: vec![1, 1], groups: 1 };
    x.conv(&weight, Some(&bias), &options)
}

/// Repeats each pixel twice in both directions, then a convolution with as many channels.
pub fn upsample(w: &Scope<'_>, x: &Value) -> Value {
    conv2d(w, &x.upsample_nearest(2), channels(x), 3)
}
