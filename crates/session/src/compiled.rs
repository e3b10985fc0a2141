//! Compiling graphs with TensorRT, once for each GPU.
//!
//! ONNX Runtime's own cache finds engines by name and not by weights, so two engines with the same graph names would
//! share entries (<https://github.com/microsoft/onnxruntime/issues/32254>). So compiled graphs are kept in a
//! [`Store`], whose key covers everything that they depend on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tileforge_contract::Provider;
use tileforge_engine::store::{self, CONTEXT, Facts, Store, TensorRtFacts};
use tileforge_engine::{Engine, Graph, Manifest, exchange};
use tileforge_files::unfinished::{self, Folder};

use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::options::SessionOptions;
use crate::session::Session;

/// The ending of the names of weight files.
const WEIGHTS_ENDING: &str = ".weights";

/// What a compiled graph depends on, for one GPU of this machine; `None` if TensorRT, its driver or that GPU is
/// missing.
pub fn facts(
    manifest: &Manifest,
    graph: &Graph,
    options: &BTreeMap<String, String>,
    environment: &Environment,
    device: u32,
) -> Option<TensorRtFacts> {
    let probe = environment.probe();
    let gpu = probe.gpus.get(device as usize)?;
    let weights = manifest.files.iter().filter(|(name, _)| name.ends_with(WEIGHTS_ENDING));
    Some(TensorRtFacts {
        graph_sha256: manifest.files.get(&graph.file)?.sha256.clone(),
        weights_sha256: weights.map(|(_, file)| file.sha256.clone()).collect(),
        gpu: gpu.name.clone(),
        compute_capability: gpu.compute_capability.clone(),
        tensorrt: probe.tensorrt_version.clone()?,
        driver_cuda: probe.driver_cuda_version.clone()?,
        onnxruntime: environment.library().version().into(),
        options: options.clone(),
    })
}

/// The store of graphs that were compiled on this machine, if the environment has a cache folder.
fn store_here(environment: &Environment) -> Option<Store> {
    environment.cache().map(|cache| Store::at(cache.join(store::FOLDER)).with_limit(store::CACHE_BYTES))
}

/// Whether a graph still has to be compiled for these facts: neither the engine nor this machine's store has it. Plans
/// are large, so stored plans are checked by digest only before use.
pub(crate) fn is_missing(engine: &Engine, environment: &Environment, facts: &TensorRtFacts) -> bool {
    store::shipped(engine, facts).is_none() && !store_here(environment).is_some_and(|store| store.has(facts))
}

/// The folder name in an engine for a graph that TensorRT compiled, and the folder of this machine's store that holds
/// it.
pub(crate) fn folder(
    environment: &Environment,
    engine: &Engine,
    graph: &Graph,
    options: &BTreeMap<String, String>,
    device: u32,
) -> Option<(String, PathBuf)> {
    let facts = facts(engine.manifest(), graph, options, environment, device)?;
    let context = store_here(environment)?.get(&facts)?;
    Some((format!("{}/{}", store::FOLDER, facts.key()), exchange::parent_of(&context).to_owned()))
}

/// An EPContext model, which ONNX Runtime opens by its path with the plans beside it.
pub(crate) enum Compiled {
    /// In this machine's store.
    Stored(PathBuf),
    /// Checked files of an engine in a private folder, which is removed when the model has been loaded.
    Shipped(Folder),
}

impl Compiled {
    pub(crate) fn path(&self) -> PathBuf {
        match self {
            Self::Stored(path) => path.clone(),
            Self::Shipped(folder) => folder.path().join(CONTEXT),
        }
    }
}

/// A private folder with these files of the engine, as they were checked. Plans are large, so the folder is made where
/// files can be hard-linked instead of copied, if possible.
pub(crate) fn private_folder<'n>(
    engine: &Engine,
    environment: &Environment,
    names: impl IntoIterator<Item = &'n str>,
) -> Result<Folder> {
    let beside = Some(exchange::parent_of(engine.directory()));
    let (cache, temporary) = (environment.cache(), std::env::temp_dir());
    let made = beside.into_iter().chain(cache).find_map(|parent| unfinished::folder_in(parent).ok());
    let folder = made.map_or_else(|| unfinished::folder_in(&temporary), Ok);
    let folder = folder.map_err(|source| Error::file(&temporary, "create a folder in", source))?;
    engine.place_files(names, folder.path())?;
    Ok(folder)
}

/// The EPContext model of a graph for the GPU of `options`: compiled before, on this machine or where the engine was
/// built, or compiled now and put in the environment's cache.
pub(crate) fn of(
    environment: &Environment,
    engine: &Engine,
    graph: &Graph,
    options: &SessionOptions,
) -> Result<Compiled> {
    let facts = facts(engine.manifest(), graph, &options.provider_options, environment, options.device);
    let facts = facts.ok_or_else(|| Error::CannotCompile { graph: graph.file.clone() })?;
    if let Some(names) = store::shipped(engine, &facts) {
        return private_folder(engine, environment, names.iter().map(String::as_str)).map(Compiled::Shipped);
    }
    let store = store_here(environment).ok_or(Error::NoCache)?;
    if let Some(found) = store.get(&facts) {
        return Ok(Compiled::Stored(found));
    }
    let made = store.get_or_make(&facts, |folder| {
        tracing::warn!(
            "{}: compiling {} for {} once; this takes minutes",
            engine.manifest().name,
            graph.file,
            facts.gpu
        );
        let weights = engine.manifest().files.keys().filter(|name| name.ends_with(WEIGHTS_ENDING));
        let names = weights.map(String::as_str).chain([graph.file.as_str()]);
        let checked = private_folder(engine, environment, names)?;
        compile(environment, &checked.path().join(&graph.file), options, folder)
    });
    made.map(Compiled::Stored)
}

/// Compiles the graph at `path` on the GPU of `options` to an EPContext model with its plan and timing cache in
/// `folder`. Nodes that TensorRT does not take stay in that model, for CUDA.
///
/// # Errors
/// TensorRT cannot be used on this machine, or does not take the graph.
pub fn compile(environment: &Environment, path: &Path, options: &SessionOptions, folder: &Path) -> Result<()> {
    let place = folder.to_string_lossy().into_owned();
    let mut options = options.clone();
    options.provider = Provider::TensorRt;
    // A profile should describe the session that runs the result, not the compilation.
    options.profile = None;
    options.provider_options.extend(
        [
            ("trt_dump_ep_context_model", "1"),
            ("trt_ep_context_embed_mode", "0"),
            ("trt_ep_context_file_path", &format!("{place}/{CONTEXT}")),
            // The plan gets no path of its own: it goes beside the context, which then names it relatively. ONNX
            // Runtime loads no other names.
            ("trt_engine_cache_enable", "1"),
            ("trt_timing_cache_path", &place),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned())),
    );
    Session::open(environment, path, &options).map(drop)
}
