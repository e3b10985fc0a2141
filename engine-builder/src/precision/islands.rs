//! Which nodes FP16 cannot hold.

use super::calibration::Statistics;
use super::rewrite::reads;
use crate::Result;
use std::collections::BTreeSet;
use tileforge_graph::{DataType, Model};

/// The largest number of FP16.
const F16_MAXIMUM: f32 = 65504.0;
/// Calibration sees some images; others may reach twice as far.
const MARGIN: f32 = 2.0;

/// The names of the values that leave FP16's range: activations on the calibration images, with a margin of 2, and
/// weights. Whole numbers, such as tokens, are never in FP16.
///
/// # Errors
/// A weight cannot be read.
pub(crate) fn outside_f16(model: &Model, statistics: &Statistics) -> Result<BTreeSet<String>> {
    let mut outside = BTreeSet::new();
    for (name, histogram) in statistics {
        let is_float = model.type_of(name).is_some_and(|ty| ty.data_type.is_float());
        // Written so that an infinite one counts.
        if is_float && (histogram.non_finite || histogram.magnitude() * MARGIN > F16_MAXIMUM) {
            outside.insert(name.clone());
        }
    }
    for (name, weight) in
        model.weights.iter().filter(|(_, weight)| matches!(weight.data_type(), DataType::F32 | DataType::Bf16))
    {
        let flat = weight.reshaped(vec![1, weight.elements()])?;
        if weight.elements() > 0 && !flat.channel_maxima(0)?.iter().all(|maximum| *maximum <= F16_MAXIMUM) {
            outside.insert(name.clone());
        }
    }
    Ok(outside)
}

/// The nodes that must compute in FP32 because they read or make one of the values.
pub(crate) fn touching(model: &Model, values: &BTreeSet<String>) -> BTreeSet<String> {
    let touches = |node: &&tileforge_graph::Node| {
        reads(node).chain(node.outputs.iter().map(String::as_str)).any(|name| values.contains(name))
    };
    model.nodes.iter().filter(touches).map(|node| node.name.clone()).collect()
}
