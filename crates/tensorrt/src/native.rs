//! The only module that uses `trtx`, the bindings to the builder.

use crate::message::Layer;
use crate::release::{BUILDER, PARSER};
use crate::{
    BuildOptions, ComputeCapability, Error, InputRange, LibraryVersion, Message, Plan, Progress, Refit, Refusal,
    Result, Severity, Validity, symbols,
};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use trtx::builder::{BuilderConfig, BuilderFlag, MemoryPoolType};
use trtx::interfaces::MonitorProgress;
use trtx::{Builder, EngineInvalidityDiagnostics, EngineValidity, LayerType, LogHandler, Logger, OnnxParser, Runtime};

/// The stack size of the build thread, independent of the caller's thread: the builder recurses over the graph.
const STACK_BYTES: usize = 64 << 20;

/// The folder that the libraries were loaded from. The bindings keep them loaded until the process ends.
static LOADED: Mutex<Option<(PathBuf, LibraryVersion)>> = Mutex::new(None);

/// One build at a time. The library keeps the capabilities of a build in one place for the whole process. If two
/// builds for different GPUs run at once, one fails with "Target SM 120 is not found in the accelerator list", or
/// worse.
static BUILDING: Mutex<()> = Mutex::new(());

/// The builder's library and the parser's library. Both must exist.
fn files(folder: &Path) -> Result<[PathBuf; 2]> {
    let files = [BUILDER, PARSER].map(|name| folder.join(name));
    match files.iter().find(|path| !path.exists()) {
        Some(missing) => Err(Error::LibraryMissing { path: missing.clone() }),
        None => Ok(files),
    }
}

/// The release of the libraries in a folder, if it matches the headers that the bindings were made from.
pub(crate) fn release_in(folder: &Path) -> Result<LibraryVersion> {
    let [builder, _] = files(folder)?;
    let version = symbols::version(&builder)?;
    let expected = LibraryVersion::EXPECTED;
    if (version.major, version.minor) != (expected.major, expected.minor) {
        return Err(Error::LibraryVersion { path: builder, found: version });
    }
    Ok(version)
}

pub(crate) fn load(folder: &Path) -> Result<LibraryVersion> {
    let [builder, parser] = files(folder)?;
    let canonical = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((loaded, version)) = loaded.as_ref() {
        return match *loaded == canonical {
            true => Ok(*version),
            false => Err(Error::AnotherLibrary { loaded: loaded.clone(), asked: canonical }),
        };
    }
    let version = release_in(folder)?;
    let unusable =
        |path: &Path, error: trtx::Error| Error::LibraryUnusable { path: path.to_owned(), reason: error.to_string() };
    trtx::dynamically_load_tensorrt(Some(&builder)).map_err(|error| unusable(&builder, error))?;
    trtx::dynamically_load_tensorrt_onnxparser(Some(&parser)).map_err(|error| unusable(&parser, error))?;
    *loaded = Some((canonical, version));
    Ok(version)
}

pub(crate) fn build(
    graph: &Path,
    capabilities: &[ComputeCapability],
    options: &BuildOptions,
    progress: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
) -> Result<Plan> {
    let _building = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
    let (sender, receiver) = channel();
    let cancelled = Cancelled::default();
    let monitor = Monitor { steps: Mutex::new(Vec::new()), sender, cancelled: cancelled.0.clone() };
    std::thread::scope(|scope| {
        // A panic of `progress` unwinds through here, and the scope then waits for the builder, which should stop
        // soon.
        let cancel = CancelOnDrop(&cancelled);
        let builder = std::thread::Builder::new()
            .name("tensorrt-builder".into())
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, || build_here(graph, capabilities, options, monitor))
            .map_err(|error| failed("start a thread for the builder", error))?;
        for step in receiver {
            if progress(&step).is_break() {
                cancelled.set();
            }
        }
        let result = builder.join().map_err(|_| failed("build a plan", "the bindings panicked"))?;
        let was_cancelled = cancelled.is_set();
        drop(cancel);
        match result {
            Err(Error::Refused { .. }) if was_cancelled => Err(Error::Cancelled),
            result => result,
        }
    })
}

