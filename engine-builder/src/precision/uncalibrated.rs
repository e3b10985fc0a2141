//! A graph in a precision, without calibration: enough to find out what its plan would run.

use super::islands::outside_f16;
use super::range::RangeMethod;
use super::recipe::{Recipe, default_layers};
use super::statistics::Histograms;
use crate::Result;
use std::collections::BTreeSet;
use tileforge_contract::{Precision, Provider};
use tileforge_graph::Model;

/// The model in a precision, as if every value had the range −1 to 1. In 8 bits, its default layers are quantised.
/// What a plan of it runs does not depend on the scales. A calibrated engine keeps more layers in more bits where FP16
/// cannot hold a value, or where a gate would be missed.
///
/// `None` if the precision is one of 8 bits, and the network has no layer for it.
///
/// # Errors
/// The graph cannot be converted: a weight has values that are infinite or NaN.
pub fn uncalibrated(model: &Model, precision: Precision, provider: Provider) -> Result<Option<Model>> {
    let mut statistics = Histograms::new();
    let values = model.nodes.iter().flat_map(|node| &node.outputs).chain(model.inputs.iter().map(|port| &port.name));
    values.for_each(|name| statistics.entry(name.clone()).or_default().add(&[-1.0, 1.0]));
    let outside = outside_f16(model, &statistics)?;
    let recipe = Recipe { precision, provider, range: RangeMethod::MinMax, statistics, outside };
    let layers = match recipe.scheme() {
        Some(scheme) => default_layers(model, scheme, provider)?.into_iter().collect(),
        None => BTreeSet::new(),
    };
    if recipe.is_8_bits() && layers.is_empty() {
        return Ok(None);
    }
    recipe.apply(model, &layers).map(Some)
}
