//! Sessions on the best provider that takes an engine, with a step down for a graph that this provider cannot open.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tileforge_contract::{Precision, Provider};
use tileforge_engine::{Engine, Graph, Manifest};

use crate::cancel::Cancel;
use crate::compiled;
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::options::SessionOptions;
use crate::placement::Placement;
use crate::plans;
use crate::processors::Processors;
use crate::providers::Providers;
use crate::session::Session;
use crate::system::memory::available_memory;
use crate::verdict::{Fit, Verdict};

/// The providers that an engine can run on here, and the one in use for each of its graphs.
pub struct Ladder {
    engine: Engine,
    placement: Placement,
    environment: Environment,
    verdict: Verdict,
    streams: usize,
    providers: Mutex<Providers>,
    /// Locked while a session is being opened. Only other openings wait for it.
    opening: Mutex<()>,
    /// Nanoseconds that opening the sessions took.
    open_time: AtomicU64,
}

/// Where the sessions of a task run.
#[derive(Clone, Copy, Debug)]
pub struct Location<'l> {
    /// How the engine fits this machine.
    pub verdict: &'l Verdict,
    /// The provider that sessions are opened on: the verdict's, or the lowest one that a graph has stepped down to.
    pub provider: Provider,
    /// Total time that opening took, for all sessions so far.
    pub opening: Duration,
}

impl Ladder {
    /// Judges the engine and reports each step down once. Opens nothing yet.
    ///
    /// # Errors
    /// [`Error::DoesNotFit`] with the reasons if no allowed provider fits; [`Error::NoStepDown`] if the first provider
    /// does not fit and sessions are strict.
    pub fn new(environment: &Environment, engine: &Engine, placement: Placement) -> Result<Self> {
        let manifest = engine.manifest();
        let verdict = Verdict::of(engine, environment, &placement);
        let chosen = verdict.chosen()?;
        if placement.session.strict && chosen != verdict.steps[0].provider {
            return Err(Error::NoStepDown { verdict: Box::new(verdict) });
        }
        for (step, next) in
            verdict.steps.iter().zip(verdict.steps.iter().skip(1)).take_while(|(step, _)| step.provider != chosen)
        {
            if let Fit::Refused(reason) = &step.fit {
                stepped_down(&manifest.name, step.provider, next.provider, reason);
            }
        }
        warn_of_fp16(manifest, chosen);
        // Each GPU in use gets at least one stream.
        let profiled =
            if chosen.is_on_processor() { 1 } else { (manifest.target.streams as usize).max(placement.gpus().len()) };
        let streams = placement.streams.unwrap_or(profiled).max(1);
        let mut providers = verdict.providers();
        if placement.session.strict {
            providers.truncate(1);
        }
        let providers = Mutex::new(Providers::new(providers));
        Ok(Self {
            engine: engine.clone(),
            placement,
            environment: environment.clone(),
            verdict,
            streams,
            providers,
            opening: Mutex::default(),
            open_time: AtomicU64::default(),
        })
    }

    /// How the engine fits this machine.
    pub fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    /// The provider that sessions are opened on: the verdict's. Graphs that it cannot open run on a lower one.
    pub fn provider(&self) -> Provider {
        self.providers.lock().best().unwrap_or(Provider::Cpu)
    }

    /// The provider that a session of this graph would be opened on now.
    pub fn provider_of(&self, graph: &Graph) -> Provider {
        self.providers.lock().left(&graph.file, Instant::now()).first().copied().unwrap_or(Provider::Cpu)
    }

    /// The GPU of a stream's sessions of this graph; `None` on the CPU.
    pub fn gpu_of(&self, graph: &Graph, stream: usize) -> Option<u32> {
        let gpus = self.placement.gpus();
        (!self.provider_of(graph).is_on_processor()).then(|| gpus[stream % gpus.len()])
    }

    /// Numbers of the GPUs that streams are dealt to, if the engine is on GPUs.
    pub fn gpus(&self) -> &[u32] {
        if self.provider().is_on_processor() { &[] } else { self.placement.gpus() }
    }

    /// The least bytes that a session of this graph takes, on the provider that it would be opened on now.
    pub fn memory_of(&self, graph: &Graph) -> u64 {
        let manifest = self.engine.manifest();
        if self.provider_of(graph) == Provider::TensorRtRtx {
            manifest.memory_of_plan(graph)
        } else {
            manifest.memory_at_least(graph)
        }
    }

