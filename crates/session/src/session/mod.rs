//! A loaded graph, and how it runs.
//!
//! [`Session`] and [`Bound`] are the same for every provider. Each library that runs graphs has one implementation:
//! `backend.rs` defines the interface, `onnxruntime.rs` implements it with ONNX Runtime and `openvino.rs` with
//! OpenVINO.

mod backend;
mod bound;
mod loaded;
mod onnxruntime;
mod openvino;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tileforge_contract::{Contract, DataType, Provider};
use tileforge_engine::{Engine, Graph};

use crate::assigned::Assigned;
use crate::buffer::{Buffer, Buffers};
use crate::cancel::Cancel;
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::options::SessionOptions;
use crate::tensor::{Named, Tensor, TensorInfo};

use backend::{Backend, Binding, Place};
use loaded::Loaded;
use onnxruntime::OnnxRuntime;
use openvino::OpenVino;

pub use bound::Bound;

/// How [`Session::run_into`] binds the caller's buffers.
enum Callers {
    /// Bound anew for each run. Nothing is copied.
    Direct(Box<dyn Binding>),
    /// Copied to buffers on the device that stay bound, because CUDA graphs replay the addresses that they were
    /// recorded with.
    Copied(Bound),
}

/// A graph that is ready to run. It runs one request at a time.
pub struct Session {
    graph: Loaded,
    inputs: Vec<TensorInfo>,
    outputs: Vec<TensorInfo>,
    assigned: Vec<Assigned>,
    provider: Provider,
    callers: Option<Callers>,
    open_time: Duration,
}

