//! Attention of several heads.

use super::{Sequences, width};
use graph::Value;

/// Scaled dot-product attention (<https://arxiv.org/abs/1706.03762>): `softmax(q · kᵀ / √(width of a head) + biases) · v`.
///
/// `q` `[batch, queries, heads · width]`, `k` and `v` `[batch, keys, heads · width]` → `[batch, queries, heads · width]`. Each bias
/// stretches to `[batch, heads, queries, keys]`; they are added in order.
pub fn attention(q: &Value, k: &Value, v: &Value, heads: usize, biases: &[&Value]) -> Value {
    let (all, each) = (width(q) as i64, (width(q) / heads.max(1)) as i64);
    let [q, k, v] = [q, k, v].map(|x| x.reshape(&[0, 0, heads as i64, each]));
    of_heads(&q, &k, &v, biases).reshape(&[0, 0, all])
}

/// As [`attention`], between rows `q` `[batch · queries, heads · width]` and rows `k` and `v` `[batch · keys, heads · width]`, which are
/// sequences of their own.
pub fn attention_of_rows([q, k, v]: [&Value; 3], queries: &Sequences, keys: &Sequences, heads: usize, biases: &[&Value]) -> Value {
    of_heads(&queries.heads(q, heads), &keys.heads(k, heads), &keys.heads(v, heads), biases).reshape(&[-1, width(q) as i64])
}

/// `q`, `k`, `v` and the result are `[batch, tokens, heads, width of a head]`.
///
/// The scale stands on `q`, the smallest of what it could be applied to, and `k` is transposed right before the product: there ONNX
/// Runtime folds both into one FusedMatMul, and TensorRT sees the pattern of its fused attention.
fn of_heads(q: &Value, k: &Value, v: &Value, biases: &[&Value]) -> Value {
    let [q, v] = [q, v].map(|x| x.transpose(&[0, 2, 1, 3]));
    let mut scores = q.scale(1.0 / (width(&q) as f32).sqrt()).matmul(&k.transpose(&[0, 2, 3, 1]));
    for bias in biases {
        scores = scores + *bias;
    }
    scores.softmax(-1).matmul(&v).transpose(&[0, 2, 1, 3])
}
