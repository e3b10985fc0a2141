//! Convolutions and their activations.

use super::Scope;
use crate::{Result, Shapes};
use graph::{ConvOptions, DataType, TensorType, Value};

/// The model's input `name`: an image `[batch, channels, height, width]` of f32.
///
/// # Errors
/// The shape that is asked for it is not that of such an image.
pub fn image_input(w: &Scope<'_>, name: &str, channels: usize, shapes: &Shapes) -> Result<Value> {
    Ok(w.trace().input(name, TensorType::new(DataType::F32, shapes.image(name, channels)?)))
}

/// A convolution with bias that keeps the image's size: `x` `[batch, inputs, height, width]` → `[batch, filters, height, width]`.
pub fn conv2d(w: &Scope<'_>, x: &Value, filters: usize, kernel: usize) -> Value {
    conv2d_dilated(w, x, filters, [kernel; 2], 1)
}

/// As [`conv2d`], with a kernel of `[height, width]` whose taps are `dilation` apart.
pub fn conv2d_dilated(w: &Scope<'_>, x: &Value, filters: usize, kernel: [usize; 2], dilation: usize) -> Value {
    let weight = w.tensor("weight", [filters, channels(x), kernel[0], kernel[1]]);
    let bias = w.tensor("bias", [filters]);
    x.conv(&weight, Some(&bias), &ConvOptions::same_dilated(kernel, dilation))
}

/// The channels of an image `[batch, channels, height, width]`.
pub fn channels(x: &Value) -> usize {
    let [_, channels, ..] = x.dims::<4>();
    channels.fixed().unwrap_or_default()
}

/// Each channel `times` times, one after another: what a pixel shuffle makes larger pixels of.
///
/// Adding it before a shuffle is adding nearest-neighbour upsampling after it. The sums are the same, and nothing of the output's size
/// is read a second time.
pub fn repeat_channels(x: &Value, times: usize) -> Value {
    let repeats: Vec<i64> = (0..channels(x) * times).map(|c| (c / times) as i64).collect();
    if times == 1 { x.clone() } else { x.gather(&repeats, 1) }
}

/// A learned slope for the negative values of each channel.
pub fn prelu(w: &Scope<'_>, x: &Value) -> Value {
    let channels = channels(x);
    // ONNX stretches from the last dimension, PyTorch from the channels.
    x.prelu(&w.tensor_as("weight", &[channels], &[channels, 1, 1]))
}
