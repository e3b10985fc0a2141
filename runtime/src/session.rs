//! A graph loaded into ONNX Runtime, and the tensors that go through it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ndarray::{ArrayD, ArrayViewD};
use ort::logging::LogLevel;
use ort::memory::{AllocationDevice, Allocator, AllocatorType, MemoryInfo, MemoryType};
use ort::session::builder::GraphOptimizationLevel;
use ort::session::{IoBinding, SessionInputValue};
use ort::value::{Outlet, TensorElementType, TensorRef, ValueType};
use serde::Serialize;

use crate::error::{Error, Result};
use crate::native;
use crate::onnxruntime;
use crate::provider::{self, Provider};

/// How far ONNX Runtime rewrites a graph while loading it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OptimisationLevel {
    /// Everything, including layouts for this processor.
    #[default]
    All,
    /// Fusions, but no processor-specific layouts: what may be written to a file for other boxes.
    Extended,
    /// Nothing: every operator as the graph has it, which is what a reference is.
    Disabled,
}

/// How a [`Session`] is opened.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// What executes the nodes.
    pub provider: Provider,
    /// What the provider is given, by its own names; empty for the CPU.
    pub provider_options: BTreeMap<String, String>,
    /// The GPU, by the driver's number.
    pub device: u32,
    /// Every node runs on `provider`, or the session is not opened. Otherwise TensorRT leaves to CUDA, and CUDA to the
    /// CPU, what they lack.
    pub strict: bool,
    /// Threads within one operator; `None`: one for each physical core.
    pub threads: Option<usize>,
    /// How far the graph is rewritten.
    pub optimisation: OptimisationLevel,
    /// Where to write the rewritten graph, for offline optimisation.
    pub optimised_model_path: Option<PathBuf>,
    /// How the name of ONNX Runtime's profile begins, if one is to be written, which it is when the session is closed.
    pub profile: Option<PathBuf>,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            provider: Provider::Cpu,
            provider_options: BTreeMap::new(),
            device: 0,
            strict: false,
            threads: None,
            optimisation: OptimisationLevel::All,
            optimised_model_path: None,
            profile: None,
        }
    }
}

/// Nodes that one execution provider took.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Assigned {
    /// ONNX Runtime's name, such as "CUDAExecutionProvider".
    pub provider: String,
    /// Number of nodes.
    pub nodes: usize,
}

/// One input or output of a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name in the graph.
    pub name: String,
    /// Its element type as ONNX Runtime writes it, such as "f32"; the kind for what is no tensor.
    pub element: String,
    /// Its dimensions; `None` where the graph leaves one open.
    pub shape: Vec<Option<usize>>,
}

/// A dense float32 tensor that ONNX Runtime owns, reads and writes in place.
#[derive(Debug)]
pub struct Tensor(ort::value::Tensor<f32>);

impl Tensor {
    /// The elements in row-major order.
    pub fn as_slice(&self) -> &[f32] {
        self.0.extract_tensor().1
    }

    /// The elements in row-major order.
    pub fn as_mut_slice(&mut self) -> &mut [f32] {
        self.0.extract_tensor_mut().1
    }
}

/// Makes tensors for [`Session::run_into`]: in pinned memory where a GPU copies from it and to it.
pub struct Tensors(Allocator);

impl Tensors {
    /// A tensor of zeros, to be used again and again.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] when there is no memory for it.
    pub fn zeros(&self, shape: &[usize]) -> Result<Tensor> {
        let made = ort::value::Tensor::<f32>::new(&self.0, shape);
        let mut tensor =
            made.map_err(|error| Error::OutOfMemory(format!("no memory for a tensor of {shape:?}: {error}")))?;
        tensor.extract_tensor_mut().1.fill(0.0);
        Ok(Tensor(tensor))
    }
}

/// Where the tensors of a [`Session`] are bound to.
enum Bound {
    /// To the caller's, again for each run.
    Host(IoBinding),
    /// To two on the device, for good: CUDA graphs replay the very addresses that they were recorded with.
    Device { binding: IoBinding, input: Tensor, output: Tensor },
}

/// A graph that is ready to run.
pub struct Session {
    session: ort::session::Session,
    path: PathBuf,
    inputs: Vec<TensorInfo>,
    outputs: Vec<TensorInfo>,
    assigned: Vec<Assigned>,
    provider: Provider,
    device: Option<u32>,
    replays: bool,
    bound: Option<Bound>,
    open_time: Duration,
}

impl fmt::Debug for Session {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Session")
            .field("path", &self.path)
            .field("assigned", &self.assigned)
            .finish_non_exhaustive()
    }
}

