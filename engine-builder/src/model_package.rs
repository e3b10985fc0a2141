//! Engines as a model package of ONNX Runtime: a folder of models. Each model has variants for execution providers,
//! and the library chooses one of them.
//!
//! The format is defined by `model_package/README.md` and `onnxruntime/core/session/model_package/README.md` in ONNX
//! Runtime's sources, schema 1.0, which releases from 1.31 open with `OrtModelPackageApi`. Each graph of an engine
//! becomes a component, and each engine and provider a variant of it:
//!
//! ```text
//! P/manifest.json                      components, their variants, and what each needs
//! P/rtx4090/model-….onnx, model.weights, tensorrt-rtx/…    the files of one engine, each once
//! P/cpu/unet/model-….onnx, …           those of a part of an engine
//! P/shared_assets/sha256-…/            files beside the parts, such as tokenizers
//! ```

use crate::{Error, Result};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use tileforge_contract::Provider;
use tileforge_engine::digest::sha256;
use tileforge_engine::{Bundle, Engine, Graph, MANIFEST_FILE, exchange};
use tileforge_files::{outputs, unfinished};

/// The schema version of the written manifest.
const SCHEMA: &str = "1.0";

/// The folder of files that belong to no variant, by ONNX Runtime's name.
const SHARED: &str = "shared_assets";

/// The size of a plan's header. ONNX Runtime's provider for RTX GPUs passes the header to TensorRT before it accepts a
/// variant (`kTensorRTEngineHeaderSize` in its sources).
const PLAN_HEADER_BYTES: usize = 64;

/// `manifest.json` of a package.
#[derive(Serialize)]
struct Manifest {
    schema_version: &'static str,
    package_name: String,
    layout: &'static str,
    components: BTreeMap<String, Component>,
    additional_metadata: Value,
}

#[derive(Default, Serialize)]
struct Component {
    variants: BTreeMap<String, Value>,
}

/// Writes the engines of one model as a model package to `directory`, which must be free.
///
/// # Errors
/// An engine is incomplete; the engines are not of one model, or two of them are for the same machine; or a file
/// cannot be written. Nothing is left behind then.
pub fn write(engines: &[PathBuf], directory: &Path) -> Result<()> {
    let inputs: Vec<&Path> = engines.iter().map(PathBuf::as_path).collect();
    outputs::check(&[directory], &inputs).map_err(Error::Output)?;
    let is_free = match directory.read_dir() {
        Ok(mut entries) => entries.next().is_none(),
        Err(_) => directory.symlink_metadata().is_err(),
    };
    if !is_free {
        return Err(Error::input(directory, "expected a folder that is free or empty for the package"));
    }
    let bundles = engines.iter().map(|engine| Bundle::open(engine)).collect::<Result<Vec<_>, _>>()?;
    let named = names(&bundles)?;
    check_one_model(&bundles)?;
    let parent = exchange::parent_of(directory);
    fs::create_dir_all(parent).map_err(|e| Error::file(parent, "create the folder", e))?;
    let staging = exchange::temporary(parent)?;
    write_package(&bundles, &named, staging.path()).map_err(|error| error.relocated(staging.path(), directory))?;
    // The temporary folder is private to its owner, so the package gets the permissions of a new folder within it.
    let open = named.first().map(|name| staging.path().join(name)).unwrap_or_default();
    let permissions = fs::metadata(&open).and_then(|open| fs::set_permissions(staging.path(), open.permissions()));
    permissions.map_err(|e| Error::file(directory, "set the permissions", e))?;
    fs::rename(staging.path(), directory).map_err(|e| Error::file(directory, "rename the finished package to", e))
}

