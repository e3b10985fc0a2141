//! Measures an engine whose graphs run on whole inputs: every task except upscaling, which cuts pictures into tiles.

use std::collections::BTreeMap;
use std::fmt;
use std::thread;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use tileforge_contract::{Contract, DataType, Meaning, Provider, TensorSpec, Upscale};
use tileforge_engine::{Engine, Graph};
use tileforge_image::Size;
use tileforge_runtime::percentiles::percentile;
use tileforge_runtime::{Error, Result};
use tileforge_session::peak_memory_bytes;
use tileforge_session::{Assigned, Bound, Buffer, Cancel, Environment, Ladder, Placement, Session};
use tileforge_terminal::{counted, counted_as};

use super::measure::{Latency, Repeats, memory_text, threads_of, with_most_used};

/// Whether an engine's graphs run whole, instead of on tiles of pictures.
pub(super) fn is_whole(engine: &Engine) -> bool {
    Upscale::of(&engine.manifest().contract).is_err()
}

/// The figures of one graph in one setting.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Measured {
    pub(super) engine: String,
    pub(super) precision: String,
    /// The provider of most nodes.
    pub(super) provider: Provider,
    /// The device of that provider.
    pub(super) device: String,
    /// The graph's inputs, with their shapes.
    pub(super) inputs: String,
    pub(super) batch: usize,
    pub(super) streams: usize,
    /// Threads of each session on the CPU.
    pub(super) threads: usize,
    pub(super) runs: u32,
    /// Throughput of all streams together: the median of the passes.
    pub(super) runs_per_second: f64,
    /// The throughput of each pass, in order.
    pub(super) passes: Vec<f64>,
    /// Latency of one run alone, with inputs and outputs on the device.
    pub(super) latency: Latency,
    pub(super) session_seconds: f64,
    pub(super) peak_memory_bytes: Option<u64>,
    /// Peak memory of all processes on the GPUs that it runs on, after the warm-up.
    pub(super) device_memory_bytes: Option<u64>,
}

impl Measured {
    /// What figures must share to be comparable.
    pub(super) fn setting(&self) -> String {
        let Self { provider, device, precision, inputs, streams, threads, .. } = self;
        let (streams, threads) = (counted(*streams, "stream"), counted(*threads, "thread"));
        format!("{precision} on {provider} ({device}), {inputs}, {streams} of {threads}")
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Latency { p50_ms, p90_ms, p99_ms, interquartile_ms } = self.latency;
        writeln!(formatter, "engine              {}: {}", self.engine, self.setting())?;
        writeln!(
            formatter,
            "throughput          {:.3} runs/s (median of {}, {:.3} to {:.3})",
            self.runs_per_second,
            counted_as(self.passes.len(), "pass", "passes"),
            self.passes.iter().copied().fold(f64::INFINITY, f64::min),
            self.passes.iter().copied().fold(0.0, f64::max)
        )?;
        writeln!(
            formatter,
            "one run             {p50_ms:.1} ms (p90 {p90_ms:.1}, p99 {p99_ms:.1}; interquartile \
             {interquartile_ms:.1}; {})",
            counted(self.runs, "run")
        )?;
        write!(formatter, "{}", memory_text(self.peak_memory_bytes, self.device_memory_bytes))
    }
}

/// `frame [1, 3, 64, 64], timestep [1]`; caches and other carried tensors are left out.
fn inputs_text(contract: &Contract, graph: &Graph) -> String {
    let own = contract.inputs.iter().filter(|input| !matches!(input.meaning, Meaning::Carried { .. }));
    let text = |input: &TensorSpec| Some(format!("{} {:?}", input.name, graph.inputs.get(&input.name)?));
    own.filter_map(text).collect::<Vec<_>>().join(", ")
}

/// A session with filled input tensors on the device.
struct Ready {
    session: Session,
    bound: Bound,
}

