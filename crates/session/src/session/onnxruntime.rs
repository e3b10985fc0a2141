//! Graphs on ONNX Runtime.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, ThreadId};

use ort::logging::LogLevel;
use ort::memory::{AllocationDevice, Allocator, AllocatorType, MemoryInfo, MemoryType};
use ort::session::builder::{GraphOptimizationLevel, SessionBuilder};
use ort::session::{IoBinding, NoSelectedOutputs, RunOptions, SessionInputValue};
use ort::value::{DynValue, Outlet, TensorRef, ValueType};
use parking_lot::Mutex;
use tileforge_contract::{DataType, Provider};
use tileforge_engine::{Engine, Graph};
use tileforge_files::unfinished;

use crate::assigned::Assigned;
use crate::buffer::{self, Buffer, Buffers};
use crate::cancel::{Cancel, Interrupt};
use crate::capture;
use crate::environment::Environment;
use crate::error::{Error, ONNX_RUNTIME, Result};
use crate::kernels::Kernels;
use crate::native;
use crate::options::{OptimisationLevel, SessionOptions};
use crate::processors::{Processors, multiply_8_bits};
use crate::provider;
use crate::tensor::{Named, Tensor, TensorInfo, of_each};
use crate::weights::Weights;

use super::backend::{Backend, Binding, Place};

/// An ONNX Runtime session. It runs one request at a time.
pub(super) struct OnnxRuntime {
    session: Arc<Mutex<Held>>,
    path: PathBuf,
    tensors: [Vec<TensorInfo>; 2],
    on_gpu: bool,
    /// The GPU of its buffers.
    device: Option<u32>,
    /// Whether the session records CUDA graphs.
    records: bool,
    /// Ours, if the graph was changed to use them.
    kernels: Option<Kernels>,
}

/// A session, whose end is a use of the GPU: its memory goes back.
struct Held {
    session: Option<ort::session::Session>,
    on_gpu: bool,
    /// How many CUDA graphs were recorded.
    recordings: i32,
}

impl Held {
    fn session(&mut self) -> ort::Result<&mut ort::session::Session> {
        self.session.as_mut().ok_or_else(|| ort::Error::new("the session has ended"))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _running = self.on_gpu.then(capture::shared);
        self.session = None;
    }
}

/// The option of the providers for CUDA and for RTX GPUs that records a graph in the first run.
const RECORDS: &str = "enable_cuda_graph";
/// The most CUDA graphs of a session. Each stays in memory until the session ends.
const MOST_RECORDINGS: i32 = 16;
/// What ONNX Runtime says of a graph that it cannot record.
const CANNOT_RECORD: &str = "cannot use the graph capture feature";

/// The number of no CUDA graph. A run with it neither records nor replays: a recorded graph would read the inputs of
/// the run that it was recorded in.
const UNRECORDED: i32 = -1;

/// The options of a session without CUDA graphs.
fn without_graphs(options: &SessionOptions) -> SessionOptions {
    let mut options = options.clone();
    options.provider_options.remove(RECORDS);
    options
}

/// The options of a session without our kernels; `None` if they have none.
fn without_kernels(options: &SessionOptions, path: &Path, error: &Error) -> Option<SessionOptions> {
    Kernels::are_for(options).then(|| {
        tracing::info!("{}: runs without our kernels: {error}", path.display());
        SessionOptions { own_kernels: false, ..options.clone() }
    })
}

/// Ends a run through the options that it was started with.
struct Terminate(RunOptions<NoSelectedOutputs>);

impl Interrupt for Terminate {
    fn interrupt(&self) {
        // Setting a flag of live options cannot fail.
        if let Err(error) = self.0.terminate() {
            tracing::warn!("a run cannot be ended: {error}");
        }
    }
}

