//! Compiling graphs with TensorRT, once for each GPU.
//!
//! ONNX Runtime's own cache of engines goes by names and not by weights, so that two engines of one graph's name would
//! share it (<https://github.com/microsoft/onnxruntime/issues/32254>). What is compiled here is kept in a
//! [`Store`](tileforge_engine::store::Store), by everything that it depends on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tileforge_contract::Provider;
use tileforge_engine::store::{self, CONTEXT, Facts, RECORD, Store};
use tileforge_engine::{Engine, Graph, Manifest};

use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::options::SessionOptions;
use crate::session::Session;

/// What a compiled graph depends on, for one GPU of this box; `None` where the box lacks TensorRT or that GPU.
pub fn facts(
    manifest: &Manifest,
    graph: &Graph,
    options: &BTreeMap<String, String>,
    environment: &Environment,
    device: u32,
) -> Option<Facts> {
    let probe = environment.probe();
    let gpu = probe.gpus.get(device as usize)?;
    let weights = manifest.files.iter().filter(|(name, _)| name.ends_with(".weights"));
    Some(Facts {
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

/// The store of what was compiled on this box, if the environment has a folder for it.
fn store_here(environment: &Environment) -> Option<Store> {
    environment.cache().map(|cache| Store::at(cache.join(store::FOLDER)))
}

/// What the engine came with, if that is for these facts, and what was compiled here. Of the engine's own folder, only what
/// its manifest lists counts, which a signature covers.
fn stores(engine: &Engine, environment: &Environment, facts: &Facts) -> impl Iterator<Item = Store> {
    let listed = engine.manifest().files.contains_key(&format!("{}/{}/{RECORD}", store::FOLDER, facts.key()));
    let shipped = listed.then(|| Store::at(engine.directory().join(store::FOLDER)));
    shipped.into_iter().chain(store_here(environment))
}

/// Whether a graph has still to be compiled for these facts. Plans are large, so they are digested only before they are used.
pub(crate) fn is_missing(engine: &Engine, environment: &Environment, facts: &Facts) -> bool {
    !stores(engine, environment, facts).any(|store| store.has(facts))
}

/// The EPContext model of a graph for the GPU of `options`: one that was compiled before, here or where the engine was built,
/// or a new one, which goes to the environment's cache.
pub(crate) fn of(
    environment: &Environment,
    engine: &Engine,
    graph: &Graph,
    options: &SessionOptions,
) -> Result<PathBuf> {
    let facts = facts(engine.manifest(), graph, &options.provider_options, environment, options.device);
    let facts = facts.ok_or_else(|| Error::CannotCompile { graph: graph.file.clone() })?;
    if let Some(found) = stores(engine, environment, &facts).find_map(|store| store.get(&facts)) {
        return Ok(found);
    }
    store_here(environment).ok_or(Error::NoCache)?.get_or_make(&facts, |folder| {
        tracing::warn!(
            "{}: compiling {} for {} once; this takes minutes",
            engine.manifest().name,
            graph.file,
            facts.gpu
        );
        compile(environment, &engine.path_of(graph), options, folder)
    })
}

/// Compiles the graph at `path` on the GPU of `options` to an EPContext model with its plan and timing cache in `folder`. The
/// nodes that TensorRT does not take stay in that model, for CUDA.
///
/// # Errors
/// TensorRT cannot be used here, or does not take the graph.
pub fn compile(environment: &Environment, path: &Path, options: &SessionOptions, folder: &Path) -> Result<()> {
    let place = folder.to_string_lossy().into_owned();
    let mut options = options.clone();
    options.provider = Provider::TensorRt;
    // It is asked for of the session that runs.
    options.profile = None;
    options.provider_options.extend(
        [
            ("trt_dump_ep_context_model", "1"),
            ("trt_ep_context_embed_mode", "0"),
            ("trt_ep_context_file_path", &format!("{place}/{CONTEXT}")),
            // Without a path of its own: the plan goes beside the context, which then names it relatively. ONNX Runtime
            // loads no other names.
            ("trt_engine_cache_enable", "1"),
            ("trt_timing_cache_path", &place),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned())),
    );
    Session::open(environment, path, &options).map(drop)
}
