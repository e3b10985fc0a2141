//! Numbers as vectors of sines and cosines.

use tileforge_graph::{Constant, Value};

/// Embedding of a number as a vector (<https://arxiv.org/abs/1706.03762>, 3.5; the period is diffusers' `max_period`).
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Sinusoids {
    /// Whether the cosines come before the sines.
    pub flip_sin_to_cos: bool,
    /// Subtracted from the number of frequencies in the exponent's denominator.
    pub freq_shift: f64,
}

const MAX_PERIOD: f32 = 10_000.0;

/// ONNX Runtime computes this many sines at once, and the remaining ones one by one, which rounds differently. If rows
/// consist of whole groups, a row has the same bytes at every place in a batch.
const GROUP: usize = 4;

impl Sinusoids {
    /// `numbers` `[count, 1]` → `[count, width]`.
    ///
    /// The frequencies are rounded to f32 as in PyTorch: at a timestep of 1000, another rounding would change the
    /// angles.
    pub fn embed(&self, numbers: &Value, width: usize) -> Value {
        let half = width / 2;
        let exponent = |i: usize| -MAX_PERIOD.ln() * i as f32 / (half as f32 - self.freq_shift as f32);
        let mut frequencies: Vec<f32> = (0..half).map(|i| f64::from(exponent(i)).exp() as f32).collect();
        frequencies.resize(half.next_multiple_of(GROUP), 0.0);
        let dims = [1, frequencies.len()];
        let angles = numbers * &numbers.trace().constant("frequencies", &dims, Constant::F32(&frequencies));
        let (mut sines, mut cosines) = (angles.sin(), angles.cos());
        if frequencies.len() > half {
            [sines, cosines] = [sines, cosines].map(|values| values.slice(1, 0, half));
        }
        if self.flip_sin_to_cos { cosines.concat(&[&sines], 1) } else { sines.concat(&[&cosines], 1) }
    }
}
