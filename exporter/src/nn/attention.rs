//! Attention of several heads.
//!
//! Scaled dot-product attention (<https://arxiv.org/abs/1706.03762>), `softmax(q · kᵀ / √(width of a head) + biases) ·
//! v`, in two forms: as separate operations, for windows with learned biases; and as ONNX's own operator, for long
//! sequences, so that runtimes need not recognise a pattern of operations.

use super::{Groups, Scope, Sequences, channels, group_norm, linear, width};
use serde::Serialize;
use tileforge_graph::{ConvOptions, Value};

/// `q` and `k` `[batch, queries or keys, heads · width]`, `v` `[batch, keys, heads · its width]` → `[batch, queries,
/// heads · its width]`. Each bias is broadcast to `[batch, heads, queries, keys]`; the biases are added in order.
///
/// The scale multiplies `q`, the smallest possible operand, and `k` is transposed right before the product. ONNX
/// Runtime then folds both into one FusedMatMul, and TensorRT recognises its pattern of fused attention.
pub fn attention(q: &Value, k: &Value, v: &Value, heads: usize, biases: &[&Value]) -> Value {
    let k = keys_in_heads(k, heads);
    let each = width(q) / heads.max(1);
    attention_of_heads(&in_heads(q, heads).scale(1.0 / (each as f32).sqrt()), &k, v, heads, biases)
}

/// As [`attention`], with `factor` in place of the scale; it is broadcast to `[batch, heads, queries, width]`.
pub fn attention_scaled_by(factor: &Value, [q, k, v]: [&Value; 3], heads: usize, biases: &[&Value]) -> Value {
    let k = keys_in_heads(k, heads);
    attention_of_heads(&(in_heads(q, heads) * factor), &k, v, heads, biases)
}

/// `[batch, tokens, heads · width]` → `[batch, heads, tokens, width]`.
fn in_heads(x: &Value, heads: usize) -> Value {
    x.reshape(&[0, 0, heads as i64, (width(x) / heads.max(1)) as i64]).transpose(&[0, 2, 1, 3])
}

/// `[batch, tokens, heads · width]` → `[batch, heads, width, tokens]`.
fn keys_in_heads(x: &Value, heads: usize) -> Value {
    x.reshape(&[0, 0, heads as i64, (width(x) / heads.max(1)) as i64]).transpose(&[0, 2, 3, 1])
}

fn attention_of_heads(q: &Value, k: &Value, v: &Value, heads: usize, biases: &[&Value]) -> Value {
    let mut scores = q.matmul(k);
    for bias in biases {
        scores = scores + *bias;
    }
    let joined = (width(v) / heads.max(1) * heads) as i64;
    scores.softmax(-1).matmul(&in_heads(v, heads)).transpose(&[0, 2, 1, 3]).reshape(&[0, 0, joined])
}

/// Attention without biases between rows `q` `[batch · queries, heads · width]` and rows `k` and `v` `[batch · keys,
/// heads · width]`, which are split into sequences. With `causal`, a query reads no key after its own position.
///
/// The operator needs opset 23. ONNX Runtime has it as one kernel on CPU and CUDA, and TensorRT from 10.14 as its fused
/// attention; on a CPU it gives the same bits as the form above, in 0.5 to 1 times its time.
pub fn attention_of_rows(
    [q, k, v]: [&Value; 3],
    queries: &Sequences,
    keys: &Sequences,
    heads: usize,
    causal: bool,
) -> Value {
    let attended = queries.split(q).attention(&keys.split(k), &keys.split(v), heads, causal);
    attended.reshape(&[-1, width(q) as i64])
}

/// The names of the layers of an autoencoder's attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AttentionNames {
    /// `to_q`, `to_k`, `to_v`, `to_out.0`.
    Current,
    /// `query`, `key`, `value`, `proj_attn`, as older versions of diffusers saved them.
    Old,
}

/// x + attention of one head between all pixels of an image, as in the middle of latent diffusion's autoencoders: `x`
/// `[batch, channels, height, width]`.
pub fn attention_of_pixels(w: &Scope<'_>, x: &Value, names: AttentionNames, groups: Groups) -> Value {
    let names = match names {
        AttentionNames::Current => ["to_q", "to_k", "to_v", "to_out.0"],
        AttentionNames::Old => ["query", "key", "value", "proj_attn"],
    };
    let width = channels(x);
    let normalised = group_norm(&w.at("group_norm"), x, groups.count, groups.epsilon);
    let pixels = Sequences::new(&normalised.transpose(&[0, 2, 3, 1]));
    let rows = pixels.rows();
    let [q, k, v] = [0, 1, 2].map(|i| linear(&w.at(names[i]), &rows, width));
    let attended = attention_of_rows([&q, &k, &v], &pixels, &pixels, 1, false);
    x + pixels.restore(&linear(&w.at(names[3]), &attended, width)).transpose(&[0, 3, 1, 2])
}

/// Queries, keys and values of tokens `[tokens, width]`, from three layers that are stored as one: `names` are the
/// names of its weight `[3 · width, width]` and of its bias, if it is `biased`. Three products need no splitting of
/// their results.
pub fn query_key_value(w: &Scope<'_>, x: &Value, [weight, bias]: [&str; 2], biased: bool) -> [Value; 3] {
    let (width, parts) = (width(x), ["query", "key", "value"]);
    let weights = w.parts(weight, [3 * width, width], parts);
    let biases = biased.then(|| w.parts(bias, [3 * width], parts));
    std::array::from_fn(|i| x.linear(&weights[i], biases.as_ref().map(|biases| &biases[i])))
}

/// As [`query_key_value`], of the pixels of an image `[batch, width, height, width of the image]` → images of the same
/// sizes.
pub fn query_key_value_of_image(w: &Scope<'_>, x: &Value, [weight, bias]: [&str; 2], biased: bool) -> [Value; 3] {
    let (width, parts) = (channels(x), ["query", "key", "value"]);
    let stored = w.stored(weight, &[3 * width, width]);
    let biases = biased.then(|| w.parts(bias, [3 * width], parts));
    std::array::from_fn(|i| {
        let rows = (i as u32 * width as u32..(i as u32 + 1) * width as u32).collect::<Vec<_>>();
        let part = stored.as_ref().map_err(Clone::clone);
        let part = part.and_then(|stored| stored.rows(rows)?.reshaped(vec![width, width, 1, 1]));
        let part = w.made(&format!("{}.{weight}", parts[i]), part);
        x.conv(&part, biases.as_ref().map(|biases| &biases[i]), &ConvOptions::same(1))
    })
}
