//! Gates and self-test: the outputs of the engine's graphs compared with the outputs of the exported graphs.

use std::collections::BTreeMap;
use std::path::Path;

use tileforge_contract::{Contract, Precision, Provider, Shapes};
use tileforge_engine::manifest::{Gate, SelfTest};
use tileforge_engine::{Graph, scaled_bytes};
use tileforge_session::{Tensor, selftest};

use super::graphs::EngineGraph;
use crate::gate::figure;
use crate::precision::{self, Converted, Job, Ran, Trial};
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
    /// What runs of each graph took, by the graph's file, where ONNX Runtime reports it.
    pub(super) peaks: BTreeMap<String, Vec<Peak>>,
    /// Whether our kernels round too much for this network: the error reaches the floors, or half of what the self-test
    /// allows.
    pub(super) needs_plain_kernels: bool,
}

/// The most memory that opening or a run took beside the weights.
pub(super) struct Peak {
    /// The shapes of the run's inputs.
    inputs: Shapes,
    bytes: u64,
    /// What our kernels hold beside that.
    kernels_bytes: u64,
}

/// The record of a graph with what its runs took, instead of what was estimated.
pub(super) fn with_peaks(record: Graph, contract: &Contract, peaks: &[Peak]) -> Graph {
    let kernels_bytes = peaks.iter().map(|peak| peak.kernels_bytes).max().unwrap_or(0);
    let record = Graph { kernels_bytes, ..record };
    if record.any_batch {
        return with_peaks_of_batches(record, contract, peaks);
    }
    let elements = |shapes: &Shapes| shapes.values().map(|shape| shape.iter().product::<usize>()).max().unwrap_or(0);
    // Where sizes are free, a larger picture takes more memory.
    let largest = |peak: &Peak| scaled_bytes(peak.bytes, elements(&peak.inputs), elements(&record.inputs));
    Graph { values_bytes: peaks.iter().map(largest).max().or(record.values_bytes), ..record }
}

/// As [`with_peaks`], for a graph of any batch: no measured batch takes more than follows from the record.
fn with_peaks_of_batches(record: Graph, contract: &Contract, peaks: &[Peak]) -> Graph {
    let batch = |shapes: &Shapes| contract.sizes(shapes).map_or(1, |sizes| sizes.batch.max(1));
    let most = batch(&record.inputs);
    // What was estimated, beyond one sample.
    let estimated = |batch: usize| {
        let growth = record.values_bytes.unwrap_or(0).saturating_sub(record.values_bytes_of_one.unwrap_or(0));
        scaled_bytes(growth, most - 1, batch - 1)
    };
    let mut peaks: Vec<(usize, u64)> = peaks.iter().map(|peak| (batch(&peak.inputs), peak.bytes)).collect();
    peaks.sort_unstable();
    let Some((least, bytes)) = peaks.first().copied() else { return record };
    let one = bytes.saturating_sub(estimated(least));
    // More samples take as much more as was estimated, or as was measured for fewer.
    let all = |&(batch, bytes): &(usize, u64)| {
        let by_estimate = bytes + estimated(most) - estimated(batch);
        let by_measure = one + scaled_bytes(bytes.saturating_sub(one), batch - 1, most - 1);
        if batch > 1 { by_estimate.max(by_measure) } else { by_estimate }
    };
    Graph { values_bytes: peaks.iter().map(all).max(), values_bytes_of_one: Some(one), ..record }
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
    let (mut selftest, mut peaks): (_, BTreeMap<String, Vec<Peak>>) = (None, BTreeMap::new());
    let runs: usize = graphs.iter().map(|graph| graph.references.len()).sum();
    // Each graph and its reference, on each sample.
    job.progress.begin("measuring graphs against their references", 2 * (runs + converted.judged.len()));
    let ran = || job.progress.step();
    let (mut done, mut needs_plain_kernels) = (0, false);
    for graph in graphs {
        let file = graph.emulation.clone().unwrap_or_else(|| staging.join(&graph.record.file));
        // For a graph that runs in several sizes, the worst figure counts.
        let (mut figures, mut rounding) = (Vec::new(), Vec::new());
        for reference in &graph.references {
            let trial = Trial::with_progress(job, reference, &converted.judged, scratch, &ran)?;
            let Ran { measurement: measured, outputs, peak_bytes, kernels_bytes } = trial.measure_file(&file, &ran)?;
            // ONNX Runtime's CPU kernels also stand in for another device, and an emulation stands in for the engine's
            // graph. Their memory says nothing about the engine on its device.
            let is_own = job.provider == Provider::Cpu && graph.emulation.is_none();
            if let Some(bytes) = peak_bytes.filter(|bytes| *bytes > 0 && is_own) {
                let shape = |(name, tensor): &(String, Tensor)| (name.clone(), tensor.shape().to_vec());
                let inputs = trial.sample().iter().map(shape).collect();
                peaks.entry(graph.record.file.clone()).or_default().push(Peak { inputs, bytes, kernels_bytes });
            }
            let is_near =
                measured.reaches(job.floors) && 2.0 * measured.maximum_error <= selftest_tolerance(job.precision, None);
            needs_plain_kernels |= kernels_bytes > 0 && job.precision == Precision::Fp32 && !is_near;
            let amplified = amplification(job, &trial, reference, &measured, selftest.is_none())?;
            figures.push(measured);
            rounding.extend(amplified);
            done += 1;
            // These precisions exist for speed. Speed is measured only on the target's kind of device: a CPU says
            // nothing about a GPU.
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
                // The self-test checks that another machine computes the same outputs as this one. So it expects the
                // engine's own output, not the FP32 output.
                let expected = if job.precision == Precision::Fp32 { trial.reference().clone() } else { outputs };
                selftest::write(&path, &views(trial.sample()), &views(&expected))?;
                let tolerance = selftest_tolerance(job.precision, amplified.as_ref());
                selftest = Some(SelfTest { file: SELFTEST_FILE.into(), graph: graph.record.file.clone(), tolerance });
            }
        }
        let name = &graph.record.file;
        let mut floors = job.floors.clone();
        if let Some(rounding) = Measurement::worst(rounding) {
            floors = rounding.lowered(job.floors);
            if floors != *job.floors {
                job.progress.note(&format!(
                    "{name}: its reference is {:.2} dB from itself when its input changes by one unit in the last \
                     place; so its floors are {:.2} dB and a cosine of {}",
                    rounding.psnr_db,
                    floors.psnr_db,
                    figure(floors.cosine)
                ));
            }
        }
        let worst = Measurement::worst(figures);
        gates.extend(worst.iter().flat_map(|worst| worst.gates(name, &floors, graph.emulation.is_some())));
    }
    let selftest = selftest.ok_or_else(|| Error::input(source.path(), "the profile has no tile for it"))?;
    Ok(Measured { gates, speed, selftest, peaks, needs_plain_kernels })
}