impl fmt::Debug for Session {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Session")
            .field("path", &self.graph.path)
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
        Self::open_with(environment, path.to_owned(), None, options, || {
            if options.provider == Provider::OpenVino {
                return Ok(Arc::new(OpenVino::open_file(environment, path, options)?));
            }
            Ok(Arc::new(OnnxRuntime::open_file(environment, path, options)?))
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
        let path = engine.path_of(&graph.file);
        Self::open_with(environment, path.clone(), Some(engine.clone()), options, || {
            if options.provider == Provider::OpenVino {
                return Ok(Arc::new(OpenVino::open_graph(environment, engine, graph, options)?));
            }
            Ok(Arc::new(OnnxRuntime::open_graph(environment, engine, graph, options)?))
        })
    }

    fn open_with(
        environment: &Environment,
        path: PathBuf,
        engine: Option<Engine>,
        options: &SessionOptions,
        open: impl FnOnce() -> Result<Arc<dyn Backend>>,
    ) -> Result<Self> {
        if options.provider != Provider::Cpu {
            environment.require(options.provider)?;
        }
        let started = Instant::now();
        let returning = environment.large_blocks_return();
        let backend = open()?;
        drop(returning);
        let assigned = backend.assigned()?;
        let taken_by_others = |assigned: &&Assigned| assigned.provider != options.provider.onnxruntime_name();
        if let Some(other) = assigned.iter().find(taken_by_others).filter(|_| options.strict) {
            let (expected, found) = (options.provider, other.provider.clone());
            return Err(Error::NodesElsewhere { path, nodes: other.nodes, expected, found });
        }
        let [inputs, outputs] = backend.tensors();
        Ok(Self {
            graph: Loaded { backend, _engine: engine, path },
            inputs,
            outputs,
            assigned,
            provider: options.provider,
            callers: None,
            open_time: started.elapsed(),
        })
    }

    /// The providers that took the graph's nodes, by ONNX Runtime's own record, the one with most nodes first.
    pub fn assigned(&self) -> &[Assigned] {
        &self.assigned
    }

    /// The most bytes of this machine's memory that opening or a run took, beyond what the session holds while nothing
    /// runs; `None` if the library does not report it. Only ONNX Runtime on the CPU does.
    pub fn peak_bytes(&self) -> Option<u64> {
        self.graph.backend.peak_bytes().filter(|_| self.provider == Provider::Cpu)
    }

    /// The bytes that our own kernels hold as long as the session is open: weights in another form, and the scratch
    /// memory of one thread. [`Session::peak_bytes`] is without them.
    pub fn kernels_bytes(&self) -> u64 {
        self.graph.backend.kernels_bytes()
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
    /// [`Error::Tensor`] for an input that the graph does not have, or has in another type or shape;
    /// [`Error::Cancelled`]; [`Error::Session`] for a failure within the run.
    pub fn run(&mut self, inputs: &[(&str, &Tensor)], cancel: &Cancel) -> Result<Named> {
        inputs.iter().try_for_each(|(name, tensor)| self.check(name, tensor.data_type(), tensor.shape()))?;
        self.graph.backend.run(inputs, cancel)
    }

    /// Checks that the graph has an input of this name, type and shape.
    fn check(&self, name: &str, data_type: DataType, shape: &[usize]) -> Result<()> {
        let wrong = |expected: String, found: String| Err(self.unlike(name, &expected, found));
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
        self.graph.backend.buffers(Place::Host)
    }

    /// A buffer of zeros in this machine's memory for an input or output of fixed lengths.
    ///
    /// # Errors
    /// [`Error::Tensor`]: the graph has no such tensor, or leaves one of its lengths open; [`Error::OutOfMemory`].
    pub fn buffer(&self, name: &str) -> Result<Buffer> {
        let info = self.inputs.iter().chain(&self.outputs).find(|info| info.name == name);
        let info = info.ok_or_else(|| self.unlike(name, "an input or output of the graph", "no such tensor".into()))?;
        self.zeros(&self.buffers()?, info, None)
    }

    /// A buffer of zeros for a tensor of fixed lengths; where the graph leaves lengths open, of the shape `open`.
    fn zeros(&self, buffers: &Buffers, info: &TensorInfo, open: Option<&[usize]>) -> Result<Buffer> {
        let fixed: Option<Vec<usize>> = info.shape.iter().copied().collect();
        match fixed.or_else(|| open.map(<[usize]>::to_vec)).zip(info.data_type) {
            Some((shape, data_type)) => buffers.zeros(data_type, &shape),
            None => Err(self.unlike(&info.name, "a tensor of fixed lengths", format!("{:?}", info.shape))),
        }
    }

    fn unlike(&self, tensor: &str, expected: &str, found: String) -> Error {
        Error::Tensor { path: self.graph.path.clone(), tensor: tensor.to_owned(), expected: expected.to_owned(), found }
    }

    /// Runs the graph from buffers into buffers, all made by [`Session::buffers`]. Does not allocate, and on a CPU
    /// does not copy.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn run_into(
        &mut self,
        inputs: &[(&str, &Buffer)],
        outputs: &mut [(&str, &mut Buffer)],
        cancel: &Cancel,
    ) -> Result<()> {
        inputs.iter().try_for_each(|(name, buffer)| self.check(name, buffer.data_type(), buffer.shape()))?;
        let mut callers = match self.callers.take() {
            Some(callers) => callers,
            None if self.graph.backend.replays() => Callers::Copied(self.bind(&[])?),
            None => Callers::Direct(self.graph.backend.binding()?),
        };
        let ran = match &mut callers {
            Callers::Copied(bound) => inputs
                .iter()
                .try_for_each(|(name, buffer)| bound.write(name, buffer))
                .and_then(|()| bound.run(cancel))
                .and_then(|()| outputs.iter_mut().try_for_each(|(name, buffer)| bound.read(name, buffer))),
            Callers::Direct(binding) => inputs
                .iter()
                .try_for_each(|(name, buffer)| binding.bind_input(name, buffer))
                .and_then(|()| outputs.iter_mut().try_for_each(|(name, buffer)| binding.bind_output(name, buffer)))
                .and_then(|()| binding.run(cancel)),
        };
        self.callers = Some(callers);
        ran
    }

    /// Binds every input and output once, all zeros at first. Each pair in `carried` names an input, and the output
    /// that becomes this input in the next run. The bound tensors keep the graph loaded, even after the session is
    /// dropped.
    ///
    /// # Errors
    /// [`Error::Tensor`]: the graph leaves a length open, or the tensors of a pair differ; [`Error::OutOfMemory`].
    pub fn bind(&self, carried: &[(&str, &str)]) -> Result<Bound> {
        self.bind_in(carried, |_| None)
    }

    /// As [`Session::bind`]. `shape_of` gives the shapes of tensors whose lengths the graph leaves open.
    fn bind_in<'s>(&self, carried: &[(&str, &str)], shape_of: impl Fn(&str) -> Option<&'s [usize]>) -> Result<Bound> {
        let buffers = self.graph.backend.buffers(Place::Device)?;
        let make = |info: &TensorInfo| {
            Ok((
                info.name.clone(),
                self.zeros(&buffers, info, shape_of(&info.name).filter(|shape| info.allows(shape)))?,
            ))
        };
        let inputs = self.inputs.iter().map(make).collect::<Result<BTreeMap<_, _>>>()?;
        let outputs = self.outputs.iter().map(make).collect::<Result<BTreeMap<_, _>>>()?;
        for (input, output) in carried {
            let of = |buffers: &BTreeMap<String, Buffer>, name: &str| {
                buffers.get(name).map(|buffer| (buffer.data_type(), buffer.shape().to_vec()))
            };
            let (to, from) = (of(&inputs, input), of(&outputs, output));
            if to.is_none() || to != from {
                let (expected, found) = (format!("an output `{output}` that is {to:?}"), format!("{from:?}"));
                return Err(self.unlike(input, &expected, found));
            }
        }
        let carried = carried.iter().map(|(input, output)| ((*input).to_owned(), (*output).to_owned())).collect();
        Bound::new(&self.graph, inputs, outputs, carried)
    }

    /// Binds the graph's tensors, and carries the outputs that the contract names.
    ///
    /// # Errors
    /// As [`Session::bind`].
    pub fn bind_contract(&self, contract: &Contract) -> Result<Bound> {
        self.bind(&carried_names(contract))
    }

    /// As [`Session::bind_contract`], for an engine's graph, which may take any size. Its tensors get the shapes of
    /// this record: the largest shapes, or the shapes of [`Graph::resized`].
    ///
    /// # Errors
    /// As [`Session::bind`].
    pub fn bind_graph(&self, contract: &Contract, graph: &Graph) -> Result<Bound> {
        let shape_of = |name: &str| graph.inputs.get(name).or_else(|| graph.outputs.get(name)).map(Vec::as_slice);
        self.bind_in(&carried_names(contract), shape_of)
    }
}

/// Each input that is carried over, with the output that becomes it.
fn carried_names(contract: &Contract) -> Vec<(&str, &str)> {
    contract.carried().map(|(to, from)| (to.name.as_str(), from.name.as_str())).collect()
}
