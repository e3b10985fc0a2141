//! DINOv2: the vision transformer of the depth networks.
//!
//! Paper: <https://arxiv.org/abs/2304.07193>. Upstream: <https://github.com/facebookresearch/dinov2>,
//! `dinov2/models/vision_transformer.py`.

use super::{Scope, Sequences, attention_of_rows, layer_norm, linear, mlp, query_key_value};
use serde::Serialize;
use tileforge_graph::{ConvOptions, Value};

/// Side of the squares of pixels that become tokens.
pub const PATCH: usize = 14;
const EPSILON: f32 = 1e-6;
/// PyTorch's bicubic interpolation (Keys, 1981, with this a).
const CUBIC: f64 = -0.75;

/// The names of a network's layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Naming {
    /// The authors' names.
    Original,
    /// The names in the transformers library.
    Transformers,
}

/// Hyperparameters.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Dinov2 {
    /// Names of the layers.
    pub naming: Naming,
    /// Width of the tokens.
    pub dim: usize,
    /// Number of blocks.
    pub blocks: usize,
    /// Attention heads.
    pub heads: usize,
    /// Width between the layers of an MLP.
    pub hidden: usize,
    /// Side of the square images that the position embeddings were trained on, in patches.
    pub grid: usize,
    /// The blocks whose tokens are results.
    pub taps: [usize; 4],
}

impl Dinov2 {
    /// The patches of `image` `[batch, 3, height, width]` after each tapped block, normalised: `[batch, height/14 ·
    /// width/14, dim]`, and the height and the width in patches. The image has fixed sizes, because the position
    /// embeddings are resampled for them.
    pub fn features(&self, w: &Scope<'_>, image: &Value) -> ([Value; 4], [usize; 2]) {
        let [batch, _, height, width] = image.fixed_dims();
        let (rows, columns) = (height / PATCH, width / PATCH);
        let tokens = self.tokens(w, image, batch, [rows, columns]);
        let sequences = Sequences::new(&tokens);
        let mut x = sequences.rows();
        let mut features = Vec::with_capacity(self.taps.len());
        for number in 0..self.blocks {
            x = self.block(w, &x, &sequences, number);
            if self.taps.contains(&number) {
                let norm = if self.naming == Naming::Original { "norm" } else { "layernorm" };
                let normalised = sequences.restore(&layer_norm(&w.at(norm), &x, EPSILON));
                features.push(normalised.slice(1, 1, rows * columns + 1));
            }
        }
        let found = features.len();
        let features = features.try_into().unwrap_or_else(|_| {
            let (taps, blocks) = (self.taps, self.blocks);
            w.fail(format!("expected features of 4 different blocks of {blocks}, found {found} for {taps:?}"));
            std::array::from_fn(|_| x.clone())
        });
        (features, [rows, columns])
    }

    /// Whether a tensor is needed only for training.
    pub fn ignores(name: &str) -> bool {
        name == "mask_token" || name == "embeddings.mask_token"
    }

    /// `[batch, 1 + rows · columns, dim]`: the class token and the patches, each with the embedding of its position.
    fn tokens(&self, w: &Scope<'_>, image: &Value, batch: usize, [rows, columns]: [usize; 2]) -> Value {
        let (projection, class, position) = match self.naming {
            Naming::Original => ("patch_embed.proj", "cls_token", "pos_embed"),
            Naming::Transformers => {
                ("embeddings.patch_embeddings.projection", "embeddings.cls_token", "embeddings.position_embeddings")
            }
        };
        let projection = w.at(projection);
        let (weight, bias) =
            (projection.tensor("weight", [self.dim, 3, PATCH, PATCH]), projection.tensor("bias", [self.dim]));
        let options = ConvOptions { strides: vec![PATCH as i64; 2], pads: vec![0; 4], ..ConvOptions::same(PATCH) };
        let patches = image.conv(&weight, Some(&bias), &options);
        let patches = patches.reshape(&[0, self.dim as i64, -1]).transpose(&[0, 2, 1]);
        let class = w.computed_from(class, &[1, 1, self.dim], class, |token| token.rows(vec![0; batch]));
        let (places, dim) = (self.grid * self.grid + 1, self.dim);
        let (trained, shape) = (self.grid, vec![1, rows * columns + 1, self.dim]);
        let position = w.computed_from(position, &[1, places, dim], position, |table| {
            let table = table.reshaped(vec![places, dim])?;
            if [rows, columns] == [trained; 2] {
                return table.reshaped(shape);
            }
            let class = std::array::from_fn(|i| (0, if i == 0 { 1.0 } else { 0.0 }));
            let resampled = [vec![class], self.resampled(rows, columns)].concat();
            table.weighted_rows(&resampled)?.reshaped(shape)
        });
        class.concat(&[&patches], 1) + position
    }