fn write_package(bundles: &[Bundle], names: &[String], staging: &Path) -> Result<()> {
    let package_name = bundles.first().map_or_else(String::new, |bundle| bundle.name().to_owned());
    let (mut components, mut assets) = (BTreeMap::<String, Component>::new(), BTreeMap::new());
    // If several engines could serve a provider, the engine that was built for it does.
    let mut taken: BTreeSet<Provider> = bundles.iter().filter_map(target).collect();
    for (bundle, name) in bundles.iter().zip(names) {
        let own = target(bundle);
        let providers: Vec<Provider> = providers(bundle)
            .into_iter()
            .filter(|provider| Some(*provider) == own || taken.insert(*provider))
            .collect();
        for (part, engine) in bundle.engines() {
            let folder = part.map_or_else(|| name.clone(), |part| format!("{name}/{part}"));
            place(engine, &staging.join(&folder))?;
            for graph in &engine.manifest().graphs {
                let stem = graph.file.trim_end_matches(".onnx");
                let component = part.map_or_else(|| stem.to_owned(), |part| format!("{part}-{stem}"));
                let component = components.entry(component).or_default();
                for &provider in &providers {
                    let variant =
                        if Some(provider) == own { name.clone() } else { format!("{name}-{}", provider.name()) };
                    component.variants.insert(variant, self::variant(engine, graph, provider, &folder)?);
                }
            }
        }
        if let Some(asset) = place_files_beside(bundle, staging)? {
            assets.insert(name.clone(), asset);
        }
    }
    let mut tileforge = json!({ "producer": crate::build::producer() });
    if !assets.is_empty() {
        tileforge["files_beside_the_parts"] = json!(assets);
    }
    let manifest = Manifest {
        schema_version: SCHEMA,
        package_name,
        layout: "portable",
        components,
        additional_metadata: json!({ "tileforge": tileforge }),
    };
    let path = staging.join(MANIFEST_FILE);
    let text = serde_json::to_string_pretty(&manifest).map_err(|error| Error::file(&path, "write", error.into()))?;
    fs::write(&path, text + "\n").map_err(|e| Error::file(&path, "write", e))
}

/// The variant for ONNX Runtime: a graph of an engine on one provider.
fn variant(engine: &Engine, graph: &Graph, provider: Provider, folder: &str) -> Result<Value> {
    let manifest = engine.manifest();
    let target = &manifest.target;
    let (model, options) = match (provider, &graph.plan) {
        (Provider::TensorRtRtx, Some(plan)) => (&plan.context, &target.tensorrt_rtx),
        (Provider::TensorRt, _) => (&graph.file, &target.tensorrt),
        (Provider::Cuda, _) => (&graph.file, &target.cuda),
        (Provider::TensorRtRtx | Provider::OpenVino | Provider::Cpu, _) => (&graph.file, &BTreeMap::new()),
    };
    let mut executor = json!({ "model_file": model });
    if !options.is_empty() {
        executor["provider_options"] = json!(options);
    }
    // No `device`: the provider determines it, and ONNX Runtime 1.31.1 refuses a variant for "cpu" on its CPU
    // provider.
    let mut variant = json!({
        "variant_directory": folder,
        "ep": provider.onnxruntime_name(),
        "executor_info": { "ort": executor },
        "additional_metadata": { "tileforge": {
            "engine": manifest.name, "profile": target.profile, "precision": manifest.precision,
            "compute_capability": target.compute_capability, "inputs": graph.inputs, "outputs": graph.outputs,
            "any_size": graph.any_size, "any_batch": graph.any_batch,
        } },
    });
    if let (Provider::TensorRtRtx, Some(plan)) = (provider, &graph.plan) {
        let bytes = engine.file(&plan.file)?;
        let header = bytes.get(..PLAN_HEADER_BYTES).ok_or_else(|| {
            let reason = format!("expected a plan of at least {PLAN_HEADER_BYTES} bytes, found {}", bytes.len());
            Error::input(&engine.path_of(&plan.file), reason)
        })?;
        variant["compatibility_string"] = json!(tileforge_engine::digest::hexadecimal(header));
        let tileforge = &mut variant["additional_metadata"]["tileforge"];
        tileforge["tensorrt_rtx"] = json!(plan.library);
        tileforge["compute_capabilities"] = json!(plan.compute_capabilities);
    }
    Ok(variant)
}

/// The provider that the engine was built for.
fn target(bundle: &Bundle) -> Option<Provider> {
    bundle.engines().first().map(|(_, engine)| engine.manifest().target.provider)
}

/// The providers that can run all graphs of an engine, the best first.
fn providers(bundle: &Bundle) -> Vec<Provider> {
    let engines = bundle.engines();
    let from = Provider::LADDER.iter().skip_while(|provider| Some(**provider) != target(bundle)).copied();
    let runs = |provider: &Provider| {
        engines.iter().all(|(_, engine)| match provider {
            // TensorRT for RTX runs only engines with plans for all graphs.
            Provider::TensorRtRtx => engine.manifest().graphs.iter().all(|graph| graph.plan.is_some()),
            // Packages are for ONNX Runtime, which runs OpenVINO's graphs on its own kernels.
            Provider::OpenVino => false,
            Provider::Cpu => engine.manifest().precision.runs_on_cpu(),
            Provider::TensorRt | Provider::Cuda => true,
        })
    };
    // ONNX Runtime's TensorRT would compile the graphs of an engine for TensorRT for RTX without its plans.
    from.filter(|provider| *provider != Provider::TensorRt || target(bundle) == Some(Provider::TensorRt))
        .filter(runs)
        .collect()
}

