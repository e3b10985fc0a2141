//! An engine on a host, as its streams see it.

use std::time::Duration;

use tileforge_contract::{Contract, Provider, Shapes, Sizes, TensorSpec};
use tileforge_engine::{Engine, Graph, Manifest};
use tileforge_session::{Assigned, Environment, Ladder, OptimisationLevel, Placement};

use super::pool::Memory;
use super::recovery::Limits;
use super::sync::Mutex;
use super::sync::atomic::{AtomicBool, Ordering};
use crate::error::Result;

/// An engine's graphs, what opens their sessions, and how much of it runs at the same time.
pub(super) struct Core {
    pub(super) id: u64,
    pub(super) ladder: Ladder,
    pub(super) contract: Contract,
    /// The smallest first.
    pub(super) graphs: Vec<(Graph, Sizes)>,
    /// Whether a sample's results have the same bytes in every batch on ONNX Runtime's CPU kernels.
    is_exact_on_cpu: bool,
    limits: Mutex<Limits>,
    /// The node assignments of the session that was opened last.
    assigned: Mutex<Vec<Assigned>>,
    /// Its sessions are no longer needed.
    pub(super) retired: AtomicBool,
}

impl Core {
    /// Judges whether the engine fits this machine; opens nothing yet.
    pub(super) fn new(id: u64, environment: &Environment, engine: &Engine, placement: Placement) -> Result<Self> {
        let contract = engine.manifest().contract.clone();
        let sized = |graph: &Graph| Ok((graph.clone(), graph.sizes(&contract)?));
        let mut graphs = engine.manifest().graphs.iter().map(sized).collect::<Result<Vec<_>>>()?;
        graphs.sort_by_key(|(_, sizes)| (sizes.height * sizes.width, sizes.frames, sizes.batch));
        // That batches change no byte was found only at the usual optimisation level.
        let is_usual = placement.session.optimisation == OptimisationLevel::All;
        let is_exact_on_cpu = is_usual && batches_change_no_byte(engine.manifest());
        let ladder = Ladder::new(environment, engine, placement)?;
        let most = graphs.iter().map(|(_, sizes)| sizes.batch).max().unwrap_or(1);
        let limits = Limits::new(most, ladder.streams());
        Ok(Self {
            id,
            ladder,
            contract,
            graphs,
            is_exact_on_cpu,
            limits: Mutex::new(limits),
            assigned: Mutex::default(),
            retired: AtomicBool::new(false),
        })
    }

    /// Whether a sample's results have the same bytes in every batch. OpenVINO and GPUs choose kernels by the batch.
    pub(super) fn is_exact(&self) -> bool {
        self.is_exact_on_cpu && self.ladder.provider() == Provider::Cpu
    }

    /// The memory of a stream's sessions of a graph.
    pub(super) fn memory(&self, graph: usize, stream: usize) -> Memory {
        let gpu = self.graphs.get(graph).and_then(|(graph, _)| self.ladder.gpu_of(graph, stream));
        gpu.map_or(Memory::Machine, Memory::Gpu)
    }

    /// The provider that a session of a graph would be opened on now.
    pub(super) fn provider(&self, graph: usize) -> Option<Provider> {
        self.graphs.get(graph).map(|(graph, _)| self.ladder.provider_of(graph))
    }

    /// Bytes of a memory that a session of a graph counts for, in its largest size.
    pub(super) fn bytes(&self, graph: usize, memory: Memory) -> u64 {
        self.graphs.get(graph).map_or(0, |(record, sizes)| self.bytes_in(record, sizes, memory))
    }

    /// Bytes of a memory that a session of a graph counts for in the size of this record.
    pub(super) fn bytes_in(&self, record: &Graph, sizes: &Sizes, memory: Memory) -> u64 {
        let session = self.ladder.memory_of(record);
        match memory {
            Memory::Machine => session.saturating_add(beside_session(&self.contract, record, sizes)),
            Memory::Gpu(_) => session,
        }
    }

    pub(super) fn set_assigned(&self, assigned: &[Assigned]) {
        *self.assigned.lock() = assigned.to_vec();
    }

    /// The providers that took the nodes of the session that was opened last.
    pub(super) fn assigned(&self) -> Vec<Assigned> {
        self.assigned.lock().clone()
    }

    /// Most samples in a run.
    pub(super) fn batch(&self) -> usize {
        self.limits.lock().batch()
    }

    /// Streams that may run it.
    pub(super) fn streams(&self) -> usize {
        self.limits.lock().streams()
    }

    /// Whether a stream may run it now.
    pub(super) fn may_run(&self, stream: usize) -> bool {
        self.limits.lock().may_run(stream)
    }