impl Session {
    /// Loads the graph at `path`, and the library before it if that has not been done.
    ///
    /// Always by path: a graph passed as bytes may not exceed 2 GiB with its weights.
    ///
    /// # Errors
    /// [`Error::DoesNotFit`] for a provider that cannot be used here, with the reason, and for a strict session of
    /// which another provider would run nodes; [`Error::Session`] when ONNX Runtime refuses the graph; those of
    /// [`onnxruntime::load`].
    pub fn open(path: &Path, options: &SessionOptions) -> Result<Self> {
        let library = onnxruntime::load(None)?;
        if options.provider != Provider::Cpu {
            provider::require(library, options.provider)?;
        }
        let started = Instant::now();
        let failed = |message: String| Error::Session { path: path.to_owned(), action: "load the graph", message };
        let session = build(library, path, options).map_err(failed)?;
        let assigned = native::assignment(&session)
            .map_err(|message| failed(format!("tell which provider took its nodes: {message}")))?;
        let taken_by_others = |assigned: &&Assigned| assigned.provider != options.provider.onnxruntime_name();
        if let Some(other) = assigned.iter().find(taken_by_others).filter(|_| options.strict) {
            return Err(Error::DoesNotFit(format!(
                "{}: {} nodes would run on {} instead of {}; leave out --strict to allow that",
                path.display(),
                other.nodes,
                other.provider,
                options.provider
            )));
        }
        let on = |key: &str| options.provider_options.get(key).is_some_and(|value| value == "1");
        Ok(Self {
            inputs: session.inputs().iter().map(tensor_info).collect(),
            outputs: session.outputs().iter().map(tensor_info).collect(),
            session,
            path: path.to_owned(),
            assigned,
            provider: options.provider,
            device: (options.provider != Provider::Cpu).then_some(options.device),
            replays: on("enable_cuda_graph") || on("trt_cuda_graph_enable"),
            bound: None,
            open_time: started.elapsed(),
        })
    }

    /// Which providers took the graph's nodes, by ONNX Runtime's own record: that with most nodes first.
    pub fn assigned(&self) -> &[Assigned] {
        &self.assigned
    }

    /// The provider that it was opened on.
    pub fn provider(&self) -> Provider {
        self.provider
    }

    /// The graph's inputs, in its order.
    pub fn inputs(&self) -> &[TensorInfo] {
        &self.inputs
    }

    /// The graph's outputs, in its order.
    pub fn outputs(&self) -> &[TensorInfo] {
        &self.outputs
    }

    /// How long [`Session::open`] took, without loading the library.
    pub fn open_time(&self) -> Duration {
        self.open_time
    }

