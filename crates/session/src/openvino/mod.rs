//! OpenVINO: loading its library and compiling graphs with it.

mod kept;
mod native;

use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::Mutex;
use tileforge_engine::store::{CACHE_BYTES, Facts, Store};
use tileforge_engine::{Engine, Graph as Record};

use crate::options::SessionOptions;
use crate::processors::Processors;
use crate::system::libraries::{OPENVINO, OPENVINO_GRAPHS};

use kept::OpenVinoFacts;
use native::Core;
pub(crate) use native::{Compiled, Described, Request};

/// The option for the type that products are computed in. Without it, OpenVINO uses BF16 where the processor supports
/// it, which would change output bytes although the manifest states another precision.
pub const PRECISION: &str = "INFERENCE_PRECISION_HINT";

/// The library, loaded for the rest of the process.
pub(crate) struct OpenVino {
    core: Core,
    version: String,
    /// The processor's name, and the types that it computes in, by OpenVINO's names.
    processor: String,
    computes_bf16: bool,
    /// Whether compiled graphs can be opened again, which needs another library of OpenVINO.
    opens_compiled: bool,
    /// Graphs that sessions have open now.
    open: Mutex<Vec<(Key, Weak<Graph>)>>,
    /// Locked while a graph is compiled.
    compiling: Mutex<()>,
}

impl std::fmt::Debug for OpenVino {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("OpenVino").field("version", &self.version).finish_non_exhaustive()
    }
}

/// A compiled graph, with the memory that its weights may still be in.
pub(crate) struct Graph {
    compiled: Compiled,
    /// Holds the weights that the graph uses from memory. Dropped after `compiled`.
    _weights: Box<dyn Send + Sync>,
}

impl Graph {
    pub(crate) fn compiled(&self) -> &Compiled {
        &self.compiled
    }
}

/// What a compiled graph depends on: its file and its weights, by their digests, and the options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    digests: Vec<String>,
    /// The total size of these files.
    bytes: u64,
    properties: Vec<(String, String)>,
}

impl Key {
    pub(crate) fn new(engine: &Engine, graph: &Record, options: &SessionOptions) -> Self {
        // Every graph of an engine may use each of its weight files.
        let files = engine.manifest().files.iter().filter(|(name, _)| *name == &graph.file || !is_graph(name));
        let (digests, bytes): (Vec<String>, Vec<u64>) =
            files.map(|(_, file)| (file.sha256.clone(), file.bytes)).unzip();
        Self { digests, bytes: bytes.iter().sum(), properties: properties(options) }
    }
}

fn is_graph(name: &str) -> bool {
    name.ends_with(".onnx")
}

impl OpenVino {
    /// Loads the library. It finds its plugins and frontends beside itself.
    pub(crate) fn load(path: &Path) -> Result<Self, String> {
        let core = Core::load(path)?;
        let version = core.version()?;
        let capabilities = core.property(c"OPTIMIZATION_CAPABILITIES")?;
        let computes_bf16 = capabilities.split([' ', ',']).any(|capability| capability == "BF16");
        let processor = format!("{}: {capabilities}", core.property(c"FULL_DEVICE_NAME")?.trim());
        let opens_compiled = path.parent().and_then(|folder| newest(folder, OPENVINO_GRAPHS)).is_some();
        Ok(Self {
            core,
            version,
            processor,
            computes_bf16,
            opens_compiled,
            open: Mutex::default(),
            compiling: Mutex::default(),
        })
    }

    /// The release, such as "2026.4.1".
    pub(crate) fn release(&self) -> &str {
        // The number of the build follows.
        self.version.split('-').next().unwrap_or(&self.version)
    }

    /// Whether the processor computes in BF16.
    pub(crate) fn computes_bf16(&self) -> bool {
        self.computes_bf16
    }

    /// Compiles the graph in an ONNX file for the processor. `weights` holds the weights that the graph uses from
    /// memory.
    pub(crate) fn compile(
        &self,
        onnx: &[u8],
        options: &SessionOptions,
        weights: Box<dyn Send + Sync>,
    ) -> Result<Graph, String> {
        let model = self.core.read(onnx)?;
        Ok(Graph { compiled: self.core.compile(&model, &properties(options))?, _weights: weights })
    }

