//! The operations of a [`Value`] that is a matrix, or a stack of them.

use super::Value;

impl Value {
    /// The matrix product of the last two dimensions, `[…, rows, inner]` by `[…, inner, columns]`; the dimensions
    /// before them are broadcast to each other.
    #[must_use]
    pub fn matmul(&self, other: &Value) -> Value {
        self.trace.node("MatMul", &[self, other], [])
    }

    /// `x · weightᵀ + bias`: `[tokens, inputs]` → `[tokens, outputs]`, with `weight` `[outputs, inputs]` and `bias`
    /// `[outputs]`.
    ///
    /// This is the layout in which PyTorch stores a linear layer, so the stored bytes can be used unchanged.
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

    /// Scaled dot-product attention of `heads` heads: queries `[batch, queries, heads · width]`, `keys` and `values`
    /// `[batch, keys, heads · width]` → `[batch, queries, heads · width]`. With `causal`, a query reads no key after
    /// its own position.
    ///
    /// The operator came with opset 23.
    #[must_use]
    pub fn attention(&self, keys: &Value, values: &Value, heads: usize, causal: bool) -> Value {
        let heads = heads as i64;
        let counts = [("q_num_heads", heads.into()), ("kv_num_heads", heads.into())];
        let causal = causal.then(|| ("is_causal", 1.into()));
        self.trace.node("Attention", &[self, keys, values], counts.into_iter().chain(causal))
    }
}
