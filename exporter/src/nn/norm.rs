//! Normalisations of images.

use super::{Scope, channels};
use tileforge_graph::{Constant, Value};

/// Normalises groups of channels to mean 0 and variance 1 over the whole image, then applies each channel's scale and
/// bias.
///
/// Before opset 21, ONNX has no GroupNormalization with a scale for each channel, so each group is a channel of an
/// InstanceNormalization. Its channels are stacked along the height. A dynamic width and the batch then keep their
/// places, and no shape is computed.
pub fn group_norm(w: &Scope<'_>, x: &Value, groups: usize, epsilon: f32) -> Value {
    let channels = channels(x);
    let constant = |name, value| w.trace().constant(name, &[groups], Constant::F32(&vec![value; groups]));
    let grouped =
        x.reshape(&[0, groups as i64, -1, 0]).instance_norm(&constant("one", 1.0), &constant("zero", 0.0), epsilon);
    let normalised = grouped.reshape(&[0, channels as i64, -1, 0]);
    let parameter = |name| w.tensor_as(name, &[channels], &[channels, 1, 1]);
    normalised * parameter("weight") + parameter("bias")
}

/// Normalises the channels of each pixel to mean 0 and variance 1, then applies each channel's scale and bias.
pub fn layer_norm_of_channels(w: &Scope<'_>, x: &Value, epsilon: f32) -> Value {
    let channels = channels(x);
    let (scale, bias) = (w.tensor("weight", [channels]), w.tensor("bias", [channels]));
    // ONNX only normalises the last dimensions.
    x.transpose(&[0, 2, 3, 1]).layer_norm(&scale, &bias, epsilon).transpose(&[0, 3, 1, 2])
}