impl OnnxRuntime {
    /// Makes a session: `commit` loads the graph into the builder. With `kernels`, it may have nodes of ours.
    pub(super) fn open(
        environment: &Environment,
        path: &Path,
        options: &SessionOptions,
        kernels: Option<Kernels>,
        commit: impl Fn(SessionBuilder) -> Result<ort::session::Session, String>,
    ) -> Result<Self> {
        let on_gpu = !options.provider.is_on_processor();
        // Device buffers of a plugin would need the plugin's own allocator, which is not yet tested on a GPU.
        let device = matches!(options.provider, Provider::TensorRt | Provider::Cuda).then_some(options.device);
        let on = |key: &str| options.provider_options.get(key).is_some_and(|value| value == "1");
        if on_gpu && device.is_none() && on(RECORDS) {
            // ONNX Runtime copies tensors of this machine's memory to new addresses in each run.
            return Self::open(environment, path, &without_graphs(options), kernels, commit);
        }
        let session = {
            let _opening = on_gpu.then(capture::opening);
            builder(environment, options).and_then(|builder| match &kernels {
                Some(kernels) => kernels.open(builder, &commit),
                None => commit(builder),
            })
        };
        let session = match session {
            // Nodes on the processor keep a graph from being recorded.
            Err(message) if on(RECORDS) && message.contains(CANNOT_RECORD) => {
                tracing::info!("{}: runs without CUDA graphs: {message}", path.display());
                return Self::open(environment, path, &without_graphs(options), kernels, commit);
            }
            session => session.map_err(|message| Error::unloaded(path, message))?,
        };
        let tensors = [session.inputs(), session.outputs()].map(|tensors| tensors.iter().map(tensor_info).collect());
        Ok(Self {
            session: Arc::new(Mutex::new(Held { session: Some(session), on_gpu, recordings: 0 })),
            path: path.to_owned(),
            tensors,
            on_gpu,
            device,
            records: on(RECORDS) || on("trt_cuda_graph_enable"),
            kernels,
        })
    }

    /// Makes a session of a file, with the weights beside it.
    pub(super) fn open_file(environment: &Environment, path: &Path, options: &SessionOptions) -> Result<Self> {
        // What cannot be read or changed here is ONNX Runtime's to judge.
        let adapted = || Kernels::adapted(options, &std::fs::read(path).ok()?, path).ok()?;
        let adapted = Kernels::are_for(options).then(adapted).flatten();
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let Some(((adapted, kernels), folder)) = adapted.zip(folder.to_str()) else {
            return Self::open(environment, path, options, None, |mut builder| {
                builder.commit_from_file(path).map_err(|error| error.to_string())
            });
        };
        let opened = Self::open(environment, path, options, Some(kernels), |builder| {
            let mut builder = with_weights_in(builder, folder)?;
            builder.commit_from_memory(&adapted).map_err(|error| error.to_string())
        });
        opened.or_else(|error| match without_kernels(options, path, &error) {
            Some(options) => Self::open_file(environment, path, &options),
            None => Err(error),
        })
    }

    /// Makes a session of an engine's graph, from the bytes that were checked when the engine was opened.
    pub(super) fn open_graph(
        environment: &Environment,
        engine: &Engine,
        graph: &Graph,
        options: &SessionOptions,
    ) -> Result<Self> {
        let open = |options: &SessionOptions| Self::open_graph_once(environment, engine, graph, options);
        open(options).or_else(|error| match without_kernels(options, &engine.path_of(&graph.file), &error) {
            Some(options) => open(&options),
            None => Err(error),
        })
    }

    fn open_graph_once(
        environment: &Environment,
        engine: &Engine,
        graph: &Graph,
        options: &SessionOptions,
    ) -> Result<Self> {
        let model = engine.file(&graph.file)?;
        let path = engine.path_of(&graph.file);
        let (adapted, kernels) = match options.provider {
            Provider::Cuda => {
                let adapted = tileforge_graph::for_cuda(model, &path);
                (Some(adapted.map_err(|error| Error::unloaded(&path, error.to_string()))?), None)
            }
            _ => Kernels::adapted(options, model, &path)?.unzip(),
        };
        let model = adapted.as_deref().unwrap_or(model);
        let weights = Weights::of(engine, model, &path)?;
        if let Some(relocated) = weights.in_open_files()? {
            let opened = Self::open(environment, &path, options, kernels.clone(), |builder| {
                let mut builder = with_weights_in(builder, "/")?;
                builder.commit_from_memory(&relocated).map_err(|error| error.to_string())
            });
            // If another engine replaced this one meanwhile, the files have lost their names but are still open. The
            // weights are then taken from memory below.
            if opened.is_ok() || weights.in_open_files()?.is_some() {
                return opened;
            }
        }
        // ONNX Runtime looks for all other weights in this empty folder.
        let parent = std::env::temp_dir();
        let nothing =
            unfinished::folder_in(&parent).map_err(|source| Error::file(&parent, "make a folder in", source))?;
        let folder = nothing.path().to_string_lossy().into_owned();
        let mapped = weights.mapped()?;
        Self::open(environment, &path, options, kernels, |builder| {
            let mut builder = with_weights_in(builder, &folder)?;
            native::add_weights(&mut builder, &mapped)?;
            builder.commit_from_memory(model).map_err(|error| error.to_string())
        })
    }
}

