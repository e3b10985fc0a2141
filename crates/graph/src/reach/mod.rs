//! How far a convolution network sees: its receptive field, from its operators.
//!
//! Each value has a [`Field`]: which rows and columns of the picture an element depends on, as a linear function of
//! its index. Every operator widens the field. An operator that sees the whole picture widens it by the picture's
//! size. So a field that is equal for two sizes of the picture is bounded.
//!
//! Tiles give the same pixels as the whole picture only if the network treats each place alike. So a constant that
//! differs from place to place, such as a position embedding, is refused.
#![warn(clippy::arithmetic_side_effects, clippy::integer_division)]

mod field;
mod graph;
mod operators;
mod ratio;

use crate::Model;
use field::Field;
use graph::Graph;
use ratio::Ratio;
use std::collections::HashMap;
use std::fmt;

/// A tensor of pictures, and its axes of rows and columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PictureAxes<'a> {
    /// The value's name.
    pub name: &'a str,
    /// The axes of rows and of columns.
    pub axes: [usize; 2],
}

/// What an output pixel depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// The maximum distance in each direction, in input pixels.
    pub radius: usize,
    /// The network treats places alike if their distance is a multiple of this number of input pixels: 2 after a
    /// convolution of stride 2.
    pub period: usize,
}

/// Why no receptive field can be stated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unbounded {
    /// The name of the node that sees too much; `None` where the graph as a whole does.
    pub node: Option<String>,
    /// The operator.
    pub operator: String,
    /// What the operator does.
    pub reason: String,
}

impl fmt::Display for Unbounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.node {
            Some(node) => {
                write!(f, "node `{}` ({}): {}", node.escape_debug(), self.operator.escape_debug(), self.reason)
            }
            None => f.write_str(&self.reason),
        }
    }
}

/// Largest period: networks shrink pictures by 64 at most.
const PERIOD_MAXIMUM: u64 = 1 << 10;

/// How far an element of `output` sees in `input`, in a model of fixed sizes. The output's sides are `scale` times the
/// input's.
///
/// If the network sees the whole picture, the radius depends on the picture's size: compare two sizes.
///
/// # Errors
/// The reach of an operator is not known, or the output has other sides.
pub fn reach(model: &Model, input: PictureAxes<'_>, output: PictureAxes<'_>, scale: usize) -> Result<Reach, Unbounded> {
    let whole = |reason: &str| Unbounded { node: None, operator: String::new(), reason: reason.to_owned() };
    let types: HashMap<&str, Vec<usize>> = model
        .types
        .iter()
        .map(|(name, ty)| (name.as_str(), ty))
        .chain(model.inputs.iter().map(|port| (port.name.as_str(), &port.ty)))
        .filter_map(|(name, ty)| Some((name, ty.fixed_dims()?)))
        .chain(model.weights.iter().map(|(name, weight)| (name.as_str(), weight.dims().to_vec())))
        .collect();
    let rank = types.get(input.name).map(Vec::len).ok_or_else(|| whole("the sizes of the input are not known"))?;
    let mut graph = Graph { model, dims: types, fields: HashMap::new() };
    graph.fields.insert(input.name, Field::of_picture(rank, input.axes));
    let mut period = 1;
    for node in &model.nodes {
        let unbounded =
            |reason: String| Unbounded { node: Some(node.name.clone()), operator: node.operator.clone(), reason };
        let seen = node.inputs.iter().any(|name| graph.fields.contains_key(name.as_str()));
        // Sizes and constants are the same in every tile.
        if !seen || matches!(node.operator.as_str(), "Shape" | "Size") {
            continue;
        }
        let fields = operators::outputs(&graph, node).map_err(unbounded)?;
        for (name, field) in node.outputs.iter().zip(fields) {
            period =
                periods(&field, period).ok_or_else(|| unbounded("it has no short period in the picture".into()))?;
            graph.fields.insert(name, field);
        }
    }
    let period = usize::try_from(period).map_err(|_| whole("its period is too large"))?;
    let (Some(field), Some(dims)) = (graph.fields.get(output.name), graph.dims.get(output.name)) else {
        return Err(whole("its output does not depend on the picture"));
    };
    let radius = radius(field, dims, output.axes, scale).ok_or_else(|| whole("its sizes overflow"))?;
    Ok(Reach { radius, period })
}

/// The least common multiple of a period and of the integer steps of a field.
fn periods(field: &Field, period: u64) -> Option<u64> {
    field.steps.iter().flatten().filter(|step| !step.is_zero()).try_fold(period, |period, step| {
        let step = step.numerator.unsigned_abs();
        let multiple = period.checked_mul(step.checked_div(ratio::common_divisor(period, step))?)?;
        (multiple <= PERIOD_MAXIMUM).then_some(multiple)
    })
}

/// The distance between an output element's own pixel, ⌊i / scale⌋, and the furthest pixel that the element sees.
fn radius(field: &Field, dims: &[usize], axes: [usize; 2], scale: usize) -> Option<usize> {
    let scale = i64::try_from(scale).ok().filter(|scale| *scale > 0)?;
    // The field of elements that see only their own pixel. The union brings `field` to the same steps.
    let mut own = Field::of_picture(dims.len(), axes);
    for step in own.steps.iter_mut().flatten() {
        *step = step.over(scale)?;
    }
    let all = own.union(field.clone(), dims)?;
    let inner = Ratio::new(scale.checked_sub(1)?, scale)?;
    let mut radius = 0;
    for (low, high) in all.low.into_iter().zip(all.high) {
        let (before, behind) = (Ratio::ZERO.minus(low)?.floor()?, high.plus(inner)?.floor()?);
        radius = radius.max(before).max(behind);
    }
    usize::try_from(radius).ok()
}

#[cfg(test)]
mod tests;
