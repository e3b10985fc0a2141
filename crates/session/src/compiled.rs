//! Compiling graphs with TensorRT, once for each GPU.
//!
//! ONNX Runtime's own cache finds engines by name and not by weights, so two engines with the same graph names would
//! share entries (<https://github.com/microsoft/onnxruntime/issues/32254>). So compiled graphs are kept in a
//! [`Store`], by everything that they depend on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tileforge_contract::Provider;
use tileforge_engine::store::{self, CONTEXT, Facts, RECORD, Store};
use tileforge_engine::{Engine, Graph, Manifest};

use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::options::SessionOptions;
use crate::session::Session;

/// What a compiled graph depends on, for one GPU of this machine; `None` if TensorRT or that GPU is missing.
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

/// The store of graphs that were compiled on this machine, if the environment has a cache folder.
fn store_here(environment: &Environment) -> Option<Store> {
    environment.cache().map(|cache| Store::at(cache.join(store::FOLDER)))
}

/// The stores to look in: the engine's own, if it has an entry for these facts, and that of this machine. In the
/// engine's folder, only files that the manifest lists are used, so that a signature covers them.
fn stores(engine: &Engine, environment: &Environment, facts: &Facts) -> impl Iterator<Item = Store> {
    let listed = engine.manifest().files.contains_key(&format!("{}/{}/{RECORD}", store::FOLDER, facts.key()));
    let shipped = listed.then(|| Store::at(engine.directory().join(store::FOLDER)));
    shipped.into_iter().chain(store_here(environment))
}

/// Whether a graph still has to be compiled for these facts. Plans are large, so they are digested only before use.
pub(crate) fn is_missing(engine: &Engine, environment: &Environment, facts: &Facts) -> bool {
    !stores(engine, environment, facts).any(|store| store.has(facts))
}

/// The EPContext model of a graph for the GPU of `options`: one that was compiled before, on this machine or where the
/// engine was built, or a new one, which goes to the environment's cache.
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

/// Compiles the graph at `path` on the GPU of `options` to an EPContext model with its plan and timing cache in
/// `folder`. Nodes that TensorRT does not take stay in that model, for CUDA.
///
/// # Errors
/// TensorRT cannot be used on this machine, or does not take the graph.
pub fn compile(environment: &Environment, path: &Path, options: &SessionOptions, folder: &Path) -> Result<()> {
    let place = folder.to_string_lossy().into_owned();
    let mut options = options.clone();
    options.provider = Provider::TensorRt;
    // A profile is wanted of the session that runs the result, not of compiling.
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
