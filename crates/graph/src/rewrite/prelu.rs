//! PReLU for runtimes that lack a kernel for it.
//!
//! [`Stage`]s take the larger or the smaller of x and slope · x. This equals PReLU in every precision, because a
//! comparison does not round. ONNX Runtime's CPU provider has no PReLU in 8 bits. There, both operands share one scale
//! and zero point, so quantised values have the same order as the values that they represent. TensorRT for RTX needs
//! an extra pass over memory for a PReLU, but fuses the result of [`prelu_as_extremes`] into the convolution before
//! it.
//!
//! ONNX Runtime's CPU provider has no PReLU in the blocked layout of FP32 convolutions either. [`prelu_as_products`]
//! computes (1 − slope) · relu(x) + slope · x there: ONNX Runtime turns the products into 1×1 convolutions, and fuses
//! the sum into one of them.

use super::{Names, Patch, Readers, Rule, apply};
use crate::{Model, Node, Result, Weight};

/// A PReLU with one slope for each channel that is the only reader of a convolution.
pub(super) struct Prelu {
    /// Its position in the model.
    pub(super) position: usize,
    pub(super) slopes: Vec<f32>,
}

/// One step of PReLU: the maximum or minimum of a value and its product with one factor for each channel.
pub(super) struct Stage {
    pub(super) operator: &'static str,
    pub(super) factors: Vec<f32>,
}

impl Prelu {
    /// The PReLU after `convolution`, if there is one. `reader` is the position of the only node that reads the
    /// convolution.
    pub(super) fn after(model: &Model, convolution: &Node, reader: Option<usize>) -> Result<Option<Self>> {
        let Some(position) = reader.filter(|_| convolution.operator == "Conv") else { return Ok(None) };
        let reader = &model.nodes[position];
        let slope = reader.inputs.get(1).and_then(|name| model.weights.get(name));
        let Some(slope) = slope.filter(|_| reader.operator == "PRelu") else { return Ok(None) };
        let filters = model.weights.get(&convolution.inputs[1]).map(|weight| weight.dims()[0]);
        // [channels, 1, 1] against [batch, channels, height, width].
        let per_channel = slope.dims() == [slope.elements(), 1, 1] && Some(slope.elements()) == filters;
        Ok(if per_channel { Some(Prelu { position, slopes: slope.to_f32s()? }) } else { None })
    }
}

impl Stage {
    /// PReLU is max(x, s · x) where the slope s is at most 1, and min(x, s · x) where it is at least 1. If there are
    /// channels of both kinds, each step leaves the others unchanged: their factor is 1, and a product with 1 is exact.
    pub(super) fn of(slopes: &[f32]) -> Vec<Stage> {
        let stage = |operator, clamped: fn(f32, f32) -> f32| Stage {
            operator,
            factors: slopes.iter().map(|slope| clamped(*slope, 1.0)).collect::<Vec<_>>(),
        };
        let all = [stage("Max", f32::min), stage("Min", f32::max)];
        all.into_iter().filter(|stage| stage.factors.iter().any(|factor| *factor != 1.0)).collect()
    }
}

/// Replaces every PReLU of constant slopes with the larger or the smaller of x and slope · x, and returns their
/// number. Values do not change, except where x is infinite and its slope is 0.
///
/// # Errors
/// A slope cannot be read, or the result breaks the operators' rules.
pub fn prelu_as_extremes(model: &mut Model) -> Result<usize> {
    let mut rule = PreluAsExtremes { model: &*model };
    let count = model.nodes.iter().filter(|node| rule.slope(node).is_some()).count();
    if count > 0 {
        *model = apply(model, &mut rule)?;
    }
    Ok(count)
}

struct PreluAsExtremes<'a> {
    /// The original model.
    model: &'a Model,
}

impl<'a> PreluAsExtremes<'a> {
    /// The slopes of a PReLU, if they are constant.
    fn slope(&self, node: &Node) -> Option<&'a Weight> {
        self.model.weights.get(node.inputs.get(1)?).filter(|_| node.is("PRelu"))
    }
}

impl Rule for PreluAsExtremes<'_> {
    fn patch<'n>(&mut self, _: usize, node: &Node, names: &'n mut Names) -> Result<Option<Patch<'n>>> {
        let Some(slope) = self.slope(node) else { return Ok(None) };
        let mut patch = Patch::new(names);
        let mut stages = Stage::of(&slope.to_f32s()?).into_iter().peekable();
        let mut value = node.inputs[0].clone();
        if stages.peek().is_none() {
            patch.substitute(node, "Identity", &[&value], []);
        }
        while let Some(Stage { operator, factors }) = stages.next() {
            let factors = Weight::from_f32s(slope.dims().to_vec(), &factors)?.cast(slope.data_type())?;
            let factors = patch.weight(&format!("{}/factors", node.name), factors);
            let product = patch.node(&format!("{}/Mul", node.name), "Mul", &[&value, &factors], []);
            if stages.peek().is_some() {
                value = patch.node(&format!("{}/{operator}", node.name), operator, &[&value, &product], []);
            } else {
                patch.substitute(node, operator, &[&value, &product], []);
            }
        }
        Ok(Some(patch))
    }
}

/// The model with every PReLU after a convolution in a form that keeps the convolution's layout.
///
/// # Errors
/// A slope cannot be read, or the result breaks the operators' rules.
pub fn prelu_as_products(model: &Model) -> Result<Model> {
    let readers = Readers::new(&model.nodes);
    let mut slopes = vec![None; model.nodes.len()];
    for node in &model.nodes {
        let reader = node.outputs.first().and_then(|output| readers.only(output));
        if let Some(prelu) = Prelu::after(model, node, reader)? {
            slopes[prelu.position] = Some(prelu.slopes);
        }
    }
    apply(model, &mut PreluAsProducts { slopes })
}

struct PreluAsProducts {
    /// The slopes of each such PReLU, by the node's position.
    slopes: Vec<Option<Vec<f32>>>,
}

impl Rule for PreluAsProducts {
    fn patch<'n>(&mut self, position: usize, node: &Node, names: &'n mut Names) -> Result<Option<Patch<'n>>> {
        let Some(slopes) = self.slopes[position].take() else { return Ok(None) };
        let mut patch = Patch::new(names);
        let mut factors = |kind: &str, factors: Vec<f32>| -> Result<String> {
            let weight = Weight::from_f32s(vec![factors.len(), 1, 1], &factors)?;
            Ok(patch.weight(&format!("{}/{kind}", node.name), weight))
        };
        let rest = factors("rest", slopes.iter().map(|slope| 1.0 - slope).collect())?;
        let slope = factors("slope", slopes)?;
        let positive = patch.node(&format!("{}/Relu", node.name), "Relu", &[&node.inputs[0]], []);
        let positive = patch.node(&format!("{}/Mul", node.name), "Mul", &[&positive, &rest], []);
        let whole = patch.node(&format!("{}/Mul", node.name), "Mul", &[&node.inputs[0], &slope], []);
        patch.substitute(node, "Add", &[&positive, &whole], []);
        Ok(Some(patch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result of the stages for a value in a channel.
    fn staged(slopes: &[f32], channel: usize, x: f32) -> f32 {
        Stage::of(slopes).into_iter().fold(x, |x, stage| {
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
        let stages = |slopes: &[f32]| Stage::of(slopes).len();
        assert_eq!((stages(&[0.1, -3.0]), stages(&[1.5]), stages(&[0.1, 1.5]), stages(&[1.0])), (1, 1, 2, 0));
    }
}
