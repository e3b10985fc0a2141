//! Whether an engine was made with other releases than those on this machine, and what follows from that.
//!
//! Only this module decides this. An engine of another schema is refused earlier:
//! [`Schema`](tileforge_engine::Error::Schema).

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;
use tileforge_engine::{Engine, store};

use crate::environment::Environment;

/// This release of Tileforge. Programs and libraries have the same one.
const RELEASE: &str = env!("CARGO_PKG_VERSION");

/// The program that manifests name as their producer.
const BUILDER: &str = "engine-builder";

/// Software whose release an engine depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Software {
    /// The program that built the engine. Engines of every release run if they have this schema.
    EngineBuilder,
    /// ONNX Runtime, which ran the gates, and fused the graphs that were optimised offline.
    OnnxRuntime,
    /// TensorRT, which runs only graphs that the same release compiled. Otherwise it compiles the graphs again.
    #[serde(rename = "tensorrt")]
    TensorRt,
    /// TensorRT for RTX, which runs only plans of the same release. Users' machines do not compile plans again.
    #[serde(rename = "tensorrt-rtx")]
    TensorRtRtx,
}

/// A release that an engine was made with, where this machine has another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OtherRelease {
    /// The software of this release.
    pub software: Software,
    /// The release that made the engine, such as "1.31.1".
    pub made_with: String,
    /// The release on this machine.
    pub here: String,
}

impl OtherRelease {
    /// `None` if both are the same.
    fn of(software: Software, made_with: &str, here: &str) -> Option<Self> {
        (made_with != here).then(|| Self { software, made_with: made_with.into(), here: here.into() })
    }

    /// Whether the engine was made with a newer release than this machine has.
    pub fn is_newer(&self) -> bool {
        numbers(&self.made_with) > numbers(&self.here)
    }
}

impl fmt::Display for OtherRelease {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { software, made_with, here } = self;
        match software {
            Software::EngineBuilder => {
                write!(formatter, "it was built by {BUILDER} {made_with}, and this is release {here}; it runs as it is")
            }
            Software::OnnxRuntime => write!(
                formatter,
                "it was built with ONNX Runtime {made_with}, and {here} is here; its self-test shows whether both \
                 compute the same"
            ),
            Software::TensorRt => {
                write!(
                    formatter,
                    "it was compiled by TensorRT {made_with}, and {here} is here, which compiles it again"
                )
            }
            Software::TensorRtRtx => {
                write!(formatter, "its plans need TensorRT for RTX {made_with}, and {here} is here")
            }
        }
    }
}

/// The numbers of a release, without its suffix: "1.7.1-rc1" counts as "1.7.1". A part that is not a number counts as 0.
fn numbers(release: &str) -> Vec<u64> {
    let numbers = release.split(['-', '+']).next().unwrap_or_default();
    numbers.split('.').map(|part| part.parse().unwrap_or(0)).collect()
}

/// The releases that an engine was made with and that differ from this machine's. Software that is not installed here
/// is left out.
pub fn other_releases(engine: &Engine, environment: &Environment) -> Vec<OtherRelease> {
    let (manifest, probe) = (engine.manifest(), environment.probe());
    let mut all = Vec::new();
    let builder = manifest.producer.strip_prefix(BUILDER).map(str::trim);
    all.extend(builder.and_then(|release| OtherRelease::of(Software::EngineBuilder, release, RELEASE)));
    let (built, here) = (&manifest.built_with.onnxruntime, environment.library().version());
    all.extend(OtherRelease::of(Software::OnnxRuntime, built, here));
    all.extend(probe.tensorrt_version.as_deref().and_then(|here| of_compiled(engine, here)));
    let plans = || manifest.graphs.iter().filter_map(|graph| Some(graph.plan.as_ref()?.library.as_str()));
    all.extend(probe.tensorrt_rtx_version.as_deref().and_then(|here| of_plans(plans(), here)));
    all
}

/// The release of TensorRT that compiled an engine, if this machine's release compiled none of the graphs that the
/// engine ships.
pub(crate) fn of_compiled(engine: &Engine, here: &str) -> Option<OtherRelease> {
    let releases: BTreeSet<String> = store::shipped_facts(engine).into_iter().map(|facts| facts.tensorrt).collect();
    if releases.contains(here) {
        return None;
    }
    let newest = releases.iter().max_by_key(|release| numbers(release))?;
    OtherRelease::of(Software::TensorRt, newest, here)
}

