//! Adaptive normalisation of diffusion transformers: adaLN-single (PixArt-α, <https://arxiv.org/abs/2310.00426>).
//!
//! One vector is computed from the timestep and modulates every layer. Each layer adds its own learned vector to it.

use super::{Scope, width};
use tileforge_graph::Value;

/// The modulation of a layer, computed from the timestep: vectors `[width]`.
#[derive(Debug, Clone)]
pub struct Modulation {
    shift: Value,
    scale: Value,
    gate: Value,
}

impl Modulation {
    /// The modulations of `N` layers, from a vector `[1, width · N · 3]`: for each channel, the shift, the scale and
    /// the gate of each layer.
    pub fn of_layers<const N: usize>(vector: &Value) -> [Self; N] {
        let rows = 3 * N;
        let each = vector.reshape(&[-1, rows as i64]).transpose(&[1, 0]);
        let row = |number: usize| each.slice(0, number, number + 1).reshape(&[-1]);
        std::array::from_fn(|layer| Modulation {
            shift: row(3 * layer),
            scale: row(3 * layer + 1),
            gate: row(3 * layer + 2),
        })
    }

    /// `x · scale + shift`, before a layer. `x` are rows. The scale is stored with the 1 that other networks add to it.
    /// Parameters: `LAYER_scale`, `LAYER_shift`.
    pub fn apply(&self, w: &Scope<'_>, layer: &str, x: &Value) -> Value {
        x * with_own(w, &self.scale, &format!("{layer}_scale")) + with_own(w, &self.shift, &format!("{layer}_shift"))
    }

    /// `x · gate`, after a layer. Parameter: `LAYER_gate`.
    pub fn gate(&self, w: &Scope<'_>, layer: &str, x: &Value) -> Value {
        x * with_own(w, &self.gate, &format!("{layer}_gate"))
    }
}

/// A vector plus the layer's own one, `[1, width]`.
///
/// OpenVINO 2026.4.1 crashes while it compiles some small networks in which such a sum multiplies the second of two
/// linear layers, unless a Reshape follows the sum.
fn with_own(w: &Scope<'_>, vector: &Value, name: &str) -> Value {
    (vector + w.tensor(name, [width(vector)])).reshape(&[1, -1])
}