/// A name for each engine: its profile, with its precision where several engines have the same profile.
fn names(bundles: &[Bundle]) -> Result<Vec<String>> {
    let of = |bundle: &Bundle, with_precision: bool| {
        let engines = bundle.engines();
        let manifest = engines.first().map(|(_, engine)| engine.manifest());
        manifest.map_or_else(String::new, |manifest| {
            let precision = if with_precision { format!("-{}", manifest.precision) } else { String::new() };
            format!("{}{precision}", manifest.target.profile)
        })
    };
    let plain: Vec<String> = bundles.iter().map(|bundle| of(bundle, false)).collect();
    let is_shared = |name: &String| plain.iter().filter(|other| *other == name).count() > 1;
    let names: Vec<String> = bundles.iter().zip(&plain).map(|(bundle, name)| of(bundle, is_shared(name))).collect();
    let mut seen = BTreeMap::new();
    for (bundle, name) in bundles.iter().zip(&names) {
        if !tileforge_files::is_plain(name) || [SHARED, MANIFEST_FILE].contains(&name.as_str()) {
            let reason = format!("a package cannot have a folder of its profile's name `{}`", name.escape_debug());
            return Err(Error::input(bundle.directory(), reason));
        }
        if let Some(other) = seen.insert(name, bundle.directory()) {
            let reason = format!("it is for the same profile and precision as {}; give one of them", other.display());
            return Err(Error::input(bundle.directory(), reason));
        }
    }
    Ok(names)
}

/// Checks that all engines are of one model: they have the same networks with the same contracts.
fn check_one_model(bundles: &[Bundle]) -> Result<()> {
    let networks = |bundle: &Bundle| -> Vec<(Option<String>, String, tileforge_contract::Contract)> {
        let network = |(part, engine): (Option<&str>, &Engine)| {
            let manifest = engine.manifest();
            (part.map(str::to_owned), manifest.model.architecture.clone(), manifest.contract.clone())
        };
        bundle.engines().into_iter().map(network).collect()
    };
    let Some((first, others)) = bundles.split_first() else { return Ok(()) };
    let expected = networks(first);
    match others.iter().find(|other| networks(other) != expected) {
        None => Ok(()),
        Some(other) => {
            let reason =
                format!("expected an engine of the model of {}, found another one", first.directory().display());
            Err(Error::input(other.directory(), reason))
        }
    }
}

/// Puts the files of an engine that ONNX Runtime needs into `folder`, as hard links where possible.
fn place(engine: &Engine, folder: &Path) -> Result<()> {
    let manifest = engine.manifest();
    let mut names = BTreeSet::new();
    for graph in &manifest.graphs {
        names.insert(graph.file.clone());
        names.extend(tileforge_graph::external_files(engine.file(&graph.file)?, &engine.path_of(&graph.file))?);
        names.extend(graph.plan.iter().flat_map(|plan| [plan.context.clone(), plan.file.clone()]));
    }
    for name in &names {
        let place = folder.join(name);
        let within = exchange::parent_of(&place);
        unfinished::create_folders(within).map_err(|e| Error::file(within, "create the folder", e))?;
        engine.place_files([name.as_str()], within)?;
    }
    Ok(())
}

/// Puts the files beside the parts of an engine into one folder. Its name follows ONNX Runtime's rule for assets: the
/// SHA-256 over a line for each file. Returns the asset's address.
fn place_files_beside(bundle: &Bundle, staging: &Path) -> Result<Option<String>> {
    let Bundle::Pipeline(pipeline) = bundle else { return Ok(None) };
    let files = &pipeline.manifest().files;
    if files.is_empty() {
        return Ok(None);
    }
    let lines: String = files.iter().map(|(name, digest)| format!("{}  {name}\n", digest.sha256)).collect();
    let digest = sha256(lines.as_bytes());
    let folder = staging.join(SHARED).join(format!("sha256-{digest}"));
    for (name, bytes) in pipeline.files() {
        let place = folder.join(name);
        let within = exchange::parent_of(&place);
        unfinished::create_folders(within).map_err(|e| Error::file(within, "create the folder", e))?;
        fs::write(&place, bytes).map_err(|e| Error::file(&place, "write", e))?;
    }
    Ok(Some(format!("sha256:{digest}")))
}
