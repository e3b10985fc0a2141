//! Which layers cost the most quality, and which fall back until the floor holds.

use super::quality::{Sensitivity, Trial, psnr_db};
use super::recipe::Recipe;
use crate::{Error, Floors, Result};
use std::collections::BTreeSet;
use tileforge_graph::Model;
use tileforge_graph::rewrite::fold_weight_casts;

/// The number of graphs in memory at a time. Each describes the whole model.
const AT_ONCE: usize = 16;

/// The least number of groups of layers to try, even if the budget has fewer runs.
const LEAST_GROUPS: usize = 16;

/// The largest choice of 8-bit layers that reaches the floor, found by leaving out the most sensitive layers first. If
/// layers are left out, `ranking` becomes their order. At most `most` runs find that order, as in [`sensitivity`].
///
/// # Errors
/// No choice reaches the floor, or ONNX Runtime refuses a graph.
pub(super) fn fallen_back(
    recipe: &Recipe,
    model: &Model,
    trial: &Trial<'_>,
    chosen: BTreeSet<String>,
    floors: &Floors,
    most: usize,
    ranking: &mut Vec<Sensitivity>,
) -> Result<BTreeSet<String>> {
    let reaches =
        |chosen: &BTreeSet<String>| Ok::<_, Error>(trial.measure(&recipe.apply(model, chosen)?)?.reaches(floors));
    if reaches(&chosen)? {
        return Ok(chosen);
    }
    *ranking = sensitivity(recipe, model, trial, &chosen, most)?;
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

/// Measures every layer alone in the low precision, the most expensive first. In 16 bits, `chosen` has no effect.
///
/// With more layers than `most` runs, neighbouring layers are measured together and share their figure.
///
/// # Errors
/// A graph cannot be converted, or ONNX Runtime refuses it.
pub(super) fn sensitivity(
    recipe: &Recipe,
    model: &Model,
    trial: &Trial<'_>,
    chosen: &BTreeSet<String>,
    most: usize,
) -> Result<Vec<Sensitivity>> {
    let folded = fold_weight_casts(model)?;
    let mut ranking = Vec::new();
    let layers = recipe.layers(&folded, chosen);
    let groups: Vec<&[String]> = layers.chunks(layers.len().div_ceil(most.max(LEAST_GROUPS)).max(1)).collect();
    for groups in groups.chunks(AT_ONCE) {
        let models = groups.iter().map(|group| recipe.only(&folded, group)).collect::<Result<Vec<_>>>()?;
        for (group, measured) in groups.iter().zip(&trial.measure_all(&models)?) {
            let one = |layer: &String| Sensitivity {
                layer: layer.clone(),
                together_with: group.len() - 1,
                psnr_db: psnr_db(measured),
            };
            ranking.extend(group.iter().map(one));
        }
    }
    ranking.sort_by(|a, b| a.psnr_db.total_cmp(&b.psnr_db));
    Ok(ranking)
}

/// The search for the layer that costs most quality, by halving the set of suspects. It takes a few runs;
/// [`sensitivity`] takes one for each of hundreds of layers.
pub(super) struct Halving<'a> {
    recipe: &'a Recipe,
    folded: Model,
    suspects: Vec<String>,
}

impl<'a> Halving<'a> {
    /// Starts with all chosen layers as suspects.
    ///
    /// # Errors
    /// Weights of the graph cannot be converted.
    pub(super) fn new(recipe: &'a Recipe, model: &Model, chosen: &BTreeSet<String>) -> Result<Self> {
        let folded = fold_weight_casts(model)?;
        let suspects = recipe.layers(&folded, chosen);
        Ok(Self { recipe, folded, suspects })
    }

    /// The number of graphs that it will measure, with the reference.
    pub(super) fn runs(&self) -> usize {
        2 * self.suspects.len().max(1).next_power_of_two().ilog2() as usize + 2
    }

    /// The worst layer; `None` if no layer is in the low precision.
    ///
    /// # Errors
    /// A graph cannot be converted, or ONNX Runtime refuses it.
    pub(super) fn worst(self, trial: &Trial<'_>) -> Result<Option<Sensitivity>> {
        let Self { recipe, folded, mut suspects } = self;
        let measured = |suspects: &[String]| Ok::<_, Error>(psnr_db(&trial.measure(&recipe.only(&folded, suspects)?)?));
        while suspects.len() > 1 {
            let (one, other) = suspects.split_at(suspects.len() / 2);
            suspects = if measured(one)? <= measured(other)? { one } else { other }.to_vec();
        }
        let worst = suspects.pop().map(|layer| {
            Ok::<_, Error>(Sensitivity { psnr_db: measured(std::slice::from_ref(&layer))?, together_with: 0, layer })
        });
        worst.transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::super::convert::tests::Conversion;
    use super::super::tests::{LAYERS, names};
    use super::*;
    use crate::RangeMethod;
    use tileforge_contract::{Precision, Provider};

    #[test]
    fn halving_finds_the_layer_that_is_worst_alone() {
        let conversion = Conversion::new();
        let (precision, provider) = (Precision::Int8, Provider::Cpu);
        let recipe = conversion.recipe(precision, provider);
        let job = conversion.job(precision, provider);
        let trial = Trial::new(&job, &conversion.file(), &[], conversion.folder.path()).unwrap();
        let ranking = sensitivity(&recipe, &conversion.model, &trial, &names(LAYERS), usize::MAX).unwrap();
        let alone: Vec<&str> = ranking.iter().map(|layer| layer.layer.as_str()).collect();
        assert_eq!((alone.len(), ranking[0].together_with), (LAYERS.len(), 0));
        for excluded in 0..LAYERS.len() - 1 {
            // The remaining layers stay in their order, from the worst to the best.
            let left = alone[excluded..].iter().map(|layer| (*layer).to_owned()).collect();
            for reversed in [false, true] {
                let mut halving = Halving::new(&recipe, &conversion.model, &left).unwrap();
                if reversed {
                    halving.suspects.reverse();
                }
                let worst = halving.worst(&trial).unwrap().unwrap();
                assert_eq!((worst.layer.as_str(), worst.together_with), (alone[excluded], 0), "{ranking:?}");
                assert_eq!(worst.psnr_db, ranking[excluded].psnr_db);
            }
        }
        let none = Halving::new(&recipe, &conversion.model, &BTreeSet::new()).unwrap();
        assert_eq!(none.worst(&trial).unwrap(), None);
    }

    #[test]
    fn halving_runs_twice_for_each_doubling_of_the_layers() {
        let recipe = Recipe {
            precision: Precision::Int8,
            provider: Provider::Cpu,
            range: RangeMethod::MinMax,
            statistics: Default::default(),
            outside: BTreeSet::new(),
        };
        for (suspects, runs) in [(0, 2), (1, 2), (2, 4), (3, 6), (5, 8), (8, 8), (100, 16)] {
            let suspects = vec![String::new(); suspects];
            assert_eq!(Halving { recipe: &recipe, folded: Model::default(), suspects }.runs(), runs);
        }
    }
}
