//! The fastest engine that passes its gates.

use crate::build::stage;
use crate::precision::SPEED_OVER_FP32;
use crate::{Built, Error, PartOrder, Plans, Progress, Result};
use std::path::Path;
use tileforge_contract::{Precision, Provider};
use tileforge_engine::exchange;
use tileforge_engine::manifest::{CalibrationRecipe, Recipe};
use tileforge_session::Environment;

/// Builds an engine for a processor in FP32 and in each precision that may be faster there. Puts the fastest engine
/// that passes its gates at `directory`, or the FP32 engine if no other passes. The manifest's recipe names the
/// precision, so a rebuild does not measure again.
///
/// # Errors
/// As [`build`](crate::build()), except for missed gates of precisions below FP32.
pub(crate) fn build_fastest(
    environment: &Environment,
    progress: &dyn Progress,
    order: &PartOrder<'_>,
    recipe: &Recipe,
    plans: &Plans,
    directory: &Path,
) -> Result<Built> {
    let make = |precision| {
        let mut profile = order.profile.clone();
        profile.set_precision(precision)?;
        let options = order.options.used_by(precision);
        // A rebuild refuses options that this precision does not use.
        let calibration = CalibrationRecipe {
            folder: recipe.calibration.folder.clone().filter(|_| options.calibration.is_some()),
            all_layers: options.all_layers,
            ..recipe.calibration.clone()
        };
        let recipe = Recipe { precision: Some(precision), calibration, ..recipe.clone() };
        let order = PartOrder { source: order.source, profile, options };
        stage(environment, progress, &order, Some(Box::new(recipe)), plans, directory)
    };
    let mut best: Option<(f64, exchange::Temporary, Built)> = None;
    for precision in candidates(environment, order.profile.provider) {
        match make(precision) {
            Ok((staging, built)) => {
                let speed = speed(&built).unwrap_or(0.0);
                progress.note(&format!("{precision}: {speed:.2} times as fast as fp32"));
                if best.as_ref().is_none_or(|best| speed > best.0) {
                    best = Some((speed, staging, built));
                }
            }
            Err(Error::Gate(missed)) => progress.note(&format!("{precision}: a gate is missed\n{missed}")),
            Err(error) => return Err(error),
        }
    }
    let (staging, built) = match best {
        Some((_, staging, built)) => (staging, built),
        None => make(Precision::Fp32)?,
    };
    exchange::put_in_place(staging, directory)?;
    Ok(built)
}

/// The precisions that may be faster than FP32 on this machine. FP16 is not one of them: processors compute FP16
/// graphs in FP32.
fn candidates(environment: &Environment, provider: Provider) -> Vec<Precision> {
    let computes_bf16 = provider == Provider::OpenVino && environment.library().computes_bf16() == Ok(true);
    let bf16 = computes_bf16.then_some(Precision::Bf16);
    bf16.into_iter().chain([Precision::Int8]).collect()
}

fn speed(built: &Built) -> Option<f64> {
    built.speed.iter().find(|gate| gate.name == SPEED_OVER_FP32).map(|gate| gate.value)
}
