//! Gates and self-test: what the engine's graphs compute, beside the graphs as they were exported.

use std::path::Path;

use tileforge_contract::Precision;
use tileforge_engine::manifest::{Gate, SelfTest};
use tileforge_session::selftest;

use super::graphs::EngineGraph;
use crate::precision::{self, Converted, Job, Trial};
use crate::samples::views;
use crate::{Error, Measurement, Result, Source};

const SELFTEST_FILE: &str = "selftest.safetensors";

/// What [`measure`] found.
pub(super) struct Measured {
    /// Gates of quality: the same in every build.
    pub(super) gates: Vec<Gate>,
    /// Gates of speed.
    pub(super) speed: Vec<Gate>,
    pub(super) selftest: SelfTest,
}

/// Runs the engine's graphs against their references. Keeps the sample and the output of the smallest size as the
/// self-test.
pub(super) fn measure(
    source: &Source,
    job: &Job<'_>,
    graphs: &[EngineGraph],
    converted: &Converted,
    staging: &Path,
    scratch: &Path,
) -> Result<Measured> {
    let (mut gates, mut speed) = (Vec::new(), Vec::new());
    let mut selftest = None;
    let runs: usize = graphs.iter().map(|graph| graph.references.len()).sum();
    // Each graph and its reference, on each sample.
    job.progress.begin("measuring graphs against their references", 2 * (runs + converted.judged.len()));
    let ran = || job.progress.step();
    let mut done = 0;
    for graph in graphs {
        let file = graph.emulation.clone().unwrap_or_else(|| staging.join(&graph.record.file));
        // Of a graph that is run in several sizes, the worst counts.
        let mut worst: Option<Measurement> = None;
        for reference in &graph.references {
            let trial = Trial::with_progress(job, reference, &converted.judged, scratch, &ran)?;
            let (measured, outputs) = trial.measure_file(&file, &ran)?;
            worst = Some(worst.map_or(measured, |worst| worst.or_worse(&measured)));
            done += 1;
            // Speed is their purpose. It is measured only where the engine runs: a CPU says nothing about a GPU.
            let is_for_speed = matches!(job.precision, Precision::Int8 | Precision::Bf16);
            if is_for_speed && job.provider.is_on_processor() && done == runs {
                let rivals = converted.rivals(reference, scratch)?;
                let ratios = precision::speed_ratios(job, &rivals, &file, trial.sample())?;
                speed.extend(rivals.iter().zip(ratios).map(|(rival, ratio)| Gate {
                    name: rival.gate.into(),
                    graph: graph.record.file.clone(),
                    value: ratio,
                    floor: job.floors.speed,
                }));
            }
            if selftest.is_none() {
                let path = staging.join(SELFTEST_FILE);
                // The self-test asks whether another machine computes what this one computed. So it expects the
                // engine's own output, not that of FP32.
                let expected = if job.precision == Precision::Fp32 { trial.reference().clone() } else { outputs };
                selftest::write(&path, &views(trial.sample()), &views(&expected))?;
                let tolerance = selftest_tolerance(job.precision);
                selftest = Some(SelfTest { file: SELFTEST_FILE.into(), graph: graph.record.file.clone(), tolerance });
            }
        }
        gates.extend(
            worst.iter().flat_map(|worst| worst.gates(&graph.record.file, job.floors, graph.emulation.is_some())),
        );
    }
    let selftest = selftest.ok_or_else(|| Error::input(source.path(), "the profile has no tile for it"))?;
    Ok(Measured { gates, speed, selftest })
}

/// Largest error of the self-test on another machine, over the output's range. Processors round differently: in FP32 in
/// the last bits, in 16 bits in the eleventh or eighth bit. In 8 bits, a value between two quantised values may become
/// either.
fn selftest_tolerance(precision: Precision) -> f64 {
    match precision {
        Precision::Fp32 | Precision::Fp16Weights | Precision::Int8Weights => 1e-4,
        Precision::Fp16 => 1e-2,
        Precision::Bf16 | Precision::Int8 | Precision::Fp8 => 5e-2,
    }
}

/// A missed gate, together with the layer that costs most quality.
pub(super) fn with_blame(error: Error, converted: &Converted, job: &Job<'_>, scratch: &Path) -> Error {
    let Error::Gate(text) = error else { return error };
    match converted.worst_layer(job, scratch) {
        Ok(Some(worst)) => Error::Gate(format!("{text}\n  the layer that costs most: {worst}")),
        Ok(None) if job.precision != Precision::Fp32 => {
            Error::Gate(format!("{text}\n  the calibration budget has no runs left to find the layer that costs most"))
        }
        // The worst layer is unknown; the missed gate is what matters.
        _ => Error::Gate(text),
    }
}