impl Ready {
    fn open(ladder: &Ladder, contract: &Contract, graph: &Graph, stream: usize) -> Result<Self> {
        let session = ladder.session(graph, stream, &Cancel::new())?;
        let mut bound = session.bind_graph(contract, graph)?;
        let buffers = session.buffers()?;
        for input in contract.inputs.iter().filter(|input| !matches!(input.meaning, Meaning::Carried { .. })) {
            let shape = graph.inputs.get(&input.name).ok_or_else(|| Error::Internal("bench".into()))?;
            let mut buffer = buffers.zeros(input.data_type, shape)?;
            fill(&mut buffer, input)?;
            bound.write(&input.name, &buffer)?;
        }
        Ok(Self { session, bound })
    }

    fn run(&mut self) -> Result<()> {
        Ok(self.bound.run(&Cancel::new())?)
    }
}

/// Fills a tensor with values that its meaning allows; the values are the same in each process.
fn fill(buffer: &mut Buffer, tensor: &TensorSpec) -> Result<()> {
    let part = |at: usize| (at.wrapping_mul(2_654_435_761) >> 7 & 0xffff) as f32 / 65_536.0;
    if tensor.data_type == DataType::I64 {
        if matches!(tensor.meaning, Meaning::TextMask | Meaning::TextLength) {
            buffer.as_mut_slice::<i64>()?.fill(1);
            return Ok(());
        }
        let most = if let Meaning::Tokens { vocabulary } = tensor.meaning { vocabulary } else { 1 };
        let tokens = buffer.as_mut_slice::<i64>()?.iter_mut().enumerate();
        tokens.for_each(|(at, token)| *token = (part(at) * most as f32) as i64);
        return Ok(());
    }
    let [low, high] = match &tensor.meaning {
        Meaning::Pixels { range, .. } => *range,
        Meaning::Timestep { range: [least, _] } | Meaning::Guidance { range: [least, _] } => [*least; 2],
        Meaning::Depth { .. } | Meaning::Mask => [0.0, 1.0],
        // As in whole numbers: no time depends on them.
        Meaning::TextMask | Meaning::TextLength => [1.0; 2],
        _ => [-1.0, 1.0],
    };
    let values = buffer.as_mut_slice::<f32>()?.iter_mut().enumerate();
    values.for_each(|(at, value)| *value = low + (high - low) * part(at));
    Ok(())
}

/// Runs a graph alone for latency, and then on all streams for throughput.
pub(super) fn measure(
    environment: &Environment,
    engine: &Engine,
    graph: &Graph,
    placement: &Placement,
    repeats: Repeats,
) -> Result<Measured> {
    let contract = &engine.manifest().contract;
    let ladder = Ladder::new(environment, engine, placement.clone())?;
    let streams = ladder.streams();
    let ready = (0..streams).map(|stream| Ready::open(&ladder, contract, graph, stream));
    let mut ready = ready.collect::<Result<Vec<_>>>()?;
    for ready in &mut ready {
        (0..repeats.warm_up).try_for_each(|_| ready.run())?;
    }
    let gpus = if ladder.provider().is_on_processor() { &[][..] } else { placement.gpus() };
    let (measured, device_memory_bytes) = with_most_used(gpus, || {
        let first = ready.first_mut().ok_or_else(|| Error::Internal("bench".into()))?;
        let alone = (0..repeats.runs).map(|_| {
            let started = Instant::now();
            first.run().map(|()| started.elapsed().as_secs_f64() * 1e3)
        });
        let alone = alone.collect::<Result<Vec<f64>>>()?;
        let passes =
            (0..repeats.passes).map(|_| on_all_streams(&mut ready, repeats.runs)).collect::<Result<Vec<_>>>()?;
        Ok::<_, Error>((alone, passes))
    });
    let (mut alone, passes) = measured?;
    alone.sort_by(f64::total_cmp);
    let mut in_order = passes.clone();
    in_order.sort_by(f64::total_cmp);
    let assigned = ready.first().map(|ready| ready.session.assigned().to_vec()).unwrap_or_default();
    let provider = Assigned::most(&assigned).unwrap_or(ladder.provider());
    Ok(Measured {
        engine: engine.manifest().name.clone(),
        precision: engine.manifest().precision.to_string(),
        provider,
        device: environment.probe().device_name(provider, placement.gpus()[0]),
        inputs: inputs_text(contract, graph),
        batch: graph.sizes(contract)?.batch,
        streams,
        threads: threads_of(ladder.threads()),
        runs: repeats.runs,
        runs_per_second: percentile(&in_order, 0.5),
        passes,
        latency: Latency {
            p50_ms: percentile(&alone, 0.5),
            p90_ms: percentile(&alone, 0.9),
            p99_ms: percentile(&alone, 0.99),
            interquartile_ms: percentile(&alone, 0.75) - percentile(&alone, 0.25),
        },
        session_seconds: ladder.location().opening.as_secs_f64(),
        peak_memory_bytes: peak_memory_bytes(),
        device_memory_bytes: device_memory_bytes.filter(|_| !provider.is_on_processor()),
    })
}

