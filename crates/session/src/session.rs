//! A graph loaded into ONNX Runtime.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ort::logging::LogLevel;
use ort::memory::{AllocationDevice, Allocator, AllocatorType, MemoryInfo, MemoryType};
use ort::session::builder::{GraphOptimizationLevel, SessionBuilder};
use ort::session::{IoBinding, SessionInputValue};
use ort::value::{DynValue, Outlet, TensorRef, ValueType};
use tileforge_contract::{Contract, DataType, Provider};
use tileforge_engine::{Engine, Graph};
use tileforge_files::unfinished;

use crate::assigned::Assigned;
use crate::bound::Bound;
use crate::buffer::{self, Buffer, Buffers};
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::native::{self, LargeBlocksReturn};
use crate::options::{OptimisationLevel, SessionOptions};
use crate::processors::{Processors, multiply_8_bits};
use crate::provider;
use crate::tensor::{Named, Tensor, of_each};
use crate::weights::Weights;

/// One input or output of a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name in the graph.
    pub name: String,
    /// The type of its elements; `None` if it is not a tensor of numbers.
    pub data_type: Option<DataType>,
    /// Its dimensions; `None` where the graph leaves a length open.
    pub shape: Vec<Option<usize>>,
}

impl TensorInfo {
    /// Whether a tensor of this shape can be it.
    fn allows(&self, shape: &[usize]) -> bool {
        let fits = |(length, expected): (&usize, &Option<usize>)| expected.is_none_or(|expected| expected == *length);
        shape.len() == self.shape.len() && shape.iter().zip(&self.shape).all(fits)
    }
}

/// How the caller's buffers are bound.
enum Callers {
    /// Bound anew for each run. Nothing is copied.
    Direct(IoBinding),
    /// Copied to buffers on the device that stay bound, because CUDA graphs replay the addresses that they were
    /// recorded with.
    Copied(Bound),
}

/// A graph that is ready to run.
pub struct Session {
    session: ort::session::Session,
    /// Holds the weights, which ONNX Runtime may use where they are. Dropped after the session.
    _engine: Option<Engine>,
    path: PathBuf,
    inputs: Vec<TensorInfo>,
    outputs: Vec<TensorInfo>,
    assigned: Vec<Assigned>,
    provider: Provider,
    device: Option<u32>,
    replays: bool,
    callers: Option<Callers>,
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
    /// Loads the graph at `path`, with the weights beside it.
    ///
    /// # Errors
    /// [`Error::ProviderUnusable`] for a provider that cannot be used here; [`Error::NodesElsewhere`] if the session is
    /// strict and another provider would run nodes; [`Error::Session`] if ONNX Runtime refuses the graph.
    pub fn open(environment: &Environment, path: &Path, options: &SessionOptions) -> Result<Self> {
        Self::open_with(environment, path.to_owned(), None, options, |mut builder| {
            builder.commit_from_file(path).map_err(|error| error.to_string())
        })
    }