    /// Whether memory may hold a session of this graph: the least that the session needs is at most each GPU's memory,
    /// or on the CPU at most what is left on this machine.
    pub fn may_hold(&self, graph: &Graph) -> bool {
        let needed = self.memory_of(graph);
        if self.provider_of(graph).is_on_processor() {
            return available_memory().is_none_or(|available| needed <= available);
        }
        self.placement
            .gpus()
            .iter()
            .filter_map(|device| self.environment.probe().gpus.get(*device as usize))
            .all(|gpu| needed <= gpu.memory_bytes)
    }

    /// Sessions that run at the same time.
    pub fn streams(&self) -> usize {
        self.streams
    }

    /// Threads of each session on the CPU, where streams share the cores. `None`: one for each core that this process
    /// may use.
    pub fn threads(&self) -> Option<usize> {
        let share = || Processors::available().threads(self.streams);
        self.placement.session.threads.or_else(|| (self.streams > 1).then(share))
    }

    /// Where sessions run, and how long opening all sessions so far took.
    pub fn location(&self) -> Location<'_> {
        let opening = Duration::from_nanos(self.open_time.load(Ordering::Relaxed));
        let provider = self.providers.lock().lowest().unwrap_or(Provider::Cpu);
        Location { verdict: self.verdict(), provider, opening }
    }

    /// Opens a session for one of the engine's graphs, for stream number `stream`. A graph that a provider cannot open
    /// runs on the next one for a while. This time grows from attempt to attempt.
    ///
    /// # Errors
    /// [`Error::Cancelled`] if `cancel` is set before its turn to open comes. Otherwise as [`Session::open`], for the
    /// last provider that is left.
    pub fn session(&self, graph: &Graph, stream: usize, cancel: &Cancel) -> Result<Session> {
        // One at a time: opening uses every core.
        let _opening = self.opening.lock();
        if cancel.is_cancelled() {
            return Err(Error::Cancelled);
        }
        let began = Instant::now();
        let left = self.providers.lock().left(&graph.file, began).to_vec();
        let mut left = left.as_slice();
        loop {
            let (&provider, below) = left.split_first().unwrap_or((&Provider::Cpu, &[]));
            let (trying, opened) = (Instant::now(), self.open(graph, provider, stream));
            match (opened, below) {
                (Err(error), [next, ..]) if !error.is_out_of_memory() => {
                    let name = format!("{}: {}", self.engine.manifest().name, graph.file);
                    stepped_down(&name, provider, *next, &error);
                    warn_of_fp16(self.engine.manifest(), *next);
                    left = below;
                }
                (opened, _) => {
                    let session = opened?;
                    let failed = trying.duration_since(began);
                    let is_back = self.providers.lock().opened(&graph.file, provider, Instant::now(), failed);
                    if is_back {
                        tracing::info!("{}: {} is on {provider} again", self.engine.manifest().name, graph.file);
                    }
                    let nanoseconds = u64::try_from(session.open_time().as_nanos()).unwrap_or(u64::MAX);
                    self.open_time.fetch_add(nanoseconds, Ordering::Relaxed);
                    return Ok(session);
                }
            }
        }
    }

    fn open(&self, graph: &Graph, provider: Provider, stream: usize) -> Result<Session> {
        let target = &self.engine.manifest().target;
        let provider_options = match provider {
            Provider::TensorRtRtx => target.tensorrt_rtx.clone(),
            Provider::TensorRt => target.tensorrt.clone(),
            Provider::Cuda => target.cuda.clone(),
            Provider::OpenVino => target.openvino.clone(),
            Provider::Cpu => Default::default(),
        };
        let gpus = self.placement.gpus();
        let device = gpus[stream % gpus.len()];
        let mut options = SessionOptions {
            provider,
            provider_options,
            device,
            threads: self.threads(),
            streams: self.streams,
            dequantises_weights: self.engine.manifest().precision == Precision::Int8Weights,
            // The gates were measured with them.
            own_kernels: graph.kernels_bytes > 0,
            ..self.placement.session.clone()
        };
        if provider == Provider::TensorRtRtx {
            let (_folder, path) = plans::of(&self.environment, &self.engine, graph, &mut options)?;
            return Session::open(&self.environment, &path, &options);
        }
        if provider == Provider::TensorRt {
            let compiled = compiled::of(&self.environment, &self.engine, graph, &options)?;
            return Session::open(&self.environment, &compiled.path(), &options);
        }
        Session::open_graph(&self.environment, &self.engine, graph, &options)
    }
}

fn stepped_down(name: &str, from: Provider, to: Provider, reason: &dyn fmt::Display) {
    tracing::warn!("{name}: steps down from {from} to {to}: {reason}");
}

fn warn_of_fp16(manifest: &Manifest, provider: Provider) {
    if provider.is_on_processor() && manifest.precision == Precision::Fp16 {
        tracing::warn!("{}: an fp16 engine computes in fp32 on the CPU", manifest.name);
    }
}