    /// The graph with this key, which other sessions may have open, or a new one. `cache` is a folder that belongs to
    /// the user, where compiled graphs may be kept.
    pub(crate) fn shared<E>(
        &self,
        key: Key,
        cache: Option<&Path>,
        compile: impl FnOnce() -> Result<Graph, E>,
    ) -> Result<Arc<Graph>, E> {
        if let Some(graph) = self.open_graph(&key) {
            return Ok(graph);
        }
        // One at a time: compiling uses every core, and another caller may be compiling the same graph. Open graphs are
        // found meanwhile.
        let _compiling = self.compiling.lock();
        if let Some(graph) = self.open_graph(&key) {
            return Ok(graph);
        }
        let graph = Arc::new(match cache.filter(|_| self.opens_compiled) {
            Some(cache) => self.kept(&Store::at(cache.join(kept::FOLDER)).with_limit(CACHE_BYTES), &key, compile)?,
            None => compile()?,
        });
        self.open.lock().push((key, Arc::downgrade(&graph)));
        Ok(graph)
    }

    /// The graph with this key, if a session has it open.
    fn open_graph(&self, key: &Key) -> Option<Arc<Graph>> {
        let mut open = self.open.lock();
        open.retain(|(_, graph)| graph.strong_count() > 0);
        open.iter().find(|(other, _)| other == key).and_then(|(_, graph)| graph.upgrade())
    }

    /// The graph with this key from the store, or a new one, which is put in the store if it is worth keeping.
    fn kept<E>(&self, store: &Store, key: &Key, compile: impl FnOnce() -> Result<Graph, E>) -> Result<Graph, E> {
        let facts = OpenVinoFacts {
            sha256: key.digests.clone(),
            openvino: self.version.clone(),
            processor: self.processor.clone(),
            properties: key.properties.clone(),
        };
        if let Some(bytes) = store.read(&facts) {
            match Compiled::import(&bytes, &key.properties) {
                Ok(compiled) => return Ok(Graph { compiled, _weights: Box::new(bytes) }),
                Err(message) => tracing::warn!("a graph that OpenVINO compiled before is compiled again: {message}"),
            }
        }
        let began = Instant::now();
        let graph = compile()?;
        if kept::is_worth_it(began.elapsed(), key.bytes) {
            let made = store.get_or_make(&facts, |folder| {
                let path = folder.join(OpenVinoFacts::MAIN);
                let failed =
                    |message: String| tileforge_engine::Error::file(&path, "write", std::io::Error::other(message));
                graph.compiled.export(&path).map_err(failed)
            });
            // The graph can be used even if it cannot be kept.
            if let Err(error) = made {
                tracing::warn!("what OpenVINO compiled is not kept: {error}");
            }
        }
        Ok(graph)
    }
}

/// The options of a compiled graph, by OpenVINO's names.
fn properties(options: &SessionOptions) -> Vec<(String, String)> {
    let streams = options.streams.max(1);
    let threads = options.threads.unwrap_or_else(|| Processors::available().threads(streams));
    let own = [
        // One run after the other, each as fast as possible.
        ("PERFORMANCE_HINT", "LATENCY".to_owned()),
        ("NUM_STREAMS", streams.to_string()),
        ("INFERENCE_NUM_THREADS", (threads * streams).to_string()),
        // Threads that are pinned to cores wait for other threads that are pinned to the same cores, and the process's
        // other threads inherit the pinning.
        ("ENABLE_CPU_PINNING", "NO".to_owned()),
        (PRECISION, "f32".to_owned()),
        // OpenVINO 2026.4.1 ends the process while it fuses the operators of an attention: CLIP's text encoder on one
        // thread, depth networks on any number of threads.
        ("SNIPPETS_MODE", "DISABLE".to_owned()),
        // Inputs of products with 8-bit weights keep the type that the graph gives them.
        ("DYNAMIC_QUANTIZATION_GROUP_SIZE", "0".to_owned()),
    ];
    let given = |name: &str| options.provider_options.contains_key(name);
    let own = own.into_iter().filter(|(name, _)| !given(name)).map(|(name, value)| (name.to_owned(), value));
    own.chain(options.provider_options.clone()).collect()
}

/// The name of the library's file in a folder, of the newest release; `None` if there is none.
pub(crate) fn file_in(folder: &Path) -> Option<String> {
    newest(folder, OPENVINO)
}

/// The name of a library's file in a folder: if several names differ in their release, the newest.
fn newest(folder: &Path, library: &str) -> Option<String> {
    let names = std::fs::read_dir(folder).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| name.strip_prefix(library).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))).max()
}
