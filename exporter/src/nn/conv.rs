//! Convolutions and their activations.

use super::{Scope, width};
use crate::{Result, Shapes};
use tileforge_graph::{ConvOptions, DataType, TensorType, Value, Weight};

/// The model's input `name`: an image `[batch, channels, height, width]` of f32.
///
/// # Errors
/// The fixed shape is not the shape of such an image.
pub fn image_input(w: &Scope<'_>, name: &str, channels: usize, shapes: &Shapes) -> Result<Value> {
    Ok(w.trace().input(name, TensorType::new(DataType::F32, shapes.image(name, channels)?)))
}

/// As [`image_input`], for a network that halves its image and enlarges it again: a dynamic height and width are
/// multiples of `multiple`.
///
/// # Errors
/// As [`image_input`].
pub fn image_input_of_multiples(
    w: &Scope<'_>,
    name: &str,
    channels: usize,
    multiple: usize,
    shapes: &Shapes,
) -> Result<Value> {
    let dims = shapes.image_of_multiples(name, channels, multiple)?;
    Ok(w.trace().input(name, TensorType::new(DataType::F32, dims)))
}

/// As [`image_input`], for a network that takes images of one size: `side` is their height and width.
///
/// # Errors
/// As [`image_input`].
pub fn image_input_of_side(w: &Scope<'_>, name: &str, channels: usize, side: usize, shapes: &Shapes) -> Result<Value> {
    let dims = shapes.image_of_side(name, channels, side)?;
    Ok(w.trace().input(name, TensorType::new(DataType::F32, dims)))
}

/// A convolution of images, with everything but its input. Parameters: `weight` `[filters, channels / groups, height,
/// width]`, and `bias` `[filters]` unless it is [`Conv2d::unbiased`].
#[derive(Debug, Clone, Copy)]
pub struct Conv2d {
    filters: usize,
    kernel: [usize; 2],
    stride: usize,
    padding: [usize; 2],
    dilation: usize,
    groups: usize,
    biased: bool,
}

impl Conv2d {
    /// A convolution with a bias that keeps the image's size, with a square kernel of an odd side.
    pub fn new(filters: usize, kernel: usize) -> Self {
        Self::rectangular(filters, [kernel; 2])
    }

    /// As [`Conv2d::new`], with a kernel of `[height, width]`.
    pub fn rectangular(filters: usize, kernel: [usize; 2]) -> Self {
        let padding = kernel.map(|side| side / 2);
        Conv2d { filters, kernel, stride: 1, padding, dilation: 1, groups: 1, biased: true }
    }

    /// As [`Conv2d::rectangular`], with one filter for each of `channels`, which reads only that channel.
    pub fn depthwise(channels: usize, kernel: [usize; 2]) -> Self {
        Self::rectangular(channels, kernel).grouped(channels)
    }

    /// The channels are split into `groups`, and each filter reads one of them.
    #[must_use]
    pub fn grouped(self, groups: usize) -> Self {
        Conv2d { groups, ..self }
    }

    /// Taps that are `dilation` apart. The image keeps its size.
    #[must_use]
    pub fn dilated(self, dilation: usize) -> Self {
        Conv2d { dilation, padding: self.kernel.map(|side| side / 2 * dilation), ..self }
    }

    /// Windows that are `stride` apart.
    #[must_use]
    pub fn strided(self, stride: usize) -> Self {
        Conv2d { stride, ..self }
    }

    /// Zeros on all sides, other than half a kernel.
    #[must_use]
    pub fn padded(self, zeros: usize) -> Self {
        Conv2d { padding: [zeros; 2], ..self }
    }

    /// No bias.
    #[must_use]
    pub fn unbiased(self) -> Self {
        Conv2d { biased: false, ..self }
    }

    /// `x` `[batch, channels, height, width]` → `[batch, filters, …]`.
    pub fn apply(&self, w: &Scope<'_>, x: &Value) -> Value {
        let weight = w.tensor("weight", self.dims(x));
        let bias = self.biased.then(|| w.tensor("bias", [self.filters]));
        x.conv(&weight, bias.as_ref(), &self.options())
    }

