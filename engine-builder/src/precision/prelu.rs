//! PReLU for ONNX Runtime's CPU kernels, which have none in 8 bits and none in the blocked layout of FP32 convolutions.
//!
//! | form | of | computes |
//! |---|---|---|
//! | [`Stage`]s | 8 bits | the larger or smaller of x and slope · x, where both have one code: an extreme of codes is the code of the extreme |
//! | [`blocked`] | FP32 | (1 − slope) · relu(x) + slope · x: ONNX Runtime makes 1×1 convolutions of the products, and adds within one |

use super::rewrite::{Rewrite, only_reader, readers};
use crate::Result;
use tileforge_graph::{DataType, Model, Node, Weight};

/// A PReLU with one slope for each channel, which alone reads a convolution.
pub(super) struct Prelu {
    /// Its position in the model.
    pub(super) position: usize,
    pub(super) slopes: Vec<f32>,
}

/// One step of PReLU in 8 bits: the extreme of a value and of its product with one factor for each channel.
pub(super) struct Stage {
    pub(super) operator: &'static str,
    pub(super) factors: Vec<f32>,
}

impl Prelu {
    /// The one behind `convolution`, if there is one. `readers` are those of `model`'s nodes.
    pub(super) fn behind(model: &Model, convolution: &Node, position: Option<usize>) -> Result<Option<Self>> {
        let Some(position) = position.filter(|_| convolution.operator == "Conv") else { return Ok(None) };
        let reader = &model.nodes[position];
        let slope = reader.inputs.get(1).and_then(|name| model.weights.get(name));
        let Some(slope) = slope.filter(|_| reader.operator == "PRelu") else { return Ok(None) };
        let filters = model.weights.get(&convolution.inputs[1]).map(|weight| weight.dims()[0]);
        // [channels, 1, 1] against [batch, channels, height, width].
        let per_channel = slope.dims() == [slope.elements(), 1, 1] && Some(slope.elements()) == filters;
        Ok(if per_channel { Some(Prelu { position, slopes: slope.to_f32s()? }) } else { None })
    }

    /// PReLU is max(x, s · x) where the slope s is at most 1, and min(x, s · x) where it is at least 1. Of channels of
    /// both kinds, each step leaves the others as they are: their factor is 1, and the product of codes by 1 is exact.
    pub(super) fn stages(&self) -> Vec<Stage> {
        let stage = |operator, clamped: fn(f32, f32) -> f32| Stage {
            operator,
            factors: self.slopes.iter().map(|slope| clamped(*slope, 1.0)).collect::<Vec<_>>(),
        };
        let all = [stage("Max", f32::min), stage("Min", f32::max)];
        all.into_iter().filter(|stage| stage.factors.iter().any(|factor| *factor != 1.0)).collect()
    }
}

/// The model with every PReLU behind a convolution in a form that stays in the convolution's layout.
///
/// # Errors
/// A slope cannot be read, or the result does not fit the operators' rules.
pub(super) fn blocked(model: &Model) -> Result<Model> {
    let readers = readers(&model.nodes);
    let mut found = vec![None; model.nodes.len()];
    for node in &model.nodes {
        let only = node.outputs.first().and_then(|output| only_reader(&readers, output));
        if let Some(prelu) = Prelu::behind(model, node, only)? {
            found[prelu.position] = Some(prelu.slopes);
        }
    }
    let (mut rewrite, nodes) = Rewrite::of(model);
    for (node, slopes) in nodes.into_iter().zip(found) {
        let Some(slopes) = slopes else {
            rewrite.model.nodes.push(node);
            continue;
        };
        let factors = |rewrite: &mut Rewrite, kind: &str, of: &dyn Fn(f32) -> f32| -> Result<String> {
            let bytes: Vec<u8> = slopes.iter().flat_map(|slope| of(*slope).to_le_bytes()).collect();
            let weight = Weight::from_bytes(DataType::F32, vec![slopes.len(), 1, 1], bytes)?;
            Ok(rewrite.weight(&format!("{}/{kind}", node.name), weight))
        };
        let rest = factors(&mut rewrite, "rest", &|slope| 1.0 - slope)?;
        let slope = factors(&mut rewrite, "slope", &|slope| slope)?;
        let positive = rewrite.node(&format!("{}/Relu", node.name), "Relu", &[&node.inputs[0]], &[]);
        let positive = rewrite.node(&format!("{}/Mul", node.name), "Mul", &[&positive, &rest], &[]);
        let whole = rewrite.node(&format!("{}/Mul", node.name), "Mul", &[&node.inputs[0], &slope], &[]);
        rewrite.node_with_outputs(&node.name, "Add", &[&positive, &whole], &[], &node.outputs);
    }
    rewrite.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the stages make of a value in a channel.
    fn staged(slopes: &[f32], channel: usize, x: f32) -> f32 {
        let prelu = Prelu { position: 0, slopes: slopes.to_vec() };
        prelu.stages().into_iter().fold(x, |x, stage| {
            let product = x * stage.factors[channel];
            if stage.operator == "Max" { x.max(product) } else { x.min(product) }
        })
    }

    #[test]
    fn the_stages_are_prelu_for_any_slopes() {
        for slopes in [vec![0.25, -0.5, 0.0, 1.0], vec![1.5, 3.0], vec![0.25, 2.0, -1.5, 1.0], vec![1.0, 1.0]] {
            for (channel, slope) in slopes.iter().enumerate() {
                for x in [-2.0_f32, -0.5, 0.0, 0.75, 4.0] {
                    let expected = if x < 0.0 { slope * x } else { x };
                    assert_eq!(staged(&slopes, channel, x), expected, "{slopes:?} {channel} {x}");
                }
            }
        }
        let stages = |slopes: &[f32]| Prelu { position: 0, slopes: slopes.to_vec() }.stages().len();
        assert_eq!((stages(&[0.1, -3.0]), stages(&[1.5]), stages(&[0.1, 1.5]), stages(&[1.0])), (1, 1, 2, 0));
    }
}