impl Backend for OnnxRuntime {
    fn tensors(&self) -> [Vec<TensorInfo>; 2] {
        self.tensors.clone()
    }

    fn assigned(&self) -> Result<Vec<Assigned>> {
        let mut held = self.session.lock();
        let assigned =
            held.session().map_err(|error| error.to_string()).and_then(|session| native::assignment(session));
        assigned.map_err(|message| {
            Error::unloaded(&self.path, format!("it does not say which provider took its nodes: {message}"))
        })
    }

    fn buffers(&self, place: Place) -> Result<Buffers> {
        let (memory, kind) = match place {
            Place::Host => (AllocationDevice::CUDA_PINNED, MemoryType::CPUInput),
            Place::Device => (AllocationDevice::CUDA, MemoryType::Default),
        };
        let on_gpu = |device: u32| {
            let device = i32::try_from(device).unwrap_or(i32::MAX);
            let memory = MemoryInfo::new(memory, device, AllocatorType::Device, kind)?;
            Allocator::new(self.session.lock().session()?, memory)
        };
        let allocator = self.device.map_or_else(|| Ok(Allocator::default()), on_gpu);
        allocator.map(|allocator| Buffers::new(allocator, &self.path)).map_err(|error| run_error(&self.path, error))
    }

    fn replays(&self) -> bool {
        self.records
    }

    fn copies_bound_inputs(&self) -> bool {
        self.on_gpu && self.device.is_none()
    }

    fn peak_bytes(&self) -> Option<u64> {
        let mut held = self.session.lock();
        let peak = held.session().map_err(|error| error.to_string()).and_then(|session| native::peak_bytes(session));
        peak.inspect_err(|message| tracing::debug!("ONNX Runtime does not say what memory it took: {message}")).ok()?
    }

    fn kernels_bytes(&self) -> u64 {
        self.kernels.as_ref().map_or(0, Kernels::bytes)
    }

    fn run(&self, inputs: &[(&str, &Tensor)], cancel: &Cancel) -> Result<Named> {
        let failed = |error: ort::Error| run_error(&self.path, error);
        let values = inputs.iter().map(|(name, tensor)| {
            let value: SessionInputValue<'_> =
                of_each!(tensor, array => TensorRef::from_array_view(array.view())?.into());
            Ok((Cow::from(*name), value))
        });
        let values = values.collect::<ort::Result<Vec<(Cow<'_, str>, SessionInputValue<'_>)>>>().map_err(failed)?;
        let mut held = self.session.lock();
        let unrecorded = self.records.then_some(UNRECORDED);
        cancellable(&self.path, cancel, unrecorded, |options| {
            let _running = self.on_gpu.then(capture::shared);
            let outputs = held.session().and_then(|session| session.run_with_options(values, options));
            let outputs = outputs.map_err(failed)?;
            outputs.iter().map(|(name, value)| Ok((name.to_owned(), self.owned(name, &value)?))).collect()
        })
    }

    fn binding(&self) -> Result<Box<dyn Binding>> {
        let binding = self.session.lock().session().and_then(|session| session.create_binding());
        let binding = binding.map_err(|error| run_error(&self.path, error))?;
        Ok(Box::new(OnnxRuntimeBinding {
            binding,
            session: self.session.clone(),
            path: self.path.clone(),
            on_gpu: self.on_gpu,
            records: self.records,
            recorded: None,
        }))
    }
}