/// Builds in this thread. The monitor is dropped with the build's configuration, so that the progress ends with the
/// build.
fn build_here(
    graph: &Path,
    capabilities: &[ComputeCapability],
    options: &BuildOptions,
    monitor: Monitor,
) -> Result<Plan> {
    let log = Log { kept: Arc::default(), least: options.messages.max(Severity::Warning) };
    let logger = Logger::new(log.clone()).map_err(|error| failed("start the log", error))?;
    let mut builder = Builder::new(&logger).map_err(|error| log.failed("start the builder", error))?;
    let network = builder.create_network(0).map_err(|error| log.failed("make a network", error))?;
    let mut config = builder.create_config().map_err(|error| log.failed("make a configuration", error))?;
    configure(&mut config, capabilities, options)?;
    config.set_progress_monitor(Box::new(monitor)).map_err(|error| failed("watch the progress", error))?;
    if !options.ranges.is_empty() {
        let mut profile = builder.creata_optimization_profile().map_err(|error| log.failed("make a profile", error))?;
        for range in &options.ranges {
            restrict(&mut profile, range)?;
        }
        config.add_optimization_profile(&mut profile).map_err(|error| log.failed("add a profile", error))?;
    }

    let mut parser = OnnxParser::new(network, &logger).map_err(|error| log.failed("start the parser", error))?;
    let path = graph.to_str().filter(|path| !path.contains('\0')).ok_or_else(|| {
        Error::Options(format!("{}: expected a path in UTF-8, which TensorRT's parser can open", graph.display()))
    })?;
    // The number is the least severe level that the parser itself prints to the console: none.
    if parser.parse_from_file(path, 0).is_err() {
        return Err(Error::Parse { graph: graph.to_owned(), refusal: Box::new(Refusal::of_parser(&log.taken())) });
    }
    let network = parser.network_mut();
    let layers = usize::try_from(network.nb_layers()).unwrap_or_default();
    match builder.build_serialized_network(network, &mut config) {
        Ok(memory) => {
            let mut messages = log.taken();
            messages.retain(|message| message.severity <= options.messages);
            Ok(Plan { memory, layers, messages })
        }
        Err(_) => {
            let layers: Vec<Layer> = (0..network.nb_layers())
                .filter_map(|index| {
                    let layer = network.layer(index).ok()?;
                    let kind = layer.layer_type_dynamic();
                    let is_attention = matches!(kind, LayerType::kATTENTION_INPUT | LayerType::kATTENTION_OUTPUT);
                    let name = layer.name(network);
                    // The parser makes two layers of one Attention.
                    let node = name.strip_suffix("_AttentionInput").or(name.strip_suffix("_AttentionOutput"));
                    Some(Layer { name: node.filter(|_| is_attention).unwrap_or(&name).to_owned(), is_attention })
                })
                .collect();
            let refusal = Box::new(Refusal::of_builder(&log.taken(), &layers));
            let (graph, capabilities) = (graph.to_owned(), capabilities.to_vec());
            Err(match refusal.missing_precision() {
                Some(precision) => Error::Precision { graph, capabilities, precision, refusal },
                None => Error::Refused { graph, capabilities, refusal },
            })
        }
    }
}

