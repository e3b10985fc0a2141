//! Linear layers and normalisation of tokens: rows of a matrix `[tokens, width]`.

use super::Scope;
use tileforge_graph::{Constant, DataType, Value};

/// The width of tokens: the size of the last dimension; the trace fails where it is dynamic.
pub fn width(x: &Value) -> usize {
    x.fixed(-1)
}

/// A linear layer with bias: `x` `[tokens, inputs]` → `[tokens, outputs]`.
pub fn linear(w: &Scope<'_>, x: &Value, outputs: usize) -> Value {
    x.linear(&w.tensor("weight", [outputs, width(x)]), Some(&w.tensor("bias", [outputs])))
}

/// A linear layer without bias: `x` `[tokens, inputs]` → `[tokens, outputs]`.
pub fn linear_unbiased(w: &Scope<'_>, x: &Value, outputs: usize) -> Value {
    x.linear(&w.tensor("weight", [outputs, width(x)]), None)
}

/// Rows of a table `[entries, width]` by their numbers, `[…]` → `[…, width]`, in f32. Only the rows that are read are
/// cast.
pub fn embedding(w: &Scope<'_>, numbers: &Value, entries: usize, width: usize) -> Value {
    w.tensor_stored("weight", &[entries, width]).gather_by(numbers, 0).cast(DataType::F32)
}

/// The sum of the `count` rows of matrices, `[…, count, width]` → `[…, 1, width]`, as a product with ones: ONNX
/// Runtime reduces the rows of a single matrix in another order than the rows of several matrices, so a batch would
/// round differently.
pub fn sum_of_rows(w: &Scope<'_>, count: usize, x: &Value) -> Value {
    w.trace().constant("ones", &[1, count], Constant::F32(&vec![1.0; count])).matmul(x)
}

/// Scales vectors along the last dimension to length 1. Vectors shorter than 1e-12 are divided by 1e-12, as in
/// PyTorch.
pub fn unit(x: &Value) -> Value {
    x / x.length(-1).at_least(1e-12)
}

/// Divides each token by the root of the mean of its squares (RMSNorm, <https://arxiv.org/abs/1910.07467>): the last
/// dimension of `x`. `epsilon` is added to the mean.
///
/// ONNX has an operator for it only from opset 23 on, which TensorRT's parsers do not support everywhere. Runtimes
/// recognise the pattern of these operations.
pub fn rms_norm(x: &Value, epsilon: f32) -> Value {
    x / x.square().mean(-1).offset(epsilon).sqrt()
}

/// Normalises each token to mean 0 and variance 1, then applies a scale and a bias to each element.
pub fn layer_norm(w: &Scope<'_>, x: &Value, epsilon: f32) -> Value {
    let width = width(x);
    x.layer_norm(&w.tensor("weight", [width]), &w.tensor("bias", [width]), epsilon)
}