impl OnnxRuntime {
    /// A copy of an output.
    fn owned(&self, name: &str, value: &DynValue) -> Result<Tensor> {
        owned(value).ok_or_else(|| Error::Tensor {
            path: self.path.clone(),
            tensor: name.to_owned(),
            expected: "a tensor of numbers".into(),
            found: value.dtype().to_string(),
        })
    }
}

struct OnnxRuntimeBinding {
    binding: IoBinding,
    session: Arc<Mutex<Held>>,
    path: PathBuf,
    on_gpu: bool,
    /// Whether the session records CUDA graphs.
    records: bool,
    /// The CUDA graph of these tensors. It replays their addresses, and ONNX Runtime keeps it for the thread that
    /// recorded it.
    recorded: Option<(i32, ThreadId)>,
}

impl Binding for OnnxRuntimeBinding {
    fn bind_input(&mut self, name: &str, buffer: &Buffer) -> Result<()> {
        self.binding.bind_input(name, &buffer.tensor).map_err(|error| run_error(&self.path, error))
    }

    fn bind_output(&mut self, name: &str, buffer: &mut Buffer) -> Result<()> {
        self.binding.bind_output(name, &mut buffer.tensor).map_err(|error| run_error(&self.path, error))
    }

    fn run(&mut self, cancel: &Cancel) -> Result<()> {
        let mut held = self.session.lock();
        let is_first = self.records && self.recorded.is_none() && held.recordings < MOST_RECORDINGS;
        let alone = if is_first { capture::alone() } else { None };
        let _running = (self.on_gpu && alone.is_none()).then(capture::shared);
        let here = thread::current().id();
        let replayed = self.recorded.filter(|(_, thread)| *thread == here).map(|(number, _)| number);
        let number = if alone.is_some() { held.recordings } else { replayed.unwrap_or(UNRECORDED) };
        let graph = self.records.then_some(number);
        held.recordings += i32::from(alone.is_some());
        cancellable(&self.path, cancel, graph, |options| {
            let mut run = || {
                held.session()?.run_binding_with_options(&self.binding, options)?;
                self.binding.synchronize_outputs()
            };
            run().map_err(|error| run_error(&self.path, error))
        })?;
        if alone.is_some() {
            self.recorded = Some((number, here));
        }
        Ok(())
    }
}

/// Calls `run`, which the flag can end. `graph` is the number of the CUDA graph that it records or replays, in a
/// session that records such graphs.
fn cancellable<R>(
    path: &Path,
    cancel: &Cancel,
    graph: Option<i32>,
    run: impl FnOnce(&RunOptions<NoSelectedOutputs>) -> Result<R>,
) -> Result<R> {
    let mut options = RunOptions::new().map_err(|error| run_error(path, error))?;
    if let Some(graph) = graph {
        options.set("gpu_graph_id", graph.to_string()).map_err(|error| run_error(path, error))?;
    }
    let terminate = Arc::new(Terminate(options));
    let interrupt: Arc<dyn Interrupt> = terminate.clone();
    match cancel.during(&interrupt, || run(&terminate.0)) {
        Some(Ok(result)) => Ok(result),
        // ONNX Runtime has no error code for a run that was ended.
        Some(Err(error)) => Err(if cancel.is_cancelled() { Error::Cancelled } else { error }),
        None => Err(Error::Cancelled),
    }
}

/// A copy of a value; `None` if it is not a tensor, or of an element type that Rust lacks.
fn owned(value: &DynValue) -> Option<Tensor> {
    use half::{bf16, f16};

    let ValueType::Tensor { ty, .. } = value.dtype() else { return None };
    macro_rules! array {
        ($rust:ty) => {
            value.try_extract_array::<$rust>().ok()?.into_owned()
        };
    }
    Some(match buffer::data_type(*ty)? {
        DataType::F32 => Tensor::F32(array!(f32)),
        DataType::F16 => Tensor::F16(array!(f16)),
        DataType::Bf16 => Tensor::Bf16(array!(bf16)),
        DataType::I64 => Tensor::I64(array!(i64)),
        DataType::I32 => Tensor::I32(array!(i32)),
        DataType::I8 => Tensor::I8(array!(i8)),
        DataType::U8 => Tensor::U8(array!(u8)),
        DataType::Bool => Tensor::Bool(array!(bool)),
        _ => return None,
    })
}

