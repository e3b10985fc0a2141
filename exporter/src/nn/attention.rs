//! Attention of several heads.
//!
//! Scaled dot-product attention (<https://arxiv.org/abs/1706.03762>), `softmax(q · kᵀ / √(width of a head) + biases) ·
//! v`, in two forms: written out, for windows with biases that are learned; and as ONNX's own operator, for long
//! sequences, where no runtime should have to find out what the scores are for.

use super::{Groups, Scope, Sequences, channels, group_norm, linear, width};
use serde::Serialize;
use tileforge_graph::Value;

/// `q` `[batch, queries, heads · width]`, `k` and `v` `[batch, keys, heads · width]` → `[batch, queries, heads ·
/// width]`. Each bias stretches to `[batch, heads, queries, keys]`; they are added in order.
///
/// The scale stands on `q`, the smallest of what it could be applied to, and `k` is transposed right before the
/// product: there ONNX Runtime folds both into one FusedMatMul, and TensorRT sees the pattern of its fused attention.
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

/// Attention without biases between rows `q` `[batch · queries, heads · width]` and rows `k` and `v` `[batch · keys,
/// heads · width]`, which are sequences of their own. With `causal`, no query sees the keys behind its own place.
///
/// The operator is of opset 23. ONNX Runtime has it as one kernel on CPU and CUDA, and TensorRT from 10.14 as its fused
/// attention; on a CPU it gives the same bits as the form above, in 0.5 to 1 times its time.
pub fn attention_of_rows(
    [q, k, v]: [&Value; 3],
    queries: &Sequences,
    keys: &Sequences,
    heads: usize,
    causal: bool,
) -> Value {
    let seen = queries.of_rows(q).attention(&keys.of_rows(k), &keys.of_rows(v), heads, causal);
    seen.reshape(&[-1, width(q) as i64])
}

/// How the layers of an autoencoder's attention are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AttentionNames {
    /// `to_q`, `to_k`, `to_v`, `to_out.0`.
    Current,
    /// `query`, `key`, `value`, `proj_attn`: what older versions of diffusers saved.
    Old,
}

/// x + attention of one head between all pixels of an image, as autoencoders of latent diffusion have it in their
/// middle: `x` `[batch, channels, height, width]`.
pub fn attention_of_pixels(w: &Scope<'_>, x: &Value, names: AttentionNames, groups: Groups) -> Value {
    let names = match names {
        AttentionNames::Current => ["to_q", "to_k", "to_v", "to_out.0"],
        AttentionNames::Old => ["query", "key", "value", "proj_attn"],
    };
    let width = channels(x);
    let normal = group_norm(&w.at("group_norm"), x, groups.count, groups.epsilon);
    let pixels = Sequences::of(&normal.transpose(&[0, 2, 3, 1]));
    let rows = pixels.rows();
    let [q, k, v] = [0, 1, 2].map(|i| linear(&w.at(names[i]), &rows, width));
    let seen = attention_of_rows([&q, &k, &v], &pixels, &pixels, 1, false);
    x + pixels.restore(&linear(&w.at(names[3]), &seen, width)).transpose(&[0, 3, 1, 2])
}

/// Queries, keys and values of tokens `[tokens, width]`, whose layers are stored as one: `names` are those of its
/// weight `[3 · width, width]` and of its bias, if it is `biased`. Apart, their results need no splitting.
pub fn query_key_value(w: &Scope<'_>, x: &Value, [weight, bias]: [&str; 2], biased: bool) -> [Value; 3] {
    let (width, parts) = (width(x), ["query", "key", "value"]);
    let weights = w.parts(weight, [3 * width, width], parts);
    let biases = biased.then(|| w.parts(bias, [3 * width], parts));
    std::array::from_fn(|i| x.linear(&weights[i], biases.as_ref().map(|biases| &biases[i])))
}