    /// Runs the graph on named inputs and returns all outputs by name, in its order.
    ///
    /// An input that the graph takes as int64, such as the tokens of a text, is given as float32 too, which holds whole
    /// numbers up to 2^24 exactly.
    ///
    /// # Errors
    /// [`Error::Session`] for a name, shape or element type that the graph does not have, an
    /// output that is not float32, or a failure within.
    pub fn run(&mut self, inputs: &[(&str, ArrayViewD<'_, f32>)]) -> Result<Vec<(String, ArrayD<f32>)>> {
        let path = &self.path;
        let failed = |error: ort::Error| run_error(path, error);
        let is_integer = |name: &str| {
            self.inputs.iter().any(|input| input.name == name && input.element == TensorElementType::Int64.to_string())
        };
        let inputs: Vec<_> = inputs.iter().map(|(name, view)| (*name, view.as_standard_layout())).collect();
        let values = inputs.iter().map(|(name, array)| -> ort::Result<(Cow<'_, str>, SessionInputValue<'_>)> {
            let value = match is_integer(name) {
                true => ort::value::Tensor::from_array(array.mapv(|value| value as i64))?.into(),
                false => TensorRef::from_array_view(array)?.into(),
            };
            Ok((Cow::from(*name), value))
        });
        let values = values.collect::<ort::Result<Vec<(Cow<'_, str>, SessionInputValue<'_>)>>>();
        let outputs = self.session.run(values.map_err(failed)?).map_err(failed)?;
        outputs
            .iter()
            .map(|(name, value)| Ok((name.to_owned(), value.try_extract_array::<f32>().map_err(failed)?.into_owned())))
            .collect()
    }

    /// What makes tensors for [`Session::run_into`].
    ///
    /// # Errors
    /// [`Error::Session`] when ONNX Runtime has no such memory.
    pub fn tensors(&self) -> Result<Tensors> {
        let allocator = match self.device {
            None => Ok(Allocator::default()),
            Some(device) => self.allocator(AllocationDevice::CUDA_PINNED, device, MemoryType::CPUInput),
        };
        allocator.map(Tensors).map_err(|error| run_error(&self.path, error))
    }

    fn allocator(&self, memory: AllocationDevice<'_>, device: u32, kind: MemoryType) -> ort::Result<Allocator> {
        let device = i32::try_from(device).unwrap_or(i32::MAX);
        Allocator::new(&self.session, MemoryInfo::new(memory, device, AllocatorType::Device, kind)?)
    }

    /// Runs the graph from one tensor into another, both of [`Session::tensors`] and of fixed shape; nothing is
    /// allocated, and on a CPU nothing is copied.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn run_into(&mut self, input: (&str, &Tensor), output: (&str, &mut Tensor)) -> Result<()> {
        self.run_bound(input, output).map_err(|error| run_error(&self.path, error))
    }

    fn run_bound(&mut self, (input, from): (&str, &Tensor), (output, to): (&str, &mut Tensor)) -> ort::Result<()> {
        if self.bound.is_none() {
            self.bound = Some(self.bind((input, from), (output, to))?);
        }
        match &mut self.bound {
            Some(Bound::Device { binding, input: on_device, output: made }) => {
                from.0.copy_into(&mut on_device.0)?;
                self.session.run_binding(binding)?;
                made.0.copy_into(&mut to.0)
            }
            Some(Bound::Host(binding)) => {
                binding.bind_input(input, &from.0)?;
                binding.bind_output(output, &mut to.0)?;
                self.session.run_binding(binding)?;
                binding.synchronize_outputs()
            }
            None => Ok(()),
        }
    }

    fn bind(&self, (input, from): (&str, &Tensor), (output, to): (&str, &Tensor)) -> ort::Result<Bound> {
        let mut binding = self.session.create_binding()?;
        let Some(device) = self.device.filter(|_| self.replays) else { return Ok(Bound::Host(binding)) };
        let memory = self.allocator(AllocationDevice::CUDA, device, MemoryType::Default)?;
        let on_device = |like: &Tensor| ort::value::Tensor::<f32>::new(&memory, like.0.shape().to_vec());
        let (from, mut to) = (on_device(from)?, on_device(to)?);
        binding.bind_input(input, &from)?;
        binding.bind_output(output, &mut to)?;
        Ok(Bound::Device { binding, input: Tensor(from), output: Tensor(to) })
    }
}

fn build(
    library: &onnxruntime::Library,
    path: &Path,
    options: &SessionOptions,
) -> Result<ort::session::Session, String> {
    // Builder errors carry the builder, which cannot cross threads: only their text goes on.
    fn text<R>(error: ort::Error<R>) -> String {
        error.to_string()
    }
    let level = match options.optimisation {
        OptimisationLevel::All => GraphOptimizationLevel::All,
        OptimisationLevel::Extended => GraphOptimizationLevel::Level2,
        OptimisationLevel::Disabled => GraphOptimizationLevel::Disable,
    };
    let mut builder = ort::session::Session::builder(library.environment())
        .map_err(text)?
        .with_log_level(LogLevel::Warning)
        .map_err(text)?
        .with_optimization_level(level)
        .map_err(text)?
        .with_config_entry("session.record_ep_graph_assignment_info", "1")
        .map_err(text)?
        .with_execution_providers(provider::dispatch(options)?)
        .map_err(text)?;
    if let Some(prefix) = &options.profile {
        builder = builder.with_profiling(prefix).map_err(text)?;
    }
    if let Some(threads) = options.threads {
        builder = builder.with_intra_threads(threads).map_err(text)?;
    }
    if let Some(path) = &options.optimised_model_path {
        builder = builder.with_optimized_model_path(path).map_err(text)?;
    }
    builder.commit_from_file(path).map_err(text)
}

fn run_error(path: &Path, error: ort::Error) -> Error {
    Error::Session { path: path.to_owned(), action: "run", message: error.to_string() }
}

fn tensor_info(outlet: &Outlet) -> TensorInfo {
    let name = outlet.name().to_owned();
    match outlet.dtype() {
        ValueType::Tensor { ty, shape, .. } => TensorInfo {
            name,
            element: ty.to_string(),
            // Open dimensions are negative.
            shape: shape.iter().map(|&length| usize::try_from(length).ok()).collect(),
        },
        other => TensorInfo { name, element: other.to_string(), shape: Vec::new() },
    }
}