/// How long a waiting thread spins before it sleeps, in microseconds. ONNX Runtime's default is so long that idle
/// threads take processors from other programs, and from the session's own threads if there are more threads than
/// processors (docs/benchmarks.md).
const SPIN_MICROSECONDS: &str = "10";

fn builder(environment: &Environment, options: &SessionOptions) -> Result<SessionBuilder, String> {
    // Builder errors hold the builder, which is not `Send`. So only their text is kept.
    fn text<R>(error: ort::Error<R>) -> String {
        error.to_string()
    }
    let level = match options.optimisation {
        OptimisationLevel::All => GraphOptimizationLevel::All,
        OptimisationLevel::Extended => GraphOptimizationLevel::Level2,
        OptimisationLevel::Basic => GraphOptimizationLevel::Level1,
        OptimisationLevel::Disabled => GraphOptimizationLevel::Disable,
    };
    let mut builder = ort::session::Session::builder(environment.library().environment())
        .map_err(text)?
        .with_log_level(LogLevel::Warning)
        .map_err(text)?
        .with_optimization_level(level)
        .map_err(text)?
        .with_config_entry("session.record_ep_graph_assignment_info", "1")
        .map_err(text)?
        .with_execution_providers(provider::dispatch(options)?)
        .map_err(text)?;
    builder = provider::with_plugin(environment.library(), builder, options)?;
    if let Some(prefix) = &options.profile {
        builder = builder.with_profiling(prefix).map_err(text)?;
    }
    if !multiply_8_bits() {
        // These processors sum products of signed and unsigned 8-bit numbers in 16 bits, which can overflow. With this
        // option, ONNX Runtime uses unsigned weights, whose products do not overflow. On other processors, the option
        // would make graphs three times as slow.
        builder = builder.with_config_entry("session.x64quantprecision", "1").map_err(text)?;
    }
    if options.dequantises_weights {
        // Otherwise, ONNX Runtime leaves weights in 8 bits where it may fuse their dequantisation into a kernel.
        builder = builder.with_config_entry("session.disable_quant_qdq", "1").map_err(text)?;
    }
    if options.provider == Provider::Cpu {
        // ONNX Runtime would plan one block for all tensors of a run, up to twice as large as what is in use at any
        // time (docs/benchmarks.md, "Memory of a run").
        builder = builder.with_memory_pattern(false).map_err(text)?;
    }
    let threads = options.threads.unwrap_or_else(|| Processors::available().threads(1));
    builder = builder.with_intra_threads(threads).map_err(text)?;
    builder = builder.with_config_entry("session.intra_op.spin_duration_us", SPIN_MICROSECONDS).map_err(text)?;
    if let Some(path) = &options.optimised_model_path {
        builder = builder.with_optimized_model_path(path).map_err(text)?;
        // Prepacking would make a second copy of all weights, for a session that is not run.
        builder = builder.with_config_entry("session.disable_prepacking", "1").map_err(text)?;
    }
    Ok(builder)
}

fn run_error(path: &Path, error: ort::Error) -> Error {
    Error::Session { library: ONNX_RUNTIME, path: path.to_owned(), action: "run", message: error.to_string() }
}

fn tensor_info(outlet: &Outlet) -> TensorInfo {
    let name = outlet.name().to_owned();
    match outlet.dtype() {
        ValueType::Tensor { ty, shape, .. } => TensorInfo {
            name,
            data_type: buffer::data_type(*ty),
            // Open lengths are negative.
            shape: shape.iter().map(|&length| usize::try_from(length).ok()).collect(),
        },
        _ => TensorInfo { name, data_type: None, shape: Vec::new() },
    }
}

/// Sets the folder that the locations of weights are relative to.
fn with_weights_in(builder: SessionBuilder, folder: &str) -> Result<SessionBuilder, String> {
    let key = "session.model_external_initializers_file_folder_path";
    builder.with_config_entry(key, folder).map_err(|error| error.to_string())
}