    /// For the bicubic interpolation of each patch's embedding: rows of the table of embeddings, with their factors.
    fn resampled(&self, rows: usize, columns: usize) -> Vec<[(u32, f64); 16]> {
        // The authors' code adds 0.1 to the wanted size before it computes the scale, to avoid a rounding error of an
        // older version.
        let offset = if self.naming == Naming::Original { 0.1 } else { 0.0 };
        let axis = |wanted: usize| -> Vec<[(usize, f64); 4]> {
            let scale = (wanted as f64 + offset) / self.grid as f64;
            (0..wanted).map(|place| cubic((place as f64 + 0.5) / scale - 0.5, self.grid)).collect()
        };
        let (vertical, horizontal) = (axis(rows), axis(columns));
        let patch = |y: &[(usize, f64); 4], x: &[(usize, f64); 4]| {
            // The first row of the table is the class token's.
            std::array::from_fn(|i| {
                let ((row, a), (column, b)) = (y[i / 4], x[i % 4]);
                ((1 + row * self.grid + column) as u32, a * b)
            })
        };
        vertical.iter().flat_map(|y| horizontal.iter().map(move |x| patch(y, x))).collect()
    }

    /// y = x + attention(norm(x)), then y + mlp(norm(y)), each result scaled by channel.
    fn block(&self, w: &Scope<'_>, x: &Value, sequences: &Sequences, number: usize) -> Value {
        let original = self.naming == Naming::Original;
        let w = w.at(format!("{}.{number}", if original { "blocks" } else { "encoder.layer" }));
        let scales =
            if original { ["ls1.gamma", "ls2.gamma"] } else { ["layer_scale1.lambda1", "layer_scale2.lambda1"] };
        let [first, second] = scales.map(|name| w.tensor(name, [self.dim]));
        let normalised = layer_norm(&w.at("norm1"), x, EPSILON);
        let ([q, k, v], output) = if original {
            (query_key_value(&w.at("attn.qkv"), &normalised, ["weight", "bias"], true), "attn.proj")
        } else {
            (
                ["query", "key", "value"]
                    .map(|name| linear(&w.at("attention.attention").at(name), &normalised, self.dim)),
                "attention.output.dense",
            )
        };
        let attended = attention_of_rows([&q, &k, &v], sequences, sequences, self.heads, false);
        let x = x + linear(&w.at(output), &attended, self.dim) * first;
        let normalised = layer_norm(&w.at("norm2"), &x, EPSILON);
        &x + mlp(&w.at("mlp"), &normalised, self.hidden) * second
    }
}

/// The four neighbours of a position in a row of `count`, with their factors. The ends are repeated beyond the row.
fn cubic(position: f64, count: usize) -> [(usize, f64); 4] {
    let near = |t: f64| ((CUBIC + 2.0) * t - (CUBIC + 3.0)) * t * t + 1.0;
    let far = |t: f64| CUBIC * (((t - 5.0) * t + 8.0) * t - 4.0);
    let t = position - position.floor();
    let shares = [far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)];
    let place = |step: i64| (position.floor() as i64 + step - 1).clamp(0, count as i64 - 1) as usize;
    std::array::from_fn(|i| (place(i as i64), shares[i]))
}
