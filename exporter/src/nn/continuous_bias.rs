//! Position biases that a small network computes from distances (Swin Transformer V2,
//! <https://arxiv.org/abs/2111.09883>).

use super::Scope;
use tileforge_graph::{DataType, Result, Weight};

/// A table of biases of attention scores `[distances, heads]`, computed when the weights are written: 16 · sigmoid of
/// two layers with ReLU between them, of `positions` neurons. `distances` are pairs of numbers, in the scale that the
/// network takes. Parameters: `cpb_mlp.0` with a bias, `cpb_mlp.2` without.
pub fn continuous_biases(w: &Scope<'_>, distances: &[f64], positions: usize, heads: usize) -> Result<Weight> {
    let numbers = |name: &str, dims: &[usize]| {
        let numbers = w.stored(name, dims)?.to_f32s()?;
        Ok::<Vec<f64>, tileforge_graph::Error>(numbers.into_iter().map(f64::from).collect())
    };
    let first = numbers("cpb_mlp.0.weight", &[positions, 2])?;
    let bias = numbers("cpb_mlp.0.bias", &[positions])?;
    let second = numbers("cpb_mlp.2.weight", &[heads, positions])?;
    let sum = |weights: &[f64], inputs: &[f64]| weights.iter().zip(inputs).map(|(a, b)| a * b).sum::<f64>();
    let mut table = Vec::new();
    for distance in distances.chunks(2) {
        let neuron = |(weights, bias): (&[f64], &f64)| (sum(weights, distance) + bias).max(0.0);
        let neurons: Vec<f64> = first.chunks(2).zip(&bias).map(neuron).collect();
        let biases = second.chunks(positions.max(1)).map(|weights| 16.0 / (1.0 + (-sum(weights, &neurons)).exp()));
        table.extend(biases.flat_map(|bias| (bias as f32).to_le_bytes()));
    }
    Weight::from_bytes(DataType::F32, vec![distances.len() / 2, heads], table)
}
