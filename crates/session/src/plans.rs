//! Plans of TensorRT for RTX, and what the GPU adds to them.
//!
//! A plan comes with its engine. While the library loads the plan, it compiles the last part for the present GPU, and
//! can keep that part in a *runtime cache*. The cache depends on the plan, the GPU, the driver and the library's
//! release, so each combination has a folder of its own.

use std::path::{Path, PathBuf};

use tileforge_engine::manifest::Plan;
use tileforge_engine::{Engine, Graph, digest, exchange};
use tileforge_files::unfinished::{self, Folder};

use crate::compiled::private_folder;
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::options::SessionOptions;
use crate::provider::Gpu;

/// The provider's option that names the folder of the runtime cache (`kRuntimeCacheFile` of its header).
pub const RUNTIME_CACHE_OPTION: &str = "nv_runtime_cache_path";

/// A private folder with the checked EPContext model of a graph and its plan, and the path of the model. The folder
/// can be removed when the model has been loaded. If the environment has a cache, this adds the folder of the runtime
/// cache to the options.
pub(crate) fn of(
    environment: &Environment,
    engine: &Engine,
    graph: &Graph,
    options: &mut SessionOptions,
) -> Result<(Folder, PathBuf)> {
    let plan = graph.plan.as_ref().ok_or_else(|| Error::NoPlan { graph: graph.file.clone() })?;
    if let Some(cache) = runtime_cache(environment, engine, plan, options.device) {
        cache.make(engine)?;
        options.provider_options.insert(RUNTIME_CACHE_OPTION.into(), cache.folder.to_string_lossy().into_owned());
    }
    let folder = private_folder(engine, environment, [plan.context.as_str(), plan.file.as_str()])?;
    let context = folder.path().join(Path::new(&plan.context).file_name().unwrap_or_default());
    Ok((folder, context))
}

/// The runtime cache of a plan for one GPU of this machine.
pub(crate) struct RuntimeCache {
    /// Where the environment keeps it. The library writes there.
    pub(crate) folder: PathBuf,
    /// The folder's name in an engine that ships the cache.
    pub(crate) name: String,
}

impl RuntimeCache {
    /// Makes the folder, with the runtime cache that the engine ships from another machine of this kind. The files are
    /// copies, because the library changes them.
    fn make(&self, engine: &Engine) -> Result<()> {
        let failed = |action| move |source| Error::file(&self.folder, action, source);
        if self.folder.is_dir() {
            return Ok(());
        }
        let parent = exchange::parent_of(&self.folder);
        std::fs::create_dir_all(parent).map_err(failed("create the folder"))?;
        let staging = unfinished::folder_in(parent).map_err(failed("create the folder"))?;
        for (name, bytes) in engine.files() {
            if let Some(file) = name.strip_prefix(&self.name).and_then(|file| file.strip_prefix('/')) {
                std::fs::write(staging.path().join(file), bytes).map_err(failed("write to"))?;
            }
        }
        let _finishing = unfinished::finishing();
        match std::fs::rename(staging.path(), &self.folder) {
            // Another program made the folder first.
            Err(_) if self.folder.is_dir() => Ok(()),
            renamed => renamed.map_err(failed("create the folder")),
        }
    }
}

/// The runtime cache of a plan; `None` if the environment has no cache folder or this machine lacks the GPU.
pub(crate) fn runtime_cache(
    environment: &Environment,
    engine: &Engine,
    plan: &Plan,
    device: u32,
) -> Option<RuntimeCache> {
    let probe = environment.probe();
    let gpu = probe.gpus.get(device as usize)?;
    let sha256 = &engine.manifest().files.get(&plan.file)?.sha256;
    let key = cache_key(sha256, plan, gpu, probe.driver_cuda_version.as_deref()?);
    let name = format!("{}/{key}", Plan::FOLDER);
    Some(RuntimeCache { folder: environment.cache()?.join(&name), name })
}

