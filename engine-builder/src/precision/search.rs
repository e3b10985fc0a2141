//! Which layers cost the most quality, and which fall back until the floor holds.

use super::quality::{Sensitivity, Trial, psnr_db};
use super::recipe::Recipe;
use crate::{Error, Floors, Measurement, Result};
use std::collections::BTreeSet;
use tileforge_graph::Model;
use tileforge_graph::rewrite::fold_weight_casts;

/// How many graphs are held at a time. Each describes the whole model.
const AT_ONCE: usize = 16;

/// The largest choice of 8-bit layers that reaches the floor, when the most sensitive layers are left out first. If
/// layers are left out, `ranking` becomes their order.
///
/// # Errors
/// No choice reaches the floor, or ONNX Runtime refuses a graph.
pub(super) fn fallen_back(
    recipe: &Recipe,
    model: &Model,
    trial: &Trial<'_>,
    chosen: BTreeSet<String>,
    floors: &Floors,
    ranking: &mut Vec<Sensitivity>,
) -> Result<BTreeSet<String>> {
    let reaches =
        |chosen: &BTreeSet<String>| Ok::<_, Error>(trial.measure(&recipe.apply(model, chosen)?)?.reaches(floors));
    if reaches(&chosen)? {
        return Ok(chosen);
    }
    *ranking = sensitivity(recipe, model, trial, &chosen)?;
    let without =
        |count: usize| -> BTreeSet<String> { ranking.iter().skip(count).map(|layer| layer.layer.clone()).collect() };
    // Halving assumes that fewer 8-bit layers give more quality. The gate checks the result.
    let (mut fails, mut holds) = (0, ranking.len());
    while holds - fails > 1 {
        let middle = usize::midpoint(fails, holds);
        if reaches(&without(middle))? { holds = middle } else { fails = middle }
    }
    let left = without(holds);
    if left.is_empty() {
        let worst = ranking.first().map_or(String::new(), |layer| format!("; {layer}"));
        let Floors { psnr_db, cosine, .. } = floors;
        let found = format!(
            "  no layer can be in {} with a PSNR of at least {psnr_db:.2} dB and a cosine of {cosine}{worst}",
            recipe.precision
        );
        return Err(Error::Gate(found));
    }
    Ok(left)
}

/// Every layer alone in the low precision, the most expensive first. In 16 bits, `chosen` has no effect.
///
/// # Errors
/// A graph cannot be converted, or ONNX Runtime refuses it.
pub(super) fn sensitivity(
    recipe: &Recipe,
    model: &Model,
    trial: &Trial<'_>,
    chosen: &BTreeSet<String>,
) -> Result<Vec<Sensitivity>> {
    let folded = fold_weight_casts(model)?;
    let mut ranking = Vec::new();
    for layers in recipe.layers(&folded, chosen).chunks(AT_ONCE) {
        let models =
            layers.iter().map(|layer| recipe.only(&folded, std::slice::from_ref(layer))).collect::<Result<Vec<_>>>()?;
        let measured = trial.measure_all(&models)?;
        let one = |(layer, measured): (&String, &Measurement)| Sensitivity {
            layer: layer.clone(),
            psnr_db: psnr_db(measured),
        };
        ranking.extend(layers.iter().zip(&measured).map(one));
    }
    ranking.sort_by(|a, b| a.psnr_db.total_cmp(&b.psnr_db));
    Ok(ranking)
}

/// The layer that costs most quality, found by halving the set of suspects. This takes a few runs; [`sensitivity`]
/// takes one for each of hundreds of layers. `None` if no layer is in the low precision.
///
/// # Errors
/// A graph cannot be converted, or ONNX Runtime refuses it.
pub(super) fn worst_by_halving(
    recipe: &Recipe,
    model: &Model,
    trial: &Trial<'_>,
    chosen: &BTreeSet<String>,
) -> Result<Option<Sensitivity>> {
    let folded = fold_weight_casts(model)?;
    let measured = |suspects: &[String]| Ok::<_, Error>(psnr_db(&trial.measure(&recipe.only(&folded, suspects)?)?));
    let mut suspects = recipe.layers(&folded, chosen);
    while suspects.len() > 1 {
        let (one, other) = suspects.split_at(suspects.len() / 2);
        suspects = if measured(one)? <= measured(other)? { one } else { other }.to_vec();
    }
    let worst = suspects
        .pop()
        .map(|layer| Ok::<_, Error>(Sensitivity { psnr_db: measured(std::slice::from_ref(&layer))?, layer }));
    worst.transpose()
}
