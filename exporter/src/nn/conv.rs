//! Convolutions and their activations.

use super::{Scope, width};
use crate::{Result, Shapes};
use tileforge_graph::{ConvOptions, DataType, TensorType, Value};

/// The model's input `name`: an image `[batch, channels, height, width]` of f32.
///
/// # Errors
/// The fixed shape is not the shape of such an image.
pub fn image_input(w: &Scope<'_>, name: &str, channels: usize, shapes: &Shapes) -> Result<Value> {
    Ok(w.trace().input(name, TensorType::new(DataType::F32, shapes.image(name, channels)?)))
}

/// A convolution with bias that keeps the image's size: `x` `[batch, inputs, height, width]` → `[batch, filters,
/// height, width]`.
pub fn conv2d(w: &Scope<'_>, x: &Value, filters: usize, kernel: usize) -> Value {
    conv2d_dilated(w, x, filters, [kernel; 2], 1)
}

/// As [`conv2d`], with a kernel of `[height, width]` whose taps are `dilation` apart.
pub fn conv2d_dilated(w: &Scope<'_>, x: &Value, filters: usize, kernel: [usize; 2], dilation: usize) -> Value {
    let weight = w.tensor("weight", [filters, channels(x), kernel[0], kernel[1]]);
    let bias = w.tensor("bias", [filters]);
    x.conv(&weight, Some(&bias), &ConvOptions::same_dilated(kernel, dilation))
}

/// A transposed convolution with bias that makes an image `stride` times as large: `x` `[batch, inputs, height, width]`
/// → `[batch, filters, stride · height, stride · width]`. The excess of the `kernel` is cut equally from both sides.
pub fn conv_transpose2d(w: &Scope<'_>, x: &Value, filters: usize, kernel: usize, stride: usize) -> Value {
    let weight = w.tensor("weight", [channels(x), filters, kernel, kernel]);
    x.conv_transpose(&weight, &w.tensor("bias", [filters]), stride, kernel.saturating_sub(stride) / 2)
}

/// As [`conv2d`], with a filter of one channel for each channel.
pub fn depthwise_conv2d(w: &Scope<'_>, x: &Value, kernel: usize) -> Value {
    let channels = channels(x);
    let weight = w.tensor("weight", [channels, 1, kernel, kernel]);
    x.conv(&weight, Some(&w.tensor("bias", [channels])), &depthwise(channels, kernel))
}

/// As [`depthwise_conv2d`], at every `stride`-th pixel and without a border: sizes are divided by `stride` and rounded
/// down, for a kernel of the same side.
pub fn depthwise_reduction(w: &Scope<'_>, x: &Value, stride: usize) -> Value {
    let channels = channels(x);
    let weight = w.tensor("weight", [channels, 1, stride, stride]);
    let options = ConvOptions { strides: vec![stride as i64; 2], pads: vec![0; 4], ..depthwise(channels, stride) };
    x.conv(&weight, Some(&w.tensor("bias", [channels])), &options)
}

fn depthwise(channels: usize, kernel: usize) -> ConvOptions {
    ConvOptions { groups: channels as i64, ..ConvOptions::same(kernel) }
}

/// As [`conv2d`], followed by a batch normalisation with the statistics of the training and PyTorch's default epsilon:
/// `weight` and `bias` of `conv`, `weight`, `bias`, `running_mean` and `running_var` of `norm`.
pub fn conv2d_batch_norm(conv: &Scope<'_>, norm: &Scope<'_>, x: &Value, filters: usize, kernel: usize) -> Value {
    let dims = [filters, channels(x), kernel, kernel];
    let [weight, bias] = normalised_filters(conv, norm, &dims, &dims);
    x.conv(&weight, Some(&bias), &ConvOptions::same(kernel))
}

/// As [`depthwise_conv2d`], followed by a batch normalisation as in [`conv2d_batch_norm`].
pub fn depthwise_batch_norm(conv: &Scope<'_>, norm: &Scope<'_>, x: &Value, kernel: usize) -> Value {
    let dims = [channels(x), 1, kernel, kernel];
    let [weight, bias] = normalised_filters(conv, norm, &dims, &dims);
    x.conv(&weight, Some(&bias), &depthwise(channels(x), kernel))
}