/// The name of a runtime cache: a digest of everything that it depends on.
fn cache_key(plan_sha256: &str, plan: &Plan, gpu: &Gpu, driver_cuda: &str) -> String {
    let facts = [plan_sha256, &plan.library, &gpu.name, &gpu.compute_capability, driver_cuda];
    // No fact contains a NUL, so different facts never give the same bytes.
    let mut key = digest::sha256(facts.join("\0").as_bytes());
    key.truncate(32);
    key
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tileforge_engine::{MANIFEST_FILE, testing};

    use super::*;
    use crate::additions;
    use crate::onnxruntime::{self, Search};
    use crate::provider::Probe;
    use std::collections::BTreeMap;

    /// An engine for RTX GPUs, with arbitrary bytes instead of graphs and plans.
    fn engine(folder: &Path) -> Engine {
        std::fs::create_dir(folder.join(Plan::FOLDER)).unwrap();
        let files = ["a.onnx", "selftest.safetensors", "tensorrt-rtx/a.onnx", "tensorrt-rtx/a.plan"];
        files.iter().for_each(|name| std::fs::write(folder.join(name), name).unwrap());
        let digests = files.map(|name| (name.to_owned(), json!(digest::sha256_file(&folder.join(name)).unwrap())));
        let plan = json!({
            "context": files[2], "file": files[3], "library": "1.7.1.116", "compute_capabilities": ["8.9"],
        });
        let graphs = vec![testing::graph("a.onnx", &[1, 1, 1, 2], &[1, 1, 1, 2])];
        let mut manifest = testing::manifest("a", &testing::upscale(1, 1).contract(), graphs, BTreeMap::from(digests));
        manifest["target"] = json!({ "profile": "rtx4090", "provider": "tensorrt-rtx", "compute_capability": "8.9" });
        manifest["graphs"][0]["plan"] = plan;
        std::fs::write(folder.join(MANIFEST_FILE), manifest.to_string()).unwrap();
        Engine::open(folder).unwrap()
    }

    #[test]
    fn a_plan_is_what_it_was_when_it_was_checked() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("engine");
        std::fs::create_dir(&directory).unwrap();
        let engine = engine(&directory);
        for name in ["a.plan", "a.onnx"] {
            let other = parent.path().join(name);
            std::fs::write(&other, "another one").unwrap();
            std::fs::rename(&other, directory.join(Plan::FOLDER).join(name)).unwrap();
        }
        let environment = Environment::new(onnxruntime::load(&Search::AroundExecutable).unwrap());
        let graph = &engine.manifest().graphs[0];
        let (folder, context) = of(&environment, &engine, graph, &mut SessionOptions::default()).unwrap();
        assert_eq!(context, folder.path().join("a.onnx"));
        assert_eq!(std::fs::read(&context).unwrap(), b"tensorrt-rtx/a.onnx");
        // The model names its plan relative to itself.
        assert_eq!(std::fs::read(folder.path().join("a.plan")).unwrap(), b"tensorrt-rtx/a.plan");
    }

    /// An environment with one GPU, and with a cache folder.
    fn environment(cache: &Path) -> Environment {
        let gpu = Gpu { name: "RTX".into(), compute_capability: "8.9".into(), memory_bytes: 1 };
        let probe = Probe { gpus: vec![gpu], driver_cuda_version: Some("13.0".into()), ..Probe::default() };
        let library = onnxruntime::load(&Search::AroundExecutable).unwrap();
        Environment::new(library).with_probe(probe).with_cache(cache.to_owned())
    }

    #[test]
    fn a_runtime_cache_goes_with_the_engine_to_the_next_machine() {
        let parent = tempfile::tempdir().unwrap();
        let at = |name: &str| parent.path().join(name);
        std::fs::create_dir(at("engine")).unwrap();
        let engine = engine(&at("engine"));
        let graph = &engine.manifest().graphs[0];
        let (here, there) = (environment(&at("here")), environment(&at("there")));
        let mut options = SessionOptions::default();
        of(&here, &engine, graph, &mut options).unwrap();
        let cache = PathBuf::from(&options.provider_options[RUNTIME_CACHE_OPTION]);
        let nothing = |environment: &Environment, engine: &Engine, devices: &[u32]| {
            matches!(additions::of(environment, engine, devices), Err(Error::NothingAdded { .. }))
        };
        assert!(nothing(&here, &engine, &[0]));
        // Stands in for a file that the library writes.
        std::fs::write(cache.join("a.bin"), "for this GPU").unwrap();
        std::fs::write(cache.join(".tileforge-0123456789ab.partial"), "unfinished").unwrap();
        let added = additions::of(&here, &engine, &[0]).unwrap();
        let name = format!("tensorrt-rtx/{}/a.bin", cache.file_name().unwrap().to_str().unwrap());
        assert_eq!(added, BTreeMap::from([(name.clone(), cache.join("a.bin"))]));
        assert!(nothing(&here, &engine, &[1]), "there is no second GPU");

        tileforge_engine::extend(&engine, &added, &at("warm")).unwrap();
        let warm = Engine::open(&at("warm")).unwrap();
        assert_eq!(warm.file(&name).unwrap(), b"for this GPU");
        let mut options = SessionOptions::default();
        of(&there, &warm, graph, &mut options).unwrap();
        let cache = PathBuf::from(&options.provider_options[RUNTIME_CACHE_OPTION]);
        assert_eq!(cache, at("there").join(exchange::parent_of(Path::new(&name))));
        // The library changes its cache, and the engine stays unchanged.
        std::fs::write(cache.join("a.bin"), "changed").unwrap();
        of(&there, &warm, graph, &mut options).unwrap();
        assert_eq!(std::fs::read(cache.join("a.bin")).unwrap(), b"changed");
        Engine::open(&at("warm")).unwrap();
        assert!(nothing(&there, &warm, &[0]), "the engine has it already");
    }

    #[test]
    fn every_plan_gpu_and_driver_has_a_cache_of_its_own() {
        let plan = |library: &str| Plan {
            context: "tensorrt-rtx/a.onnx".into(),
            file: "tensorrt-rtx/a.plan".into(),
            library: library.into(),
            compute_capabilities: vec!["8.9".into()],
            figures: None,
        };
        let gpu = |name: &str, capability: &str| Gpu {
            name: name.into(),
            compute_capability: capability.into(),
            memory_bytes: 1,
        };
        let keys = [
            cache_key("a", &plan("1.7.1.116"), &gpu("RTX", "8.9"), "13.0"),
            cache_key("b", &plan("1.7.1.116"), &gpu("RTX", "8.9"), "13.0"),
            cache_key("a", &plan("1.7.2.1"), &gpu("RTX", "8.9"), "13.0"),
            cache_key("a", &plan("1.7.1.116"), &gpu("L4", "8.9"), "13.0"),
            cache_key("a", &plan("1.7.1.116"), &gpu("RTX", "8.6"), "13.0"),
            cache_key("a", &plan("1.7.1.116"), &gpu("RTX", "8.9"), "13.1"),
        ];
        let distinct: std::collections::BTreeSet<_> = keys.iter().collect();
        assert_eq!(distinct.len(), keys.len());
        assert!(keys.iter().all(|key| key.len() == 32));
    }
}