fn configure(config: &mut BuilderConfig<'_>, capabilities: &[ComputeCapability], options: &BuildOptions) -> Result<()> {
    let not_taken = |error: trtx::Error| failed("choose the compute capabilities", error);
    let count = i32::try_from(capabilities.len()).map_err(|error| failed("count the compute capabilities", error))?;
    config.set_nb_compute_capabilities(count).map_err(not_taken)?;
    for (index, capability) in (0..count).zip(capabilities) {
        config.set_compute_capability(to_native(*capability), index).map_err(not_taken)?;
    }
    match options.tf32 {
        true => config.set_flag(BuilderFlag::kTF32),
        false => config.clear_flag(BuilderFlag::kTF32),
    }
    match options.refit {
        Refit::Never => {}
        Refit::Identical => config.set_flag(BuilderFlag::kREFIT_IDENTICAL),
        Refit::Any => config.set_flag(BuilderFlag::kREFIT),
    }
    if options.without_weights {
        config.set_flag(BuilderFlag::kSTRIP_PLAN);
    }
    if let Some(bytes) = options.workspace {
        let bytes = usize::try_from(bytes).map_err(|error| failed("set the workspace", error))?;
        config.set_memory_pool_limit(MemoryPoolType::kWORKSPACE, bytes);
    }
    if let Some(level) = options.optimisation_level {
        config.set_builder_optimization_level(i32::from(level));
    }
    Ok(())
}

fn restrict(profile: &mut trtx::optimization_profile::OptimizationProfile<'_>, range: &InputRange) -> Result<()> {
    use trtx::OptProfileSelector::{kMAX, kMIN, kOPT};
    if range.name.contains('\0') {
        return Err(Error::Options(format!("{:?} is no name of an input", range.name)));
    }
    let InputRange { minimum, optimum, maximum, .. } = range;
    let ordered = |low: &[usize], high: &[usize]| low.len() == high.len() && low.iter().zip(high).all(|(a, b)| a <= b);
    if !ordered(minimum, optimum) || !ordered(optimum, maximum) {
        return Err(Error::Options(format!(
            "input `{}`: expected minimum ≤ optimum ≤ maximum in every dimension, found {minimum:?}, {optimum:?}, \
             {maximum:?}",
            range.name
        )));
    }
    for (sizes, selector) in [(&range.minimum, kMIN), (&range.optimum, kOPT), (&range.maximum, kMAX)] {
        let sizes: Option<Vec<i64>> = sizes.iter().map(|size| i64::try_from(*size).ok()).collect();
        let sizes = sizes.filter(|sizes| sizes.len() <= MOST_DIMENSIONS).ok_or_else(|| {
            Error::Options(format!("input `{}`: expected at most {MOST_DIMENSIONS} sizes", range.name))
        })?;
        let dims = trtx::trtx_sys::Dims64::from_slice(&sizes);
        profile
            .set_dimensions(&range.name, selector, &dims)
            .map_err(|_| Error::Options(format!("input `{}`: the builder does not take these sizes", range.name)))?;
    }
    Ok(())
}

/// `nvinfer1::Dims64::MAX_DIMS`.
const MOST_DIMENSIONS: usize = 8;

pub(crate) fn validity(plan: &[u8]) -> Result<Validity> {
    let log = Log { kept: Arc::default(), least: Severity::Warning };
    let logger = Logger::new(log.clone()).map_err(|error| failed("start the log", error))?;
    let runtime = Runtime::new(&logger).map_err(|error| log.failed("start the runtime", error))?;
    let needed = runtime.engine_header_size();
    if plan.len() < needed {
        let reason = format!("expected at least {needed} bytes, found {}", plan.len());
        return Err(Error::NotAPlan { reason });
    }
    let (validity, why) = runtime.engine_validity(plan).map_err(|error| log.failed("read the plan's header", error))?;
    use EngineInvalidityDiagnostics as Why;
    Ok(match validity {
        EngineValidity::kVALID => Validity::Valid,
        EngineValidity::kSUBOPTIMAL => Validity::Slower,
        EngineValidity::kINVALID => Validity::Invalid {
            other_version: why.contains(Why::VERSION_MISMATCH),
            other_gpu: why.contains(Why::UNSUPPORTED_CC),
            older_cuda: why.intersects(Why::OLD_CUDA_DRIVER | Why::OLD_CUDA_RUNTIME),
            too_little_memory: why.contains(Why::INSUFFICIENT_GPU_MEMORY),
            malformed: why.contains(Why::MALFORMED_ENGINE),
            no_cuda: why.contains(Why::CUDA_ERROR),
        },
    })
}

