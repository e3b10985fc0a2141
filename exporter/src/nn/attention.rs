//! Attention of several heads.

use super::width;
use graph::Value;

/// Scaled dot-product attention (<https://arxiv.org/abs/1706.03762>): `softmax(q · kᵀ / √(width of a head) + biases) · v`.
///
/// `q` `[batch, queries, heads · width]`, `k` and `v` `[batch, keys, heads · width]` → `[batch, queries, heads · width]`. Each bias
/// stretches to `[batch, heads, queries, keys]`; they are added in order.
///
/// The scale stands on `q`, the smallest of what it could be applied to, and `k` is transposed right before the product: there ONNX
/// Runtime folds both into one FusedMatMul, and TensorRT sees the pattern of its fused attention.
pub fn attention(q: &Value, k: &Value, v: &Value, heads: usize, biases: &[&Value]) -> Value {
    let each = (width(q) / heads.max(1)) as i64;
    let split = |x: &Value| x.reshape(&[0, 0, heads as i64, each]).transpose(&[0, 2, 1, 3]);
    let k = k.reshape(&[0, 0, heads as i64, each]).transpose(&[0, 2, 3, 1]);
    let mut scores = split(q).scale(1.0 / (each as f32).sqrt()).matmul(&k);
    for bias in biases {
        scores = scores + *bias;
    }
    scores.softmax(-1).matmul(&split(v)).transpose(&[0, 2, 1, 3]).reshape(&[0, 0, heads as i64 * each])
}
