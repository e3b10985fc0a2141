//! Graphs on OpenVINO.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ort::memory::Allocator;
use parking_lot::Mutex;
use tileforge_contract::Provider;
use tileforge_engine::{Engine, Graph};
use tileforge_graph::{ExternalTensor, Interface, MappedFile};

use crate::assigned::Assigned;
use crate::buffer::{Buffer, Buffers};
use crate::cancel::{Cancel, Interrupt};
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::openvino::{self, Request};
use crate::options::SessionOptions;
use crate::tensor::{Named, Tensor, TensorInfo};
use crate::weights::{self, Weights};

use super::backend::{Backend, Binding, Place};

/// The library's name in errors.
const LIBRARY: &str = "OpenVINO";

/// A graph that OpenVINO has compiled for this processor.
pub(super) struct OpenVino {
    graph: Arc<openvino::Graph>,
    path: PathBuf,
    inputs: Vec<TensorInfo>,
    outputs: Vec<TensorInfo>,
    nodes: usize,
    /// The request of [`Backend::run`]. Made by the first call, because a request has memory of its own.
    request: Mutex<Option<Request>>,
}

impl OpenVino {
    /// Compiles the graph in a file, with the weights beside it.
    pub(super) fn open_file(environment: &Environment, path: &Path, options: &SessionOptions) -> Result<Self> {
        let bytes = std::fs::read(path).map_err(|source| Error::file(path, "read", source))?;
        let interface = interface(&bytes, path)?;
        let unreadable = |error: tileforge_graph::Error| unloaded(path, error.to_string());
        let folder = path.parent().unwrap_or(Path::new(""));
        let mut files = BTreeMap::new();
        for location in tileforge_graph::external_files(&bytes, path).map_err(unreadable)? {
            let file = MappedFile::open(folder.join(&location)).map_err(unreadable)?;
            files.insert(location, file);
        }
        for tensor in tileforge_graph::external_tensors(&bytes, path).map_err(unreadable)? {
            let is_whole = files.get(&tensor.location).is_some_and(|file| tensor.bytes_in(file.bytes()).is_some());
            if !is_whole {
                let reason = format!("weight `{}`: its bytes end past the end of its file", tensor.name);
                return Err(unloaded(path, reason));
            }
        }
        let address = |tensor: &ExternalTensor| {
            let bytes = files.get(&tensor.location).and_then(|file| tensor.bytes_in(file.bytes()));
            bytes.map_or(0, |bytes| bytes.as_ptr() as usize)
        };
        let placed = weights::for_openvino(&bytes, path, address)?;
        let library = library(environment, path)?;
        let graph = library.compile(&placed, options, Box::new(files)).map_err(|message| unloaded(path, message))?;
        Self::new(Arc::new(graph), path, interface)
    }

    /// Compiles a graph of an engine, from the bytes that were checked when the engine was opened, and nothing else.
    /// Sessions of one graph with the same options share the compiled graph and its weights.
    pub(super) fn open_graph(
        environment: &Environment,
        engine: &Engine,
        graph: &Graph,
        options: &SessionOptions,
    ) -> Result<Self> {
        let model = engine.file(&graph.file)?;
        let path = engine.path_of(&graph.file);
        let interface = interface(model, &path)?;
        let library = library(environment, &path)?;
        let key = openvino::Key::new(engine, graph, options);
        let compiled = library.shared(key, environment.cache(), || {
            let placed = Weights::of(engine, model, &path)?.for_openvino()?;
            let compiled = library.compile(&placed, options, Box::new(engine.clone()));
            compiled.map_err(|message| unloaded(&path, message))
        })?;
        Self::new(compiled, &path, interface)
    }

    fn new(graph: Arc<openvino::Graph>, path: &Path, interface: Interface) -> Result<Self> {
        let described = |names: Vec<String>, describe: &dyn Fn(&str) -> Result<openvino::Described, String>| {
            let tensor = |name: String| {
                let (data_type, shape) =
                    describe(&name).map_err(|message| unloaded(path, format!("{name}: {message}")))?;
                Ok(TensorInfo { name, data_type, shape })
            };
            names.into_iter().map(tensor).collect::<Result<Vec<_>>>()
        };
        let inputs = described(interface.inputs, &|name| graph.compiled().input(name))?;
        let outputs = described(interface.outputs, &|name| graph.compiled().output(name))?;
        Ok(Self { graph, path: path.to_owned(), inputs, outputs, nodes: interface.nodes, request: Mutex::default() })
    }

