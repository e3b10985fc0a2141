//! Which nodes FP16 cannot hold.

use super::calibration::Statistics;
use super::rewrite::reads;
use crate::Result;
use graph::{DataType, Model};
use std::collections::BTreeSet;

/// The largest number of FP16.
const F16_MAXIMUM: f32 = 65504.0;
/// Calibration sees some images; others may reach twice as far.
const MARGIN: f32 = 2.0;

/// The nodes that must compute in FP32 because something that they read or make leaves FP16's range: an activation on the calibration
/// images, with a margin of 2, or a weight.
///
/// # Errors
/// A weight cannot be read.
pub(crate) fn outside_f16(model: &Model, statistics: &Statistics) -> Result<BTreeSet<String>> {
    let mut outside = BTreeSet::new();
    for (name, histogram) in statistics {
        // Written so that an infinite one counts.
        if histogram.non_finite || histogram.magnitude() * MARGIN > F16_MAXIMUM {
            outside.insert(name.as_str());
        }
    }
    for (name, weight) in model.weights.iter().filter(|(_, weight)| matches!(weight.data_type(), DataType::F32 | DataType::Bf16)) {
        let flat = weight.reshaped(vec![1, weight.elements()])?;
        if weight.elements() > 0 && !flat.channel_maxima(0)?.iter().all(|maximum| *maximum <= F16_MAXIMUM) {
            outside.insert(name.as_str());
        }
    }
    let touches = |node: &&graph::Node| reads(node).chain(node.outputs.iter().map(String::as_str)).any(|name| outside.contains(name));
    Ok(model.nodes.iter().filter(touches).map(|node| node.name.clone()).collect())
}
