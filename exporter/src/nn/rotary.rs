//! Rotary position embedding (RoFormer, <https://arxiv.org/abs/2104.09864>).

use std::collections::HashMap;
use tileforge_graph::{Constant, Trace, Value};

/// How the channels of each token are rotated: cosines and sines, constants of the graph.
#[derive(Debug, Clone)]
pub struct Rotation {
    /// `[tokens, 1, width]`, 1 for a channel that is not rotated.
    cosines: Value,
    /// `[tokens, 1, width]`, negative for the first channel of each pair, 0 for a channel that is not rotated.
    sines: Value,
    /// For each channel, the other one of its pair.
    partners: Vec<i64>,
}

impl Rotation {
    /// Rotates channel `2 · i` towards channel `2 · i + 1` of each head by the angle `i` of the token. `angles` has the
    /// angles of each token, in radians. The channels after the last angle are not rotated.
    ///
    /// Most tokens share their angles with others. The graph holds a table of the different ones, and their numbers.
    pub fn new(trace: &Trace, width: usize, angles: &[Vec<f64>]) -> Self {
        let (mut rows, mut different, mut numbers) = (HashMap::new(), Vec::new(), Vec::with_capacity(angles.len()));
        for of_token in angles {
            let bits: Vec<u64> = of_token.iter().map(|angle| angle.to_bits()).collect();
            numbers.push(*rows.entry(bits).or_insert_with(|| {
                different.push(of_token);
                different.len() as i64 - 1
            }));
        }
        let table = |name: &str, [first, second]: [fn(f64) -> f64; 2], rest: f32| {
            let row = |angles: &&Vec<f64>| {
                let mut row: Vec<f32> =
                    angles.iter().flat_map(|angle| [first(*angle) as f32, second(*angle) as f32]).collect();
                row.resize(width, rest);
                row
            };
            let values: Vec<f32> = different.iter().flat_map(row).collect();
            trace.constant(name, &[different.len(), 1, width], Constant::F32(&values)).gather(&numbers, 0)
        };
        let rotated = 2 * angles.first().map_or(0, Vec::len);
        let partner = |channel: usize| if channel < rotated { channel ^ 1 } else { channel };
        Rotation {
            cosines: table("cosines", [f64::cos, f64::cos], 1.0),
            sines: table("sines", [|angle| -angle.sin(), f64::sin], 0.0),
            partners: (0..width).map(|channel| partner(channel) as i64).collect(),
        }
    }

    /// `[batch, tokens, heads, width]` → the same.
    pub fn apply(&self, x: &Value) -> Value {
        x * &self.cosines + x.gather(&self.partners, -1) * &self.sines
    }
}
