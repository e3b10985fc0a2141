//! Which graphs of an engine the gates run, and how often calibration runs the smallest graph.
//!
//! A graph for several pictures computes the same bytes for each picture as the graph for one picture, on any number
//! of CPU threads; a test compares both for every network (tests/tests/whole/batches.rs). So each tile is run with its
//! smallest batch, and each batch in its smallest tile. Otherwise, a build with many batches would spend most of its
//! time on the largest graphs. Clips are different: ONNX Runtime rounds their convolutions differently in a batch and
//! on other numbers of threads, so all of their graphs are run.
//!
//! One run of a large network takes minutes on a CPU. A [`CalibrationBudget`] limits these runs. It counts operations
//! ([`Model::operations`]) and never seconds, so an engine does not depend on the speed of the machine that built it.

use crate::Result;
use crate::fixed::fixed_sizes;
use crate::precision::PrecisionOptions;
use crate::samples;
use std::collections::BTreeSet;
use tileforge_contract::{Contract, Precision, Sizes};
use tileforge_engine::manifest::LeftOut;
use tileforge_graph::Model;

/// The number of calibration samples that quality is measured on, chosen evenly from all samples. Each sample is run
/// once for every candidate graph.
const JUDGED: usize = 4;

/// Which graphs of an engine are run, and how often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Coverage {
    /// For each graph, the smallest first, whether it is run for the gates.
    pub(crate) is_run: Vec<bool>,
    /// Runs of the smallest graph that measure activations; 0 if the precision needs none.
    pub(crate) calibration_runs: usize,
    /// Calibration samples that quality is measured on, in addition to the built-in sample.
    pub(crate) judged: usize,
    /// Further runs of the smallest graph that the budget allows, each on all judged samples: for the search for
    /// sensitive layers.
    pub(crate) search_runs: usize,
    /// What only a larger budget would run.
    pub(crate) left_out: Option<LeftOut>,
}

impl Coverage {
    /// Divides the budget.
    ///
    /// The built-in sample and one calibration sample are always run in the smallest graph. Calibration gets at most
    /// half of the budget. Then come the samples that quality is measured on, and then the other graphs, the smallest
    /// first.
    ///
    /// # Errors
    /// The inputs of a graph break the contract.
    pub(crate) fn of(
        contract: &Contract,
        precision: Precision,
        options: &PrecisionOptions,
        models: &[Model],
        names: &[String],
    ) -> Result<Self> {
        let mut is_run = are_run(contract, models)?;
        let costs: Vec<u64> = models.iter().map(|model| model.operations().max(1)).collect();
        let smallest = costs.first().copied().unwrap_or(1);
        let budget = options.budget.operations();
        let affordable = |operations: u64, each: u64| usize::try_from(operations / each).unwrap_or(usize::MAX);
        // Two runs: the reference and the graph itself.
        let mut left = budget.saturating_sub(2 * smallest);
        let wanted = wanted_runs(contract, precision, options, models.first());
        let calibration_runs = wanted.min(affordable(budget / 2, smallest).max(1));
        left = left.saturating_sub(calibration_runs as u64 * smallest);
        let judged_of = |runs: usize| if options.calibration.is_some() { runs.min(JUDGED) } else { 0 };
        let judged = judged_of(calibration_runs).min(affordable(left, 2 * smallest));
        left = left.saturating_sub(judged as u64 * 2 * smallest);
        let mut graphs = Vec::new();
        for ((is_run, cost), name) in
            is_run.iter_mut().zip(&costs).zip(names).skip(1).filter(|((is_run, _), _)| **is_run)
        {
            match left.checked_sub(cost.saturating_mul(2)) {
                // If a graph is left out, all larger graphs are left out, too.
                Some(rest) if graphs.is_empty() => left = rest,
                _ => {
                    *is_run = false;
                    graphs.push(name.clone());
                }
            }
        }
        let left_out = LeftOut {
            budget_minutes: options.budget.minutes,
            calibration_runs: wanted - calibration_runs,
            judged: judged_of(wanted) - judged,
            graphs,
        };
        let search_runs = affordable(left, smallest.saturating_mul(1 + judged as u64));
        let left_out = Some(left_out).filter(LeftOut::is_something);
        Ok(Self { is_run, calibration_runs, judged, search_runs, left_out })
    }
}

/// Runs of the smallest graph that measure activations, if the budget is large enough.
fn wanted_runs(
    contract: &Contract,
    precision: Precision,
    options: &PrecisionOptions,
    smallest: Option<&Model>,
) -> usize {
    let tiles = options.calibration_tiles;
    if !precision.is_calibrated() {
        return 0;
    }
    // One run takes as many tiles of pictures as the graph's batch.
    let batch = samples::picture_input(contract).filter(|_| options.calibration.is_some()).and_then(|picture| {
        let port = smallest?.inputs.iter().find(|port| port.name == picture.name)?;
        port.ty.fixed_dims()?.first().copied()
    });
    tiles.div_ceil(batch.unwrap_or(1).max(1))
}