    fn request(&self) -> Result<Request> {
        self.graph.compiled().request().map_err(|message| failed(&self.path, message))
    }
}

impl Backend for OpenVino {
    fn tensors(&self) -> [Vec<TensorInfo>; 2] {
        [self.inputs.clone(), self.outputs.clone()]
    }

    /// OpenVINO compiles a graph as a whole or not at all.
    fn assigned(&self) -> Result<Vec<Assigned>> {
        Ok(vec![Assigned { provider: Provider::OpenVino.onnxruntime_name().to_owned(), nodes: self.nodes }])
    }

    fn buffers(&self, _place: Place) -> Result<Buffers> {
        Ok(Buffers::new(Allocator::default(), &self.path))
    }

    fn replays(&self) -> bool {
        false
    }

    fn run(&self, inputs: &[(&str, &Tensor)], cancel: &Cancel) -> Result<Named> {
        let failed = |message: String| failed(&self.path, message);
        if let Some(missing) = self.inputs.iter().find(|info| !inputs.iter().any(|(name, _)| *name == info.name)) {
            return Err(Error::Tensor {
                path: self.path.clone(),
                tensor: missing.name.clone(),
                expected: "a value for it".into(),
                found: "none".into(),
            });
        }
        let mut request = self.request.lock();
        let request = match &mut *request {
            Some(request) => request,
            none => none.insert(self.request()?),
        };
        inputs.iter().try_for_each(|(name, value)| request.write(name, value)).map_err(failed)?;
        run(&self.path, request, cancel)?;
        let read = |info: &TensorInfo| {
            let data_type = info.data_type.ok_or_else(|| failed(format!("{} is no tensor of numbers", info.name)))?;
            let read = |shape: &[usize], bytes: &[u8]| Tensor::from_bytes(data_type, shape, bytes);
            let tensor = request.read(&info.name, read).map_err(failed)?;
            let expected = || Error::Tensor {
                path: self.path.clone(),
                tensor: info.name.clone(),
                expected: "a tensor of numbers".into(),
                found: data_type.to_string(),
            };
            Ok((info.name.clone(), tensor.ok_or_else(expected)?))
        };
        self.outputs.iter().map(read).collect()
    }

    fn binding(&self) -> Result<Box<dyn Binding>> {
        Ok(Box::new(OpenVinoBinding { request: self.request()?, path: self.path.clone() }))
    }
}

struct OpenVinoBinding {
    request: Request,
    path: PathBuf,
}

impl OpenVinoBinding {
    fn bind(&mut self, name: &str, buffer: &Buffer) -> Result<()> {
        self.request.bind(name, buffer).map_err(|message| failed(&self.path, message))
    }
}

impl Binding for OpenVinoBinding {
    fn bind_input(&mut self, name: &str, buffer: &Buffer) -> Result<()> {
        self.bind(name, buffer)
    }

    fn bind_output(&mut self, name: &str, buffer: &mut Buffer) -> Result<()> {
        self.bind(name, buffer)
    }

    fn run(&mut self, cancel: &Cancel) -> Result<()> {
        run(&self.path, &mut self.request, cancel)
    }
}

/// Runs a request, which the flag can end.
fn run(path: &Path, request: &mut Request, cancel: &Cancel) -> Result<()> {
    let end: Arc<dyn Interrupt> = Arc::new(request.end());
    match cancel.during(&end, || request.run(cancel)) {
        Some(Ok(())) => Ok(()),
        Some(Err(message)) => Err(if cancel.is_cancelled() { Error::Cancelled } else { failed(path, message) }),
        None => Err(Error::Cancelled),
    }
}

fn library<'e>(environment: &'e Environment, path: &Path) -> Result<&'e openvino::OpenVino> {
    environment.library().openvino().map_err(|message| unloaded(path, message))
}

fn interface(bytes: &[u8], path: &Path) -> Result<Interface> {
    tileforge_graph::interface(bytes, path).map_err(|error| unloaded(path, error.to_string()))
}

fn unloaded(path: &Path, message: String) -> Error {
    Error::Session { library: LIBRARY, path: path.to_owned(), action: "load the graph", message }
}

fn failed(path: &Path, message: String) -> Error {
    Error::Session { library: LIBRARY, path: path.to_owned(), action: "run", message }
}