/// How much a network in FP32 amplifies rounding, if it makes choices or missed a floor; `None` for others, whose
/// floors stay. Floors of lower precisions follow from visible differences, whatever the network does with rounding.
fn amplification(
    job: &Job<'_>,
    trial: &Trial<'_>,
    reference: &Path,
    measured: &Measurement,
    smallest: bool,
) -> Result<Option<Measurement>> {
    if job.precision != Precision::Fp32 || measured.reaches(job.floors) && !trial.chooses {
        return Ok(None);
    }
    // In a small tile, rounding changes few choices or none, so several samples are needed. In a large tile it changes
    // many choices, and each run takes long.
    trial.amplification(reference, if smallest { 4 } else { 1 })
}

/// The largest error that the self-test allows on another machine, over the output's range. Processors round
/// differently: in FP32 in the last bits, in 16 bits in the eleventh or eighth bit. In 8 bits, a value between two
/// quantised values may become either of them. Where the effect of rounding was measured, twice its error is allowed,
/// up to a tenth.
fn selftest_tolerance(precision: Precision, rounding: Option<&Measurement>) -> f64 {
    let of_rounding = rounding.map_or(0.0, |rounding| (2.0 * rounding.maximum_error).min(0.1));
    let of_precision: f64 = match precision {
        Precision::Fp32 | Precision::Fp16Weights | Precision::Int8Weights => 1e-4,
        Precision::Fp16 => 1e-2,
        Precision::Bf16 | Precision::Int8 | Precision::Fp8 => 5e-2,
    };
    of_precision.max(of_rounding)
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

#[cfg(test)]
mod tests {
    use tileforge_engine::testing;

    use super::*;

    #[test]
    fn what_runs_took_stands_for_what_was_estimated() {
        let contract = testing::upscale(2, 3).contract();
        let graph = |batch: usize, side: usize| -> Graph {
            let (small, large) = ([batch, 3, side, side], [batch, 3, 2 * side, 2 * side]);
            serde_json::from_value(testing::graph("model.onnx", &small, &large)).unwrap()
        };
        let peak = |batch, side, bytes| Peak { inputs: graph(batch, side).inputs, bytes, kernels_bytes: 7 };
        let found = |record: &Graph, peaks: &[Peak]| {
            let record = with_peaks(record.clone(), &contract, peaks);
            (record.values_bytes, record.values_bytes_of_one)
        };
        let fixed = Graph { values_bytes: Some(70), ..graph(1, 16) };
        assert_eq!(found(&fixed, &[]), (Some(70), None));
        assert_eq!(found(&fixed, &[peak(1, 16, 90)]), (Some(90), None));
        // Weights in another form are as large for every size.
        assert_eq!(with_peaks(fixed.clone(), &contract, &[peak(1, 16, 90)]).kernels_bytes, 7);
        assert_eq!(with_peaks(fixed, &contract, &[]).kernels_bytes, 0);
        let any_size = Graph { any_size: true, ..graph(1, 32) };
        assert_eq!(found(&any_size, &[peak(1, 8, 10), peak(1, 16, 30)]), (Some(160), None));
        // Estimated: 100 for one sample and 20 for each more.
        let any_batch =
            Graph { any_batch: true, values_bytes: Some(160), values_bytes_of_one: Some(100), ..graph(4, 16) };
        assert_eq!(found(&any_batch, &[]), (Some(160), Some(100)));
        assert_eq!(found(&any_batch, &[peak(1, 16, 500)]), (Some(560), Some(500)));
        assert_eq!(found(&any_batch, &[peak(1, 16, 500), peak(2, 16, 510)]), (Some(560), Some(500)));
        assert_eq!(found(&any_batch, &[peak(1, 16, 500), peak(2, 16, 530)]), (Some(590), Some(500)));
        assert_eq!(found(&any_batch, &[peak(1, 16, 500), peak(4, 16, 530)]), (Some(560), Some(500)));
        assert_eq!(found(&any_batch, &[peak(4, 16, 530)]), (Some(530), Some(470)));
    }
}