    /// As [`Conv2d::apply`], times a stored number for each filter, which folds into the weight and the bias.
    pub fn apply_scaled(
        &self,
        w: &Scope<'_>,
        x: &Value,
        factors: impl FnOnce() -> tileforge_graph::Result<Weight>,
    ) -> Value {
        let factors = factors().and_then(|factors| factors.to_f32s()).unwrap_or_else(|error| {
            x.trace().fail(error);
            vec![1.0; self.filters]
        });
        let scaled = |stored: Weight| stored.cast(DataType::F32)?.rows_scaled(&factors);
        let weight = w.computed_from("weight", &self.dims(x), "weight", scaled);
        let bias = self.biased.then(|| w.computed_from("bias", &[self.filters], "bias", scaled));
        x.conv(&weight, bias.as_ref(), &self.options())
    }

    /// The sizes of the weight.
    fn dims(&self, x: &Value) -> [usize; 4] {
        [self.filters, channels(x) / self.groups.max(1), self.kernel[0], self.kernel[1]]
    }

    fn options(&self) -> ConvOptions {
        let [vertical, horizontal] = self.padding.map(|zeros| zeros as i64);
        ConvOptions {
            strides: vec![self.stride as i64; 2],
            pads: vec![vertical, horizontal, vertical, horizontal],
            dilations: vec![self.dilation as i64; 2],
            groups: self.groups as i64,
        }
    }
}

/// A convolution with bias that keeps the image's size: `x` `[batch, inputs, height, width]` → `[batch, filters,
/// height, width]`.
pub fn conv2d(w: &Scope<'_>, x: &Value, filters: usize, kernel: usize) -> Value {
    Conv2d::new(filters, kernel).apply(w, x)
}

/// As [`conv2d`], without a bias.
pub fn conv2d_unbiased(w: &Scope<'_>, x: &Value, filters: usize, kernel: usize) -> Value {
    Conv2d::new(filters, kernel).unbiased().apply(w, x)
}

/// As [`conv2d`], with a kernel of `[height, width]` whose taps are `dilation` apart.
pub fn conv2d_dilated(w: &Scope<'_>, x: &Value, filters: usize, kernel: [usize; 2], dilation: usize) -> Value {
    Conv2d::rectangular(filters, kernel).dilated(dilation).apply(w, x)
}

/// The parts of an image's channels, of these sizes in this order.
pub fn split_channels<const N: usize>(x: &Value, sizes: [usize; N]) -> [Value; N] {
    let mut start = 0;
    sizes.map(|size| {
        let from = start;
        start += size;
        if size == channels(x) { x.clone() } else { x.slice(1, from, start) }
    })
}

/// A transposed convolution with bias that makes an image `stride` times as large: `x` `[batch, inputs, height, width]`
/// → `[batch, filters, stride · height, stride · width]`. The excess of the `kernel` is cut equally from both sides.
pub fn conv_transpose2d(w: &Scope<'_>, x: &Value, filters: usize, kernel: usize, stride: usize) -> Value {
    let weight = w.tensor("weight", [channels(x), filters, kernel, kernel]);
    x.conv_transpose(&weight, Some(&w.tensor("bias", [filters])), stride, kernel.saturating_sub(stride) / 2)
}

/// A convolution of side 1 on tokens `[tokens, channels]`.
pub fn pointwise(w: &Scope<'_>, x: &Value, filters: usize) -> Value {
    let weight = w.tensor_as("weight", &[filters, width(x), 1, 1], &[filters, width(x)]);
    x.linear(&weight, Some(&w.tensor("bias", [filters])))
}

/// A linear layer with bias of each pixel: `x` `[batch, inputs, height, width]` → `[batch, outputs, height, width]`.
pub fn linear_of_image(w: &Scope<'_>, x: &Value, outputs: usize) -> Value {
    let weight = linear_weight_of_image(w, x, outputs);
    x.conv(&weight, Some(&w.tensor("bias", [outputs])), &ConvOptions::same(1))
}

/// As [`linear_of_image`], without a bias.
pub fn linear_of_image_unbiased(w: &Scope<'_>, x: &Value, outputs: usize) -> Value {
    x.conv(&linear_weight_of_image(w, x, outputs), None, &ConvOptions::same(1))
}