    /// Counts a stream as running the engine until the guard is dropped.
    pub(super) fn running(&self) -> Running<'_> {
        let mut limits = self.limits.lock();
        limits.begin();
        Running { core: self, streams: limits.streams() }
    }

    /// Seconds that one sample is charged: the average of the engine's runs so far.
    pub(super) fn cost(&self) -> f64 {
        self.limits.lock().cost()
    }

    /// Records how long a run of so many samples took.
    pub(super) fn record_run(&self, samples: usize, took: Duration) {
        self.limits.lock().record_run(samples, took);
    }

    /// Records a successful run. A full one has as many samples as the largest graph that is allowed.
    pub(super) fn succeeded(&self, is_full: bool) {
        let (batch, streams) = self.limits.lock().succeed(is_full);
        if let Some(batch) = batch {
            tracing::info!("memory sufficed for a while: tries batches of up to {batch} again");
        }
        if let Some(streams) = streams {
            tracing::info!("memory sufficed for a while: tries {streams} streams again");
        }
    }

    /// Memory did not hold a run. Later runs have at most `to` samples.
    pub(super) fn shrink_batch(&self, to: usize) {
        if self.limits.lock().shrink_batch(to) {
            tracing::warn!("out of memory: goes on with batches of {to}");
        }
    }

    /// Memory did not hold a run while `of` streams were allowed. False if the number of streams cannot shrink.
    pub(super) fn halve_streams(&self, of: usize) -> bool {
        let mut limits = self.limits.lock();
        let shrinks = limits.halve_streams(of);
        if shrinks {
            tracing::warn!("out of memory: goes on with {} of {of} streams", limits.streams());
        }
        shrinks
    }

    pub(super) fn retire(&self) {
        self.retired.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::SeqCst)
    }
}

/// Whether batches change no byte on ONNX Runtime's CPU kernels: what the builder found when it compared them. Engines
/// that were not compared are trusted if they are of a network of ours, since a test compares each of these, but not if
/// another program wrote their graph. Never for clips, whose kernels round differently at other places of a batch.
fn batches_change_no_byte(manifest: &Manifest) -> bool {
    let is_of_clips = manifest.contract.inputs.iter().any(|input| input.frames().is_some());
    !is_of_clips && manifest.batches_change_no_byte.unwrap_or_else(|| !manifest.is_foreign())
}

/// Bytes of this machine's memory that a session of a graph counts for in a host's budget: what the manifest states for
/// its weights and the values of a run, the tensors that are bound to it, the samples of a run, and one more sample,
/// which is prepared or finished meanwhile.
///
/// # Errors
/// The graph's shapes break the contract.
pub fn session_bytes(manifest: &Manifest, graph: &Graph) -> Result<u64> {
    let beside = beside_session(&manifest.contract, graph, &graph.sizes(&manifest.contract)?);
    Ok(manifest.memory_at_least(graph).saturating_add(beside))
}

/// The part of [`session_bytes`] that is not the session's own.
fn beside_session(contract: &Contract, graph: &Graph, sizes: &Sizes) -> u64 {
    let bytes = |specs: &[TensorSpec], shapes: &Shapes| -> u64 {
        let of = |spec: &TensorSpec| {
            let elements = shapes.get(&spec.name)?.iter().product::<usize>();
            Some((elements * spec.data_type.size()) as u64)
        };
        specs.iter().filter_map(of).sum()
    };
    let tensors = bytes(&contract.inputs, &graph.inputs) + bytes(&contract.outputs, &graph.outputs);
    2 * tensors + tensors / sizes.batch.max(1) as u64
}

/// A stream that runs an engine.
pub(super) struct Running<'c> {
    core: &'c Core,
    /// Streams that were allowed when it began.
    pub(super) streams: usize,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.core.limits.lock().end();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tileforge_contract::{Axis, Extent};
    use tileforge_engine::testing;

    use super::*;

    #[test]
    fn batches_change_no_byte_where_that_was_found_or_tested() {
        let contract = testing::upscale(2, 3).contract();
        let graph = testing::graph("model.onnx", &[4, 3, 16, 16], &[4, 3, 32, 32]);
        let manifest = testing::manifest("four", &contract, vec![graph], json!({}));
        let digest = "0".repeat(64);
        let foreign = json!({
            "model": "x2.onnx", "inputs": {}, "profile": { "name": "cpu", "sha256": digest },
            "calibration": { "budget_minutes": 10 }, "foreign": { "task": "upscale" },
        });
        for (found, recipe, expected) in [
            (json!(true), None, true),
            (json!(false), None, false),
            (json!(null), None, true),
            (json!(true), Some(&foreign), true),
            (json!(false), Some(&foreign), false),
            (json!(null), Some(&foreign), false),
        ] {
            let mut manifest = manifest.clone();
            manifest["batches_change_no_byte"] = found;
            manifest["recipe"] = recipe.cloned().unwrap_or_default();
            let mut manifest: Manifest = serde_json::from_value(manifest).unwrap();
            assert_eq!(batches_change_no_byte(&manifest), expected, "{manifest:?}");
            manifest.contract.inputs[0].axes.insert(2, Axis::Frames(Extent::multiple_of(1)));
            assert!(!batches_change_no_byte(&manifest), "clips");
        }
    }

    #[test]
    fn a_session_counts_with_its_tensors_and_a_sample_more() {
        let mut graph = testing::graph("model.onnx", &[4, 3, 16, 16], &[4, 3, 32, 32]);
        graph["values_bytes"] = json!(1_000_000);
        let contract = testing::upscale(2, 3).contract();
        let manifest = testing::manifest("four", &contract, vec![graph], json!({}));
        let manifest: Manifest = serde_json::from_value(manifest).unwrap();
        let tensors = 4 * 3 * (16 * 16 + 32 * 32) * 4;
        let graph = &manifest.graphs[0];
        let beside = session_bytes(&manifest, graph).unwrap() - manifest.memory_at_least(graph);
        assert_eq!(beside, 2 * tensors + tensors / 4);
    }
}