fn to_native(capability: ComputeCapability) -> trtx::ComputeCapability {
    match capability {
        ComputeCapability::Sm75 => trtx::ComputeCapability::kSM75,
        ComputeCapability::Sm80 => trtx::ComputeCapability::kSM80,
        ComputeCapability::Sm86 => trtx::ComputeCapability::kSM86,
        ComputeCapability::Sm89 => trtx::ComputeCapability::kSM89,
        ComputeCapability::Sm120 => trtx::ComputeCapability::kSM120,
        ComputeCapability::Sm121 => trtx::ComputeCapability::kSM121,
    }
}

fn failed(action: &'static str, reason: impl ToString) -> Error {
    Error::Failed { action: action.into(), reason: reason.to_string() }
}

/// Whether the caller has cancelled. Shared with the builder's threads.
#[derive(Default)]
struct Cancelled(Arc<AtomicBool>);

impl Cancelled {
    fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

struct CancelOnDrop<'c>(&'c Cancelled);

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        self.0.set();
    }
}

/// Receives the builder's phases, from any of its threads.
struct Monitor {
    /// Running phases, and the number of steps of each.
    steps: Mutex<Vec<(String, u32)>>,
    sender: Sender<Progress>,
    cancelled: Arc<AtomicBool>,
}

impl Monitor {
    fn tell(&self, phase: &str, step: i32) {
        let steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        let steps = steps.iter().rev().find(|(name, _)| name == phase).map_or(0, |(_, steps)| *steps);
        self.send(phase, u32::try_from(step).unwrap_or_default().min(steps), steps);
    }

    fn send(&self, phase: &str, step: u32, steps: u32) {
        // The receiver is gone only if the caller panicked, and then the build is being cancelled.
        let _ = self.sender.send(Progress { phase: phase.to_owned(), step, steps });
    }
}

impl MonitorProgress for Monitor {
    fn phase_start(&self, phase: &str, _parent: Option<&str>, steps: i32) {
        let steps = u32::try_from(steps).unwrap_or_default();
        self.steps.lock().unwrap_or_else(PoisonError::into_inner).push((phase.to_owned(), steps));
        self.tell(phase, 0);
    }

    fn step_complete(&self, phase: &str, step: i32) -> ControlFlow<()> {
        self.tell(phase, step.saturating_add(1));
        match self.cancelled.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    fn phase_finish(&self, phase: &str) {
        let mut steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(position) = steps.iter().rposition(|(name, _)| name == phase) else { return };
        let (_, steps_of_phase) = steps.remove(position);
        drop(steps);
        // Some phases end before they have counted all of their steps.
        self.send(phase, steps_of_phase, steps_of_phase);
    }
}

/// Stores the builder's messages.
#[derive(Clone)]
struct Log {
    kept: Arc<Mutex<Vec<Message>>>,
    least: Severity,
}

impl Log {
    fn taken(&self) -> Vec<Message> {
        std::mem::take(&mut *self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// An error of the bindings, with the library's messages: the bindings only report that an error occurred.
    fn failed(&self, action: &'static str, error: trtx::Error) -> Error {
        let said = self.taken().into_iter().filter(|message| message.severity <= Severity::Error);
        let said: Vec<String> = said.map(|message| message.text).collect();
        failed(action, if said.is_empty() { error.to_string() } else { said.join("; ") })
    }
}

impl LogHandler for Log {
    fn log(&self, severity: trtx::Severity, text: &str) {
        let severity = match severity {
            trtx::Severity::InternalError => Severity::Internal,
            trtx::Severity::Error => Severity::Error,
            trtx::Severity::Warning => Severity::Warning,
            trtx::Severity::Info => Severity::Info,
            trtx::Severity::Verbose => Severity::Verbose,
        };
        if severity <= self.least {
            let message = Message { severity, text: text.to_owned() };
            self.kept.lock().unwrap_or_else(PoisonError::into_inner).push(message);
        }
    }
}