    /// Loads a graph of an engine: from the bytes that were checked when the engine was opened, and nothing else. The
    /// graph can use only weights that the manifest lists.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub fn open_graph(
        environment: &Environment,
        engine: &Engine,
        graph: &Graph,
        options: &SessionOptions,
    ) -> Result<Self> {
        let model = engine.file(&graph.file)?;
        let path = engine.path_of(&graph.file);
        let weights = Weights::of(engine, model, &path)?;
        if let Some(relocated) = weights.in_open_files()? {
            let opened = Self::open_with(environment, path.clone(), Some(engine.clone()), options, |builder| {
                let mut builder = with_weights_in(builder, "/")?;
                builder.commit_from_memory(&relocated).map_err(|error| error.to_string())
            });
            // An engine that was replaced meanwhile has lost its files' names, and not the files.
            if opened.is_ok() || weights.in_open_files()?.is_some() {
                return opened;
            }
        }
        // ONNX Runtime looks for all other weights in this folder, which has none.
        let parent = std::env::temp_dir();
        let nothing =
            unfinished::folder_in(&parent).map_err(|source| Error::file(&parent, "make a folder in", source))?;
        let folder = nothing.path().to_string_lossy().into_owned();
        let mapped = weights.mapped()?;
        Self::open_with(environment, path.clone(), Some(engine.clone()), options, |builder| {
            let mut builder = with_weights_in(builder, &folder)?;
            native::add_weights(&mut builder, &mapped)?;
            builder.commit_from_memory(model).map_err(|error| error.to_string())
        })
    }

    fn open_with(
        environment: &Environment,
        path: PathBuf,
        engine: Option<Engine>,
        options: &SessionOptions,
        commit: impl FnOnce(SessionBuilder) -> Result<ort::session::Session, String>,
    ) -> Result<Self> {
        if options.provider != Provider::Cpu {
            environment.require(options.provider)?;
        }
        let started = Instant::now();
        let failed = |message: String| Error::unloaded(&path, message);
        let returning = LargeBlocksReturn::new();
        let session = builder(environment, options).and_then(commit).map_err(failed)?;
        drop(returning);
        let assigned = native::assignment(&session)
            .map_err(|message| failed(format!("it does not say which provider took its nodes: {message}")))?;
        let taken_by_others = |assigned: &&Assigned| assigned.provider != options.provider.onnxruntime_name();
        if let Some(other) = assigned.iter().find(taken_by_others).filter(|_| options.strict) {
            let (path, expected, found) = (path.clone(), options.provider, other.provider.clone());
            return Err(Error::NodesElsewhere { path, nodes: other.nodes, expected, found });
        }
        let on = |key: &str| options.provider_options.get(key).is_some_and(|value| value == "1");
        Ok(Self {
            inputs: session.inputs().iter().map(tensor_info).collect(),
            outputs: session.outputs().iter().map(tensor_info).collect(),
            session,
            _engine: engine,
            path,
            assigned,
            provider: options.provider,
            // Buffers on the device of a plugin would need its own allocator, which no GPU has shown to work yet.
            device: matches!(options.provider, Provider::TensorRt | Provider::Cuda).then_some(options.device),
            replays: on("enable_cuda_graph") || on("trt_cuda_graph_enable"),
            callers: None,
            open_time: started.elapsed(),
        })
    }

    /// The providers that took the graph's nodes, by ONNX Runtime's own record, the one with most nodes first.
    pub fn assigned(&self) -> &[Assigned] {
        &self.assigned
    }

    /// The provider that it was opened on.
    pub fn provider(&self) -> Provider {
        self.provider
    }

    /// The inputs, in the graph's order.
    pub fn inputs(&self) -> &[TensorInfo] {
        &self.inputs
    }

    /// The outputs, in the graph's order.
    pub fn outputs(&self) -> &[TensorInfo] {
        &self.outputs
    }

    /// How long [`Session::open`] took, without loading the library.
    pub fn open_time(&self) -> Duration {
        self.open_time
    }

    /// Runs the graph on named inputs. Returns all outputs by name, in the graph's order.
    ///
    /// # Errors
    /// [`Error::Tensor`] for an input that the graph does not have, or has in another type or shape; [`Error::Session`]
    /// for a failure within the run.
    pub fn run(&mut self, inputs: &[(&str, &Tensor)]) -> Result<Named> {
        inputs.iter().try_for_each(|(name, tensor)| self.check(name, tensor.data_type(), tensor.shape()))?;
        let path = &self.path;
        let failed = |error: ort::Error| run_error(path, error);
        let values = inputs.iter().map(|(name, tensor)| {
            let value: SessionInputValue<'_> =
                of_each!(tensor, array => TensorRef::from_array_view(array.view())?.into());
            Ok((Cow::from(*name), value))
        });
        let values = values.collect::<ort::Result<Vec<(Cow<'_, str>, SessionInputValue<'_>)>>>().map_err(failed)?;
        let outputs = self.session.run(values).map_err(failed)?;
        outputs
            .iter()
            .map(|(name, value)| {
                let no_tensor = || Error::Tensor {
                    path: path.clone(),
                    tensor: name.to_owned(),
                    expected: "a tensor of numbers".into(),
                    found: value.dtype().to_string(),
                };
                Ok((name.to_owned(), owned(&value).ok_or_else(no_tensor)?))
            })
            .collect()
    }

    /// Checks that the graph has an input of this name, type and shape.
    fn check(&self, name: &str, data_type: DataType, shape: &[usize]) -> Result<()> {
        let wrong = |expected: String, found: String| {
            Err(Error::Tensor { path: self.path.clone(), tensor: name.to_owned(), expected, found })
        };
        let Some(input) = self.inputs.iter().find(|input| input.name == name) else {
            let names = self.inputs.iter().map(|input| input.name.as_str()).collect::<Vec<_>>().join(", ");
            return wrong(format!("one of the inputs {names}"), "no such input".into());
        };
        if !input.allows(shape) || input.data_type != Some(data_type) {
            let length = |length: &Option<usize>| length.map_or("any".into(), |length| length.to_string());
            let lengths = input.shape.iter().map(length).collect::<Vec<_>>().join(", ");
            let expected = input.data_type.map_or("no tensor", DataType::name);
            return wrong(format!("{expected} [{lengths}]"), format!("{data_type} {shape:?}"));
        }
        Ok(())
    }

    /// Makes buffers for [`Session::run_into`] in this machine's memory: pinned if the session runs on a GPU.
    ///
    /// # Errors
    /// [`Error::Session`] if ONNX Runtime has no such memory.
    pub fn buffers(&self) -> Result<Buffers> {
        self.buffers_in(AllocationDevice::CUDA_PINNED, MemoryType::CPUInput)
    }

    /// Makes buffers on the device that the graph runs on.
    fn device_buffers(&self) -> Result<Buffers> {
        self.buffers_in(AllocationDevice::CUDA, MemoryType::Default)
    }

    /// Makes buffers in this memory of the session's GPU, or in plain memory if it has none.
    fn buffers_in(&self, memory: AllocationDevice<'_>, kind: MemoryType) -> Result<Buffers> {
        let on_gpu = |device: u32| {
            let device = i32::try_from(device).unwrap_or(i32::MAX);
            Allocator::new(&self.session, MemoryInfo::new(memory, device, AllocatorType::Device, kind)?)
        };
        let allocator = self.device.map_or_else(|| Ok(Allocator::default()), on_gpu);
        allocator.map(Buffers).map_err(|error| run_error(&self.path, error))
    }

    /// Runs the graph from buffers into buffers, all made by [`Session::buffers`]. Nothing is allocated, and on a CPU
    /// nothing is copied.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn run_into(&mut self, inputs: &[(&str, &Buffer)], outputs: &mut [(&str, &mut Buffer)]) -> Result<()> {
        inputs.iter().try_for_each(|(name, buffer)| self.check(name, buffer.data_type(), buffer.shape()))?;
        if self.callers.is_none() {
            self.callers = Some(if self.replays {
                Callers::Copied(self.bind(&[])?)
            } else {
                Callers::Direct(self.session.create_binding().map_err(|error| run_error(&self.path, error))?)
            });
        }
        match &mut self.callers {
            Some(Callers::Copied(bound)) => {
                inputs.iter().try_for_each(|(name, buffer)| bound.write(name, buffer))?;
                self.session.run_binding(&bound.binding).map_err(|error| run_error(&self.path, error))?;
                outputs.iter_mut().try_for_each(|(name, buffer)| bound.read(name, buffer))
            }
            Some(Callers::Direct(binding)) => {
                let mut run = || -> ort::Result<()> {
                    inputs.iter().try_for_each(|(name, buffer)| binding.bind_input(*name, &buffer.tensor))?;
                    outputs.iter_mut().try_for_each(|(name, buffer)| binding.bind_output(*name, &mut buffer.tensor))?;
                    self.session.run_binding(binding)?;
                    binding.synchronize_outputs()
                };
                run().map_err(|error| run_error(&self.path, error))
            }
            None => Ok(()),
        }
    }

    /// Binds every input and output once, all zeros at first. Each pair in `carried` names an input, and the output
    /// that becomes this input in the next run.
    ///
    /// # Errors
    /// [`Error::Tensor`]: the graph leaves a length open, or the tensors of a pair differ; [`Error::OutOfMemory`].
    pub fn bind(&self, carried: &[(&str, &str)]) -> Result<Bound> {
        self.bind_in(carried, |_| None)
    }

    /// As [`Session::bind`], where `shape_of` gives the shapes of tensors with lengths that the graph leaves open.
    fn bind_in<'s>(&self, carried: &[(&str, &str)], shape_of: impl Fn(&str) -> Option<&'s [usize]>) -> Result<Bound> {
        let buffers = self.device_buffers()?;
        let make = |info: &TensorInfo| -> Result<(String, Buffer)> {
            let fixed: Option<Vec<usize>> = info.shape.iter().copied().collect();
            let shape =
                fixed.or_else(|| shape_of(&info.name).filter(|shape| info.allows(shape)).map(<[usize]>::to_vec));
            let (shape, data_type) = shape.zip(info.data_type).ok_or_else(|| Error::Tensor {
                path: self.path.clone(),
                tensor: info.name.clone(),
                expected: "a tensor of fixed lengths".into(),
                found: format!("{:?}", info.shape),
            })?;
            Ok((info.name.clone(), buffers.zeros(data_type, &shape)?))
        };
        let inputs = self.inputs.iter().map(make).collect::<Result<BTreeMap<_, _>>>()?;
        let mut outputs = self.outputs.iter().map(make).collect::<Result<BTreeMap<_, _>>>()?;
        for (input, output) in carried {
            let of = |buffers: &BTreeMap<String, Buffer>, name: &str| {
                buffers.get(name).map(|buffer| (buffer.data_type(), buffer.shape().to_vec()))
            };
            let (to, from) = (of(&inputs, input), of(&outputs, output));
            if to.is_none() || to != from {
                let (expected, found) = (format!("an output `{output}` that is {to:?}"), format!("{from:?}"));
                return Err(Error::Tensor { path: self.path.clone(), tensor: (*input).to_owned(), expected, found });
            }
        }
        let mut bind = || -> ort::Result<IoBinding> {
            let mut binding = self.session.create_binding()?;
            inputs.iter().try_for_each(|(name, buffer)| binding.bind_input(name, &buffer.tensor))?;
            outputs.iter_mut().try_for_each(|(name, buffer)| binding.bind_output(name, &mut buffer.tensor))?;
            Ok(binding)
        };
        let binding = bind().map_err(|error| run_error(&self.path, error))?;
        let carried = carried.iter().map(|(input, output)| ((*input).to_owned(), (*output).to_owned())).collect();
        Ok(Bound { binding, inputs, outputs, carried, replays: self.replays, path: self.path.clone() })
    }

    /// Binds the graph's tensors, and carries the outputs that the contract says.
    ///
    /// # Errors
    /// As [`Session::bind`].
    pub fn bind_contract(&self, contract: &Contract) -> Result<Bound> {
        self.bind(&carried_names(contract))
    }

    /// As [`Session::bind_contract`], for an engine's graph, which may take any size. Its tensors get the shapes of
    /// this record: the largest ones, or those of [`Graph::resized`].
    ///
    /// # Errors
    /// As [`Session::bind`].
    pub fn bind_graph(&self, contract: &Contract, graph: &Graph) -> Result<Bound> {
        let shape_of = |name: &str| graph.inputs.get(name).or_else(|| graph.outputs.get(name)).map(Vec::as_slice);
        self.bind_in(&carried_names(contract), shape_of)
    }

    /// Runs the graph on the bound tensors. Afterwards, carried outputs are inputs.
    ///
    /// # Errors
    /// [`Error::Session`] for a failure within the run.
    pub fn run_bound(&mut self, bound: &mut Bound) -> Result<()> {
        let mut run = || -> ort::Result<()> {
            self.session.run_binding(&bound.binding)?;
            bound.binding.synchronize_outputs()?;
            bound.carry()
        };
        run().map_err(|error| run_error(&self.path, error))
    }
}

