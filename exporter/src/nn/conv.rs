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
    let [_, inputs, ..] = x.dims::<4>();
    let weight = w.tensor("weight", [filters, inputs.fixed().unwrap_or_default(), kernel, kernel]);
    let bias = w.tensor("bias", [filters]);
    x.conv(&weight, Some(&bias), &ConvOptions::same(kernel))
}

/// A learned slope for the negative values of each channel.
pub fn prelu(w: &Scope<'_>, x: &Value) -> Value {
    let [_, channels, ..] = x.dims::<4>();
    let channels = channels.fixed().unwrap_or_default();
    // ONNX stretches from the last dimension, PyTorch from the channels.
    x.prelu(&w.tensor_as("weight", &[channels], &[channels, 1, 1]))
}