/// A convolution of side 1 on tokens `[tokens, channels]`.
pub fn pointwise(w: &Scope<'_>, x: &Value, filters: usize) -> Value {
    let weight = w.tensor_as("weight", &[filters, width(x), 1, 1], &[filters, width(x)]);
    x.linear(&weight, Some(&w.tensor("bias", [filters])))
}

/// As [`pointwise`], followed by a batch normalisation as in [`conv2d_batch_norm`].
pub fn pointwise_batch_norm(conv: &Scope<'_>, norm: &Scope<'_>, x: &Value, filters: usize) -> Value {
    let [weight, bias] = normalised_filters(conv, norm, &[filters, width(x), 1, 1], &[filters, width(x)]);
    x.linear(&weight, Some(&bias))
}

/// The filters of a convolution that is followed by a batch normalisation, with the sizes `used`, and their biases. The
/// normalisation multiplies each channel and adds to it. Both fold into the filters when they are written.
fn normalised_filters(conv: &Scope<'_>, norm: &Scope<'_>, stored: &[usize], used: &[usize]) -> [Value; 2] {
    const EPSILON: f64 = 1e-5;
    let filters = stored.first().copied().unwrap_or_default();
    let vector = |w: &Scope<'_>, name: &str| {
        Ok(w.stored(name, &[filters])?.to_f32s()?.into_iter().map(f64::from).collect::<Vec<f64>>())
    };
    let statistics = || -> tileforge_graph::Result<(Vec<f32>, Vec<f32>)> {
        let (scale, shift) = (vector(norm, "weight")?, vector(norm, "bias")?);
        let (mean, variance) = (vector(norm, "running_mean")?, vector(norm, "running_var")?);
        let factors: Vec<f64> =
            scale.iter().zip(variance).map(|(scale, variance)| scale / (variance + EPSILON).sqrt()).collect();
        let biases = vector(conv, "bias")?.into_iter().zip(mean).map(|(bias, mean)| bias - mean);
        let biases =
            biases.zip(shift).zip(&factors).map(|((bias, shift), factor)| (bias * factor + shift) as f32).collect();
        Ok((factors.into_iter().map(|factor| factor as f32).collect(), biases))
    };
    let (factors, biases) = statistics().unwrap_or_else(|error| {
        conv.trace().fail(error);
        (vec![1.0; filters], vec![0.0; filters])
    });
    let weight = conv.computed_from("weight", stored, "weight", |weight| {
        weight.cast(DataType::F32)?.rows_scaled(&factors)?.reshaped(used.to_vec())
    });
    let bytes: Vec<u8> = biases.iter().flat_map(|bias| bias.to_le_bytes()).collect();
    [weight, conv.made("bias", tileforge_graph::Weight::from_bytes(DataType::F32, vec![filters], bytes))]
}

/// The channels of an image `[batch, channels, height, width]`; the trace fails where they are dynamic.
pub fn channels(x: &Value) -> usize {
    x.fixed(1)
}

/// Repeats each channel `times` times in a row: a pixel shuffle makes larger pixels of them.
///
/// Adding this before a shuffle gives the same sums as adding the nearest-neighbour upsampled image after it, without
/// another read of a value of the output's size.
pub fn repeat_channels(x: &Value, times: usize) -> Value {
    let repeats: Vec<i64> = (0..channels(x) * times).map(|c| (c / times) as i64).collect();
    if times == 1 { x.clone() } else { x.gather(&repeats, 1) }
}

/// A learned slope for the negative values of each channel.
pub fn prelu(w: &Scope<'_>, x: &Value) -> Value {
    let channels = channels(x);
    // ONNX broadcasts from the last dimension, PyTorch from the channels.
    x.prelu(&w.tensor_as("weight", &[channels], &[channels, 1, 1]))
}