fn linear_weight_of_image(w: &Scope<'_>, x: &Value, outputs: usize) -> Value {
    w.tensor_as("weight", &[outputs, channels(x)], &[outputs, channels(x), 1, 1])
}

/// PyTorch's default.
pub const BATCH_NORM_EPSILON: f64 = 1e-5;

/// A convolution followed by a batch normalisation with the statistics of the training: the parameters of `conv`, and
/// `weight`, `bias`, `running_mean` and `running_var` of `norm`.
pub fn conv2d_batch_norm(convolution: Conv2d, [conv, norm]: [&Scope<'_>; 2], x: &Value, epsilon: f64) -> Value {
    let dims = convolution.dims(x);
    let (weight, biases) = normalised_filters([conv, norm], [&dims, &dims], convolution.biased, epsilon);
    x.conv(&weight, Some(&made_biases(conv, &biases)), &convolution.options())
}

/// The sum of several convolutions without biases, each of its own image, followed by one batch normalisation as in
/// [`conv2d_batch_norm`].
pub fn batch_norm_of_sum(parts: &[(Conv2d, &Scope<'_>, &Value)], norm: &Scope<'_>, epsilon: f64) -> Value {
    let mut sum: Option<Value> = None;
    for (convolution, conv, x) in parts {
        let dims = convolution.dims(x);
        // The normalisation's bias goes only into the first convolution.
        let (weight, biases) = normalised_filters([conv, norm], [&dims, &dims], false, epsilon);
        let bias = sum.is_none().then(|| made_biases(conv, &biases));
        let made = x.conv(&weight, bias.as_ref(), &convolution.options());
        sum = Some(match sum {
            Some(sum) => sum + made,
            None => made,
        });
    }
    sum.unwrap_or_else(|| {
        norm.fail("expected at least one convolution before it");
        norm.trace().constant("none", &[0], tileforge_graph::Constant::F32(&[]))
    })
}

/// A transposed convolution with a bias and a kernel of side 3 that doubles an image's size, followed by a batch
/// normalisation as in [`conv2d_batch_norm`]. PyTorch has it with `padding=1` and `output_padding=1`.
pub fn conv_transpose2d_batch_norm([conv, norm]: [&Scope<'_>; 2], x: &Value, filters: usize, epsilon: f64) -> Value {
    let stored = [channels(x), filters, 3, 3];
    let (factors, biases) = batch_norm_factors([conv, norm], filters, true, epsilon);
    let weight = conv.computed_from("weight", &stored, "weight", |weight| {
        weight.cast(DataType::F32)?.transposed(&[1, 0, 2, 3])?.rows_scaled(&factors)?.transposed(&[1, 0, 2, 3])
    });
    x.conv_transpose_cut(&weight, Some(&made_biases(conv, &biases)), 2, [1, 0])
}

/// As [`pointwise`], followed by a batch normalisation as in [`conv2d_batch_norm`].
pub fn pointwise_batch_norm([conv, norm]: [&Scope<'_>; 2], x: &Value, filters: usize, epsilon: f64) -> Value {
    let sizes = [&[filters, width(x), 1, 1][..], &[filters, width(x)]];
    let (weight, biases) = normalised_filters([conv, norm], sizes, true, epsilon);
    x.linear(&weight, Some(&made_biases(conv, &biases)))
}

/// A batch normalisation with the statistics of the training, followed by a convolution of side 1 without a bias, on
/// tokens `[tokens, channels]`. Both become one layer when they are written. The parameters are those of
/// [`conv2d_batch_norm`].
pub fn batch_norm_pointwise([norm, conv]: [&Scope<'_>; 2], x: &Value, filters: usize, epsilon: f64) -> Value {
    let inputs = width(x);
    let numbers = |w: &Scope<'_>, name: &str, dims: &[usize]| {
        Ok::<_, tileforge_graph::Error>(w.stored(name, dims)?.to_f32s()?.into_iter().map(f64::from).collect::<Vec<_>>())
    };
    let made = || {
        let [scale, shift, mean, variance] =
            ["weight", "bias", "running_mean", "running_var"].map(|name| numbers(norm, name, &[inputs]));
        let (scale, shift, mean, variance) = (scale?, shift?, mean?, variance?);
        let weight = numbers(conv, "weight", &[filters, inputs, 1, 1])?;
        let factors: Vec<f64> =
            scale.iter().zip(&variance).map(|(scale, variance)| scale / (variance + epsilon).sqrt()).collect();
        let added: Vec<f64> =
            shift.iter().zip(mean).zip(&factors).map(|((shift, mean), factor)| shift - mean * factor).collect();
        let rows = weight.chunks(inputs.max(1));
        let biases = rows.map(|row| row.iter().zip(&added).map(|(weight, added)| weight * added).sum::<f64>());
        let bytes = |number: f64| (number as f32).to_le_bytes();
        let biases = biases.flat_map(bytes).collect::<Vec<u8>>();
        let weights = weight.iter().zip(factors.iter().cycle()).flat_map(|(weight, factor)| bytes(weight * factor));
        let weights = weights.collect::<Vec<u8>>();
        Ok::<_, tileforge_graph::Error>((
            Weight::from_bytes(DataType::F32, vec![filters, inputs], weights)?,
            Weight::from_bytes(DataType::F32, vec![filters], biases)?,
        ))
    };
    let (weight, bias) = match made() {
        Ok((weight, bias)) => (Ok(weight), Ok(bias)),
        Err(error) => (Err(error.clone()), Err(error)),
    };
    x.linear(&conv.made("weight", weight), Some(&conv.made("bias", bias)))
}

/// The filters of a convolution that is followed by a batch normalisation, with the sizes `used`, and their biases. The
/// normalisation multiplies each channel and adds to it. Both fold into the filters when they are written.
fn normalised_filters(
    [conv, norm]: [&Scope<'_>; 2],
    [stored, used]: [&[usize]; 2],
    biased: bool,
    epsilon: f64,
) -> (Value, Vec<f32>) {
    let filters = stored.first().copied().unwrap_or_default();
    let (factors, biases) = batch_norm_factors([conv, norm], filters, biased, epsilon);
    let weight = conv.computed_from("weight", stored, "weight", |weight| {
        weight.cast(DataType::F32)?.rows_scaled(&factors)?.reshaped(used.to_vec())
    });
    (weight, biases)
}

fn made_biases(conv: &Scope<'_>, biases: &[f32]) -> Value {
    conv.made("bias", vector_of(biases))
}

/// The factors by which a batch normalisation multiplies the filters of the convolution before it, and the resulting
/// biases.
fn batch_norm_factors(
    [conv, norm]: [&Scope<'_>; 2],
    filters: usize,
    biased: bool,
    epsilon: f64,
) -> (Vec<f32>, Vec<f32>) {
    let vector = |w: &Scope<'_>, name: &str| {
        Ok(w.stored(name, &[filters])?.to_f32s()?.into_iter().map(f64::from).collect::<Vec<f64>>())
    };
    let statistics = || -> tileforge_graph::Result<(Vec<f32>, Vec<f32>)> {
        let (scale, shift) = (vector(norm, "weight")?, vector(norm, "bias")?);
        let (mean, variance) = (vector(norm, "running_mean")?, vector(norm, "running_var")?);
        let factors: Vec<f64> =
            scale.iter().zip(variance).map(|(scale, variance)| scale / (variance + epsilon).sqrt()).collect();
        let biases = if biased { vector(conv, "bias")? } else { vec![0.0; filters] };
        let biases = biases.into_iter().zip(mean).map(|(bias, mean)| bias - mean);
        let biases =
            biases.zip(shift).zip(&factors).map(|((bias, shift), factor)| (bias * factor + shift) as f32).collect();
        Ok((factors.into_iter().map(|factor| factor as f32).collect(), biases))
    };
    statistics().unwrap_or_else(|error| {
        conv.trace().fail(error);
        (vec![1.0; filters], vec![0.0; filters])
    })
}

fn vector_of(numbers: &[f32]) -> tileforge_graph::Result<Weight> {
    Weight::from_f32s(vec![numbers.len()], numbers)
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
