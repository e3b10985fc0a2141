//! Normalisations of images.

use super::{Scope, channels};
use tileforge_graph::{Constant, Value};

/// Groups of channels with mean 0 and variance 1 over the whole image, then each channel by its own scale and bias.
///
/// Until opset 21, ONNX has no GroupNormalization with a scale for each channel: a group is an instance of its own. Its
/// channels are stacked in the direction of height, so that a dynamic width and the batch stay where they are, and
/// neither shape is computed.
pub fn group_norm(w: &Scope<'_>, x: &Value, groups: usize, epsilon: f32) -> Value {
    let channels = channels(x);
    let constant = |name, value| w.trace().constant(name, &[groups], Constant::F32(&vec![value; groups]));
    let grouped =
        x.reshape(&[0, groups as i64, -1, 0]).instance_norm(&constant("one", 1.0), &constant("zero", 0.0), epsilon);
    let normal = grouped.reshape(&[0, channels as i64, -1, 0]);
    let parameter = |name| w.tensor_as(name, &[channels], &[channels, 1, 1]);
    normal * parameter("weight") + parameter("bias")
}

/// The channels of each pixel with mean 0 and variance 1, then each channel by its own scale and bias.
pub fn layer_norm_of_channels(w: &Scope<'_>, x: &Value, epsilon: f32) -> Value {
    let channels = channels(x);
    let (scale, bias) = (w.tensor("weight", [channels]), w.tensor("bias", [channels]));
    // ONNX normalises last dimensions only.
    x.transpose(&[0, 2, 3, 1]).layer_norm(&scale, &bias, epsilon).transpose(&[0, 3, 1, 2])
}