/// For each graph, the smallest first, whether it is run if the budget allows it.
fn are_run(contract: &Contract, models: &[Model]) -> Result<Vec<bool>> {
    if contract.inputs.iter().any(|input| input.frames().is_some()) {
        return Ok(vec![true; models.len()]);
    }
    let sizes = models.iter().map(|model| fixed_sizes(contract, model));
    Ok(first_of_each(&sizes.collect::<Result<Vec<_>>>()?))
}

/// Whether each graph is the first of its tile or of its batch.
fn first_of_each(sizes: &[Sizes]) -> Vec<bool> {
    let (mut tiles, mut batches) = (BTreeSet::new(), BTreeSet::new());
    let is_first = |Sizes { batch, height, width, frames, tokens }: &Sizes| {
        let first_of_tile = tiles.insert([*height, *width, *frames, *tokens]);
        let first_of_batch = batches.insert(*batch);
        first_of_tile || first_of_batch
    };
    sizes.iter().map(is_first).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CalibrationBudget;
    use tileforge_contract::{Axis, Extent, Meaning, ReceptiveField, Task, TensorSpec};
    use tileforge_graph::{ConvOptions, DataType, TensorType, Trace, Weight};

    #[test]
    fn each_tile_and_each_batch_is_run_once() {
        let sizes = |batch, side| Sizes { batch, height: side, width: side, ..Sizes::default() };
        let graphs = [(1, 64), (2, 64), (8, 64), (1, 256), (2, 256), (4, 256), (1, 512)];
        let graphs = graphs.map(|(batch, side)| sizes(batch, side));
        // A batch that the smallest tile lacks is run in the next one.
        assert_eq!(first_of_each(&graphs), [true, true, true, true, false, true, true]);
        assert_eq!(first_of_each(&[sizes(2, 64)]), [true]);
    }

    /// A 1×1 convolution of 100 channels on so many pixels: 20,000 operations for each pixel.
    fn layer(side: usize) -> Model {
        let trace = Trace::new("layer", 9, 20);
        let image = trace.input("image", TensorType::new(DataType::F32, [1, 100, side, side]));
        let filters = Weight::from_bytes(DataType::F32, vec![100, 100, 1, 1], vec![0; 40_000]).unwrap();
        let filters = trace.weight("filters", filters);
        trace.output("made", &image.conv(&filters, None, &ConvOptions::same(1)));
        trace.finish().unwrap()
    }

    fn contract() -> Contract {
        let side = Extent::multiple_of(1);
        let axes = [Axis::Batch, Axis::Channels(100), Axis::Height(side), Axis::Width(side)];
        Contract {
            task: Task::Unet,
            inputs: vec![TensorSpec::new("image", axes, Meaning::Prediction)],
            outputs: vec![TensorSpec::new("made", axes, Meaning::Prediction)],
            receptive_field: ReceptiveField::Unbounded,
            safe_precisions: Vec::new(),
        }
    }

    #[test]
    fn every_graph_of_clips_is_run() {
        let (mut contract, twins) = (contract(), [layer(8), layer(8)]);
        assert_eq!(are_run(&contract, &twins).unwrap(), [true, false]);
        contract.inputs[0].axes.insert(2, Axis::Frames(Extent::multiple_of(1)));
        assert_eq!(are_run(&contract, &twins).unwrap(), [true, true]);
    }

    #[test]
    fn a_large_network_is_measured_on_fewer_samples_and_graphs() {
        // 0.082, 0.33 and 1.3 TFLOP.
        let models = [2048, 4096, 8192].map(layer);
        let names = ["a", "b", "c"].map(str::to_owned);
        let of = |precision, minutes, calibration: Option<&str>| {
            let budget = CalibrationBudget { minutes };
            let calibration = calibration.map(Into::into);
            let options = PrecisionOptions { budget, calibration, ..PrecisionOptions::default() };
            Coverage::of(&contract(), precision, &options, &models, &names).unwrap()
        };
        let all = of(Precision::Fp16, 10, None);
        assert_eq!((all.is_run, all.calibration_runs, all.left_out), (vec![true; 3], 32, None));
        assert!(all.search_runs > 0);
        // Half of 3 TFLOP is for calibration. 1.5 of the rest are enough for the second graph, not for the third.
        let some = of(Precision::Fp16, 1, Some("folder"));
        assert_eq!((some.is_run, some.calibration_runs, some.judged), (vec![true, true, false], 17, 4));
        let left_out = LeftOut { budget_minutes: 1, calibration_runs: 15, judged: 0, graphs: vec!["c".into()] };
        assert_eq!(some.left_out, Some(left_out));
        // A precision without calibration has the whole budget for its graphs.
        let bf16 = of(Precision::Bf16, 1, None);
        assert_eq!((bf16.is_run, bf16.calibration_runs), (vec![true, true, false], 0));
        // The smallest graph and one sample are always run.
        let huge = [16384].map(layer);
        let options = PrecisionOptions { budget: CalibrationBudget { minutes: 1 }, ..PrecisionOptions::default() };
        let least = Coverage::of(&contract(), Precision::Fp16, &options, &huge, &names[..1]).unwrap();
        assert_eq!((least.is_run, least.calibration_runs, least.search_runs), (vec![true], 1, 0));
    }
}