/// Each input that is carried over, with the output that becomes it.
fn carried_names(contract: &Contract) -> Vec<(&str, &str)> {
    contract.carried().map(|(to, from)| (to.name.as_str(), from.name.as_str())).collect()
}

/// The folder that locations of weights start from.
fn with_weights_in(builder: SessionBuilder, folder: &str) -> Result<SessionBuilder, String> {
    let key = "session.model_external_initializers_file_folder_path";
    builder.with_config_entry(key, folder).map_err(|error| error.to_string())
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

fn builder(environment: &Environment, options: &SessionOptions) -> Result<SessionBuilder, String> {
    // Builder errors hold the builder, which cannot cross threads. So only their text is kept.
    fn text<R>(error: ort::Error<R>) -> String {
        error.to_string()
    }
    let level = match options.optimisation {
        OptimisationLevel::All => GraphOptimizationLevel::All,
        OptimisationLevel::Extended => GraphOptimizationLevel::Level2,
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
        // These processors add products of a signed and an unsigned number of 8 bits in 16 bits, where they overflow.
        // ONNX Runtime can give them unsigned weights, whose products do not. It would do so with others as well, which
        // makes them three times as slow.
        builder = builder.with_config_entry("session.x64quantprecision", "1").map_err(text)?;
    }
    let threads = options.threads.unwrap_or_else(|| Processors::available().threads(1));
    builder = builder.with_intra_threads(threads).map_err(text)?;
    if let Some(path) = &options.optimised_model_path {
        builder = builder.with_optimized_model_path(path).map_err(text)?;
    }
    Ok(builder)
}

fn run_error(path: &Path, error: ort::Error) -> Error {
    Error::Session { path: path.to_owned(), action: "run", message: error.to_string() }
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
