//! The operations of a [`Value`] that is a matrix, or a stack of them.

use super::Value;

impl Value {
    /// The matrix product of the last two dimensions, `[…, rows, inner]` by `[…, inner, columns]`; those before stretch to each other.
    #[must_use]
    pub fn matmul(&self, other: &Value) -> Value {
        self.trace.node("MatMul", &[self, other], [])
    }

    /// `x · weightᵀ + bias`: `[tokens, inputs]` → `[tokens, outputs]`, with `weight` `[outputs, inputs]` and `bias` `[outputs]`.
    ///
    /// This is the layout in which PyTorch stores a linear layer, so that the stored bytes serve as they are.
    #[must_use]
    pub fn linear(&self, weight: &Value, bias: Option<&Value>) -> Value {
        let mut inputs = vec![self, weight];
        inputs.extend(bias);
        self.trace.node("Gemm", &inputs, [("transB", 1.into())])
    }

    /// `eˣ` divided by its sum along `axis`.
    #[must_use]
    pub fn softmax(&self, axis: i64) -> Value {
        self.trace.node("Softmax", &[self], [("axis", axis.into())])
    }
}
