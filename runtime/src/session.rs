//! A graph loaded into ONNX Runtime, and the tensors that go through it.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ndarray::{ArrayD, ArrayViewD};
use ort::logging::LogLevel;
use ort::session::SessionInputValue;
use ort::session::builder::GraphOptimizationLevel;
use ort::value::{Outlet, TensorElementType, TensorRef, TensorValueType, ValueType};

use crate::error::{Error, Result};
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
    /// What executes the nodes. Only [`Provider::Cpu`] can be used in this version.
    pub provider: Provider,
    /// Threads within one operator; `None`: one for each physical core.
    pub threads: Option<usize>,
    /// How far the graph is rewritten.
    pub optimisation: OptimisationLevel,
    /// Where to write the rewritten graph, for offline optimisation.
    pub optimised_model_path: Option<PathBuf>,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self { provider: Provider::Cpu, threads: None, optimisation: OptimisationLevel::All, optimised_model_path: None }
    }
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

/// A dense float32 tensor in host memory, owned, that ONNX Runtime reads and writes in place.
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

/// A graph that is ready to run.
#[derive(Debug)]
pub struct Session {
    session: ort::session::Session,
    path: PathBuf,
    inputs: Vec<TensorInfo>,
    outputs: Vec<TensorInfo>,
    open_time: Duration,
}

impl Session {
    /// Loads the graph at `path`, and the library before it if that has not been done.
    ///
    /// Always by path: a graph passed as bytes may not exceed 2 GiB with its weights.
    ///
    /// # Errors
    /// [`Error::DoesNotFit`] for a provider that cannot be used here, with the reason;
    /// [`Error::Session`] when ONNX Runtime refuses the graph; those of [`onnxruntime::load`].
    pub fn open(path: &Path, options: &SessionOptions) -> Result<Self> {
        let library = onnxruntime::load(None)?;
        if options.provider != Provider::Cpu {
            let reason = provider::probe(library).reason_against(options.provider);
            return Err(Error::DoesNotFit(format!(
                "provider {}: cannot be used on this box: {reason}; use --provider cpu",
                options.provider
            )));
        }
        let started = Instant::now();
        let session =
            build(library, path, options).map_err(|message| Error::Session { path: path.to_owned(), action: "load the graph", message })?;
        Ok(Self {
            inputs: session.inputs().iter().map(tensor_info).collect(),
            outputs: session.outputs().iter().map(tensor_info).collect(),
            session,
            path: path.to_owned(),
            open_time: started.elapsed(),
        })
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
    /// An input that the graph takes as int64, such as the tokens of a text, is given as float32 too, which holds whole numbers up to
    /// 2^24 exactly.
    ///
    /// # Errors
    /// [`Error::Session`] for a name, shape or element type that the graph does not have, an
    /// output that is not float32, or a failure within.
    pub fn run(&mut self, inputs: &[(&str, ArrayViewD<'_, f32>)]) -> Result<Vec<(String, ArrayD<f32>)>> {
        let path = &self.path;
        let failed = |error: ort::Error| run_error(path, error);
        let is_integer =
            |name: &str| self.inputs.iter().any(|input| input.name == name && input.element == TensorElementType::Int64.to_string());
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
        outputs.iter().map(|(name, value)| Ok((name.to_owned(), value.try_extract_array::<f32>().map_err(failed)?.into_owned()))).collect()
    }

    /// A tensor of zeros that can be filled and passed to [`Session::run_one`] again and again.
    ///
    /// # Errors
    /// [`Error::Session`] when ONNX Runtime refuses the shape.
    pub fn tensor(&self, shape: &[usize]) -> Result<Tensor> {
        let zeros = ArrayD::zeros(shape);
        let tensor = ort::value::Tensor::from_array(zeros).map_err(|error| run_error(&self.path, error))?;
        Ok(Tensor(tensor))
    }

    /// Runs a graph on one input and returns one of its outputs, copying neither.
    ///
    /// The output is allocated from ONNX Runtime's arena and goes back to it when it is dropped,
    /// on whichever thread that is.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn run_one(&mut self, input: (&str, &Tensor), output: &str) -> Result<Tensor> {
        let path = &self.path;
        let mut outputs = self.session.run(vec![(input.0, &input.1.0)]).map_err(|error| run_error(path, error))?;
        let value = outputs.remove(output).ok_or_else(|| Error::Session {
            path: path.clone(),
            action: "run",
            message: format!("the graph has no output \"{output}\""),
        })?;
        let tensor = value.downcast::<TensorValueType<f32>>().map_err(|error| run_error(path, error))?;
        Ok(Tensor(tensor))
    }
}

fn build(library: &onnxruntime::Library, path: &Path, options: &SessionOptions) -> Result<ort::session::Session, String> {
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
        .map_err(text)?;
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