/// The throughput of `runs` runs on each stream at the same time, in runs per second.
fn on_all_streams(ready: &mut [Ready], runs: u32) -> Result<f64> {
    let (all, started) = (f64::from(runs) * ready.len() as f64, Instant::now());
    thread::scope(|scope| {
        let working: Vec<_> =
            ready.iter_mut().map(|ready| scope.spawn(move || (0..runs).try_for_each(|_| ready.run()))).collect();
        let joined =
            working.into_iter().map(|work| work.join().unwrap_or_else(|_| Err(Error::Internal("bench".into()))));
        joined.collect::<Result<()>>()
    })?;
    Ok(all / started.elapsed().as_secs_f64())
}

/// Runs a graph some times on one stream, with ONNX Runtime's profile, which is written when this returns.
pub(super) fn run_profiled(
    environment: &Environment,
    engine: &Engine,
    graph: &Graph,
    placement: Placement,
    runs: u32,
) -> Result<Vec<Assigned>> {
    let contract = &engine.manifest().contract;
    let ladder = Ladder::new(environment, engine, placement)?;
    let mut ready = Ready::open(&ladder, contract, graph, 0)?;
    (0..runs).try_for_each(|_| ready.run())?;
    Ok(ready.session.assigned().to_vec())
}

/// The graph to measure: the largest, or the one of a requested size. Sizes come from the first input with a height
/// and a width.
pub(super) fn graph_of(engine: &Engine, size: Option<Size>) -> Result<&Graph> {
    let (contract, graphs) = (&engine.manifest().contract, &engine.manifest().graphs);
    let sized: BTreeMap<&str, Option<Size>> =
        graphs.iter().map(|graph| (graph.file.as_str(), size_of(contract, graph))).collect();
    let Some(wanted) = size else {
        let largest = graphs.iter().max_by_key(|graph| values_of(graph));
        return largest.ok_or_else(|| Error::Internal("bench".into()));
    };
    let found = graphs.iter().find(|graph| sized.get(graph.file.as_str()) == Some(&Some(wanted)));
    found.ok_or_else(|| Error::NoSuchGraph { wanted, known: sized.into_values().flatten().collect() })
}

/// How many values a graph takes.
fn values_of(graph: &Graph) -> usize {
    let values = |shape: &Vec<usize>| shape.iter().fold(1, |values: usize, length| values.saturating_mul(*length));
    graph.inputs.values().map(values).fold(0, usize::saturating_add)
}

fn size_of(contract: &Contract, graph: &Graph) -> Option<Size> {
    let input = contract.inputs.iter().find(|input| input.height().is_some() && input.width().is_some())?;
    let shape = graph.inputs.get(&input.name)?;
    let [.., height, width] = shape.as_slice() else { return None };
    Some(Size { width: u32::try_from(*width).ok()?, height: u32::try_from(*height).ok()? })
}