/// The first release of TensorRT for RTX that the plans need and that differs from this machine's.
pub(crate) fn of_plans<'r>(needed: impl IntoIterator<Item = &'r str>, here: &str) -> Option<OtherRelease> {
    needed.into_iter().find_map(|release| OtherRelease::of(Software::TensorRtRtx, release, here))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::path::Path;

    use serde_json::{Value, json};
    use tileforge_engine::store::{Facts, RECORD, TensorRtFacts};
    use tileforge_engine::{digest, testing};

    use super::*;
    use crate::onnxruntime::{self, Search};
    use crate::provider::Probe;

    /// An engine with these files, whose contents stand in for real graphs.
    fn engine(folder: &Path, files: &BTreeMap<String, String>, change: impl Fn(&mut Value)) -> Engine {
        for (name, text) in files {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let digests = files.keys().map(|name| (name.clone(), json!(digest::sha256_file(&folder.join(name)).unwrap())));
        let graphs = vec![testing::graph("a.onnx", &[1, 1, 1, 2], &[1, 1, 1, 2])];
        let files = BTreeMap::from_iter(digests);
        let mut manifest = testing::manifest("a", &testing::upscale(1, 1).contract(), graphs, files);
        manifest["producer"] = json!(format!("{BUILDER} {RELEASE}"));
        manifest["target"] = json!({ "profile": "rtx4090", "provider": "tensorrt-rtx", "compute_capability": "8.9" });
        change(&mut manifest);
        fs::write(folder.join(tileforge_engine::MANIFEST_FILE), manifest.to_string()).unwrap();
        Engine::open(folder).unwrap()
    }

    fn named(names: &[&str]) -> BTreeMap<String, String> {
        names.iter().map(|name| ((*name).to_owned(), (*name).to_owned())).collect()
    }

    fn environment(tensorrt: Option<&str>, tensorrt_rtx: Option<&str>) -> Environment {
        let probe = Probe {
            tensorrt_version: tensorrt.map(str::to_owned),
            tensorrt_rtx_version: tensorrt_rtx.map(str::to_owned),
            ..Probe::default()
        };
        Environment::new(onnxruntime::load(&Search::AroundExecutable).unwrap()).with_probe(probe)
    }

    const FILES: [&str; 2] = ["a.onnx", "selftest.safetensors"];

    #[test]
    fn an_engine_of_the_releases_that_are_here_has_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let engine = engine(folder.path(), &named(&FILES), |_| ());
        assert_eq!(other_releases(&engine, &environment(Some("10.14.1"), Some("1.7.1.116"))), []);
    }

    #[test]
    fn builder_and_onnx_runtime_of_another_release_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let engine = engine(folder.path(), &named(&FILES), |manifest| {
            manifest["producer"] = json!("engine-builder 0.0.9");
            manifest["built_with"]["onnxruntime"] = json!("1.100.0");
        });
        let found = other_releases(&engine, &environment(None, None));
        let said: Vec<(Software, bool)> = found.iter().map(|other| (other.software, other.is_newer())).collect();
        // 1.100 is newer than 1.31: releases are numbers, not text.
        assert_eq!(said, [(Software::EngineBuilder, false), (Software::OnnxRuntime, true)]);
        assert_eq!(
            found[0].to_string(),
            format!("it was built by engine-builder 0.0.9, and this is release {RELEASE}; it runs as it is")
        );
        assert!(found[1].to_string().starts_with("it was built with ONNX Runtime 1.100.0, and 1.31.1 is here"));
    }

    #[test]
    fn what_another_tensorrt_compiled_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let text = |text: &str| text.to_owned();
        let facts = TensorRtFacts {
            graph_sha256: text("a"),
            weights_sha256: Vec::new(),
            gpu: text("GPU"),
            compute_capability: text("9.0"),
            tensorrt: text("10.13.0"),
            driver_cuda: text("13.0"),
            onnxruntime: text("1.31.1"),
            options: BTreeMap::new(),
        };
        let mut files = named(&FILES);
        let record = json!({ "facts": facts, "files": {} });
        files.insert(format!("{}/{}/{RECORD}", store::FOLDER, facts.key()), record.to_string());
        files.insert(format!("{}/{}/plan", store::FOLDER, facts.key()), "plan".into());
        let engine = engine(folder.path(), &files, |_| ());
        let found = other_releases(&engine, &environment(Some("10.14.1"), None));
        let expected = "it was compiled by TensorRT 10.13.0, and 10.14.1 is here, which compiles it again";
        assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), [expected]);
        assert_eq!(other_releases(&engine, &environment(Some("10.13.0"), None)), []);
        assert_eq!(other_releases(&engine, &environment(None, None)), []);
    }

    #[test]
    fn plans_of_another_release_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let files = [FILES[0], FILES[1], "tensorrt-rtx/a.onnx", "tensorrt-rtx/a.plan"];
        let engine = engine(folder.path(), &named(&files), |manifest| {
            manifest["graphs"][0]["plan"] = json!({
                "context": files[2], "file": files[3], "library": "1.7.1.116", "compute_capabilities": ["8.9"],
            });
        });
        let of = |here| other_releases(&engine, &environment(None, Some(here)));
        assert_eq!(of("1.7.1.116"), []);
        let found = of("1.8.0.3");
        assert_eq!((found[0].software, found[0].is_newer()), (Software::TensorRtRtx, false));
        assert_eq!(found[0].to_string(), "its plans need TensorRT for RTX 1.7.1.116, and 1.8.0.3 is here");
        assert!(of("1.7.0.4")[0].is_newer());
    }

    #[test]
    fn releases_are_compared_by_their_numbers() {
        let is_newer = |made_with, here| OtherRelease::of(Software::TensorRt, made_with, here).unwrap().is_newer();
        assert!(is_newer("10.14", "10.9") && !is_newer("10.9", "10.14"));
        assert!(is_newer("1.7.1.116", "1.7.1") && !is_newer("1.7.1-rc1", "1.7.1") && !is_newer("1.7.1", "1.7.1-rc1"));
    }
}
