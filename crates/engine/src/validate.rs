//! The rules of schema 2. Nothing here touches the file system.

use std::path::Path;

use serde::Deserialize;

use tileforge_contract::{Axis, Contract};

use crate::error::{Error, Result};
use crate::manifest::{COMPILED_FOLDER, Graph, Manifest, Plan, SCHEMA, Target};

/// Longest side of a tensor.
const LENGTH_MAXIMUM: usize = 1 << 20;

/// Largest tensor of a graph's interface, in elements: 2 GiB of float32.
const TENSOR_MAXIMUM: usize = 1 << 29;

/// Most samples in one run.
const BATCH_MAXIMUM: usize = 64;

/// Most sessions that run at the same time.
const STREAMS_MAXIMUM: u32 = 16;

/// The provider options that a manifest may set. Options with paths, for example of libraries, are not allowed.
const PROVIDER_OPTIONS: [&str; 15] = [
    "trt_builder_optimization_level",
    "trt_auxiliary_streams",
    "trt_min_subgraph_size",
    "trt_max_partition_iterations",
    "trt_timing_cache_enable",
    "trt_engine_hw_compatible",
    "trt_sparsity_enable",
    "trt_context_memory_sharing_enable",
    "trt_cuda_graph_enable",
    "trt_max_workspace_size",
    "use_tf32",
    "cudnn_conv_algo_search",
    "prefer_nhwc",
    "enable_cuda_graph",
    "INFERENCE_PRECISION_HINT",
];

impl Manifest {
    /// Reads a manifest and checks every rule that can be checked without the files.
    ///
    /// Never panics, whatever the bytes are.
    ///
    /// # Errors
    /// [`Error::Schema`] for a manifest of another schema; [`Error::Manifest`] or [`Error::Contract`] with the first
    /// broken rule.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        /// Read first, so that another schema is not reported as an unknown field.
        #[derive(Deserialize)]
        struct Schema {
            schema: u32,
        }
        let broken = |error: serde_json::Error| Error::manifest(format!("not a manifest: {error}"));
        let Schema { schema } = serde_json::from_slice(bytes).map_err(broken)?;
        if schema != SCHEMA {
            return Err(Error::Schema { expected: SCHEMA, found: schema });
        }
        let manifest: Self = serde_json::from_slice(bytes).map_err(broken)?;
        manifest.validate()?;
        Ok(manifest)
    }

    /// Checks the rules of [`Manifest::parse`] on a manifest that was made in memory.
    ///
    /// # Errors
    /// [`Error::Schema`] for a manifest of another schema; [`Error::Manifest`] or [`Error::Contract`] with the first
    /// broken rule.
    pub fn validate(&self) -> Result<()> {
        rule(self.schema == SCHEMA, || format!("schema: expected {SCHEMA}, found {}", self.schema))?;
        plain_name("name", &self.name)?;
        self.contract.validate()?;
        self.recipe.iter().try_for_each(|recipe| recipe.validate())?;
        for (name, digest) in &self.files {
            match (compiled_name(name), in_plan_folder(name)) {
                (Some(parts), _) => parts.split('/').try_for_each(|part| plain_name("files", part))?,
                (None, Some(plan)) => plan.split('/').try_for_each(|part| plain_name("files", part))?,
                (None, None) => plain_name("files", name)?,
            }
            check_digest("files", name, &digest.sha256)?;
        }
        rule(!self.graphs.is_empty(), || "graphs: expected at least one, found none".into())?;
        for graph in &self.graphs {
            self.listed("graphs", &graph.file)?;
            graph.validate(&self.contract)?;
            if let Some(plan) = &graph.plan {
                self.validate_plan(&graph.file, plan)?;
            }
        }
        self.listed("selftest.file", &self.selftest.file)?;
        self.graph_exists("selftest.graph", &self.selftest.graph)?;
        let tolerance = self.selftest.tolerance;
        rule(tolerance.is_finite() && tolerance >= 0.0, || {
            format!("selftest.tolerance: expected a number of at least 0, found {tolerance}")
        })?;
        let Target { streams, tensorrt_rtx, tensorrt, cuda, openvino, .. } = &self.target;
        rule((1..=STREAMS_MAXIMUM).contains(streams), || {
            format!("target.streams: expected 1 to {STREAMS_MAXIMUM}, found {streams}")
        })?;
        for (name, value) in tensorrt_rtx.iter().chain(tensorrt).chain(cuda).chain(openvino) {
            rule(PROVIDER_OPTIONS.contains(&name.as_str()), || {
                format!("target: \"{}\" is not a provider option that an engine may set", name.escape_debug())
            })?;
            let sound = !value.is_empty()
                && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
            rule(sound, || {
                format!("target: expected a word or a number for {name}, found \"{}\"", value.escape_debug())
            })?;
        }
        self.tiling.iter().try_for_each(|tiling| tiling.validate())?;
        self.gates.iter().try_for_each(|gate| self.graph_exists("gates", &gate.graph))
    }

    fn validate_plan(&self, graph: &str, plan: &Plan) -> Result<()> {
        for file in [&plan.context, &plan.file] {
            let sound = in_plan_folder(file).is_some_and(|file| !file.contains('/')) && self.files.contains_key(file);
            rule(sound, || {
                let expected = format!("a file in {}/ that is among files", Plan::FOLDER);
                format!("graphs.{graph}.plan: expected {expected}, found \"{}\"", file.escape_debug())
            })?;
        }
        let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let versions = plan
            .compute_capabilities
            .iter()
            .all(|capability| capability.split_once('.').is_some_and(|(major, minor)| number(major) && number(minor)));
        rule(versions && !plan.compute_capabilities.is_empty(), || {
            let found = &plan.compute_capabilities;
            format!("graphs.{graph}.plan: expected compute capabilities such as \"8.9\", found {found:?}")
        })?;
        rule(plan.library.split('.').all(number), || {
            let found = plan.library.escape_debug();
            format!("graphs.{graph}.plan: expected a release such as \"1.7.1.116\", found \"{found}\"")
        })
    }

    fn listed(&self, key: &str, file: &str) -> Result<()> {
        plain_name(key, file)?;
        rule(self.files.contains_key(file), || format!("{key}: \"{file}\" is not among files"))
    }

    fn graph_exists(&self, key: &str, file: &str) -> Result<()> {
        let exists = self.graphs.iter().any(|graph| graph.file == file);
        rule(exists, || format!("{key}: \"{file}\" is not among graphs"))
    }
}

impl Graph {
    /// Checks that the graph keeps the contract, and that no tensor is too large.
    pub(crate) fn validate(&self, contract: &Contract) -> Result<()> {
        for shape in self.inputs.values().chain(self.outputs.values()) {
            let elements = shape.iter().try_fold(1_usize, |product, length| product.checked_mul(*length));
            let sound = shape.iter().all(|length| (1..=LENGTH_MAXIMUM).contains(length))
                && elements.is_some_and(|elements| elements <= TENSOR_MAXIMUM);
            rule(sound, || {
                format!("graphs.{}: expected tensors of 1 to {TENSOR_MAXIMUM} elements, found {shape:?}", self.file)
            })?;
        }
        let sizes = contract
            .check(&self.inputs, &self.outputs)
            .map_err(|error| Error::Graph { file: self.file.clone(), source: error })?;
        rule((1..=BATCH_MAXIMUM).contains(&sizes.batch), || {
            format!("graphs.{}: expected a batch of 1 to {BATCH_MAXIMUM}, found {}", self.file, sizes.batch)
        })?;
        rule(!self.any_size || (is_of_pictures(contract) && self.plan.is_none()), || {
            format!("graphs.{}: any_size is for graphs from picture to picture without a plan", self.file)
        })?;
        let is_free = self.any_batch && !self.any_size && self.plan.is_none();
        rule(!self.any_batch || (is_free && contract.has_separate_samples()), || {
            let expected = "graphs of one size without a plan, whose tensors all have a part for each sample";
            format!("graphs.{}: any_batch is for {expected}", self.file)
        })?;
        rule(self.values_bytes_of_one.is_none() || self.any_batch, || {
            format!("graphs.{}: values_bytes_of_one is for graphs of any_batch", self.file)
        })
    }
}

/// Whether every tensor is a picture: `[batch, channels, height, width]`.
fn is_of_pictures(contract: &Contract) -> bool {
    let mut tensors = contract.inputs.iter().chain(&contract.outputs);
    tensors.all(|tensor| matches!(*tensor.axes, [Axis::Batch, Axis::Channels(_), Axis::Height(_), Axis::Width(_)]))
}

/// The name of an engine: the name of its directory, which the manifest also contains. Checks that it is a file name
/// on every system.
///
/// # Errors
/// [`Error::Place`]: the directory has no such name.
pub fn engine_name(directory: &Path) -> Result<&str> {
    let refused = |problem: &str| Error::Place { path: directory.to_owned(), problem: problem.into() };
    let name = directory.file_name().ok_or_else(|| refused("expected the name of an engine directory"))?;
    let name = name.to_str().ok_or_else(|| refused("expected a name in UTF-8, because the manifest holds it"))?;
    let plain = plain_name("name", name).map(|()| name);
    plain.map_err(|_| refused("expected a name without `:` and `\\`, because it has to be a file name on every system"))
}

/// The part after `tensorrt/` in the name of a compiled file: a folder and a file.
fn compiled_name(name: &str) -> Option<&str> {
    name.strip_prefix(COMPILED_FOLDER)?.strip_prefix('/').filter(|rest| rest.matches('/').count() == 1)
}

/// The part after `tensorrt-rtx/` in the name of a plan, of its EPContext model, or of a file in a runtime cache: a
/// file, or a folder and a file.
fn in_plan_folder(name: &str) -> Option<&str> {
    name.strip_prefix(Plan::FOLDER)?.strip_prefix('/').filter(|rest| rest.matches('/').count() <= 1)
}

/// Checks the form of the SHA-256 of `name` in the list `place`.
pub(crate) fn check_digest(place: &str, name: &str, sha256: &str) -> Result<()> {
    let sound = sha256.len() == 64 && sha256.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    rule(sound, || format!("{place}.{name}.sha256: expected 64 lower-case hexadecimal digits"))
}

/// Checks that a name is a plain file name on every system, which cannot leave its directory.
pub(crate) fn plain_name(place: &str, name: &str) -> Result<()> {
    rule(tileforge_files::is_plain(name), || {
        format!("{place}: expected a plain file name, found \"{}\"", name.escape_debug())
    })
}

pub(crate) fn rule(holds: bool, otherwise: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::manifest(otherwise())) }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use tileforge_contract::{Precision, ReceptiveField, Upscale};

    use super::*;
    use crate::manifest::MeasuredTile;
    use crate::testing;

    pub(crate) fn contract() -> Contract {
        let upscale = Upscale {
            receptive_field: ReceptiveField::Radius(18),
            safe_precisions: vec![Precision::Fp32, Precision::Fp16],
            ..testing::upscale(4, 3)
        };
        upscale.contract()
    }

    fn value(tiles: &[(usize, usize)]) -> Value {
        let digest = json!({ "bytes": 1, "sha256": "0".repeat(64) });
        let name = |&(width, height): &(usize, usize)| format!("{width}x{height}.onnx");
        let graph = |tile: &(usize, usize)| {
            testing::graph(&name(tile), &[1, 3, tile.1, tile.0], &[1, 3, tile.1 * 4, tile.0 * 4])
        };
        let mut files: serde_json::Map<_, _> = tiles.iter().map(|tile| (name(tile), digest.clone())).collect();
        files.insert("selftest.safetensors".into(), digest);
        let mut value = testing::manifest("compact-x4", &contract(), tiles.iter().map(graph).collect(), files);
        value["gates"] = json!([{ "name": "finite", "graph": name(&tiles[0]), "value": 1.0, "floor": 1.0 }]);
        value
    }

    pub(crate) fn plan(file: &str, capability: &str) -> Value {
        json!({
            "context": "tensorrt-rtx/x.onnx", "file": file, "library": "1.7.1.116",
            "compute_capabilities": [capability],
        })
    }

    #[test]
    fn a_plan_names_its_files_release_and_capabilities() {
        let with = |change: fn(&mut Value)| {
            let mut value = value(&[(64, 64)]);
            for name in ["tensorrt-rtx/x.onnx", "tensorrt-rtx/x.plan"] {
                value["files"][name] = json!({ "bytes": 1, "sha256": "0".repeat(64) });
            }
            value["graphs"][0]["plan"] = plan("tensorrt-rtx/x.plan", "8.9");
            change(&mut value["graphs"][0]["plan"]);
            Manifest::parse(value.to_string().as_bytes()).map_err(|error| error.to_string())
        };
        let plan = with(|_| ()).unwrap().graphs[0].plan.clone().unwrap();
        assert_eq!((plan.library.as_str(), plan.compute_capabilities), ("1.7.1.116", vec!["8.9".to_owned()]));
        for (change, expected) in [
            ((|plan| plan["library"] = json!("latest")) as fn(&mut Value), "a release such as"),
            (|plan| plan["compute_capabilities"] = json!([]), "compute capabilities such as"),
            (|plan| plan["compute_capabilities"] = json!(["sm89"]), "compute capabilities such as"),
            (|plan| plan["compute_capabilities"] = json!(["8.x"]), "compute capabilities such as"),
            (|plan| plan["compute_capabilities"] = json!(["x.9"]), "compute capabilities such as"),
            (|plan| plan["file"] = json!("tensorrt-rtx/../x.plan"), "among files"),
        ] {
            let error = with(change).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    pub(crate) fn manifest(tiles: &[(usize, usize)]) -> Manifest {
        Manifest::parse(value(tiles).to_string().as_bytes()).unwrap()
    }

    #[test]
    fn a_manifest_survives_the_round_trip() {
        let first = manifest(&[(64, 64), (256, 256)]);
        let again = Manifest::parse(&serde_json::to_vec_pretty(&first).unwrap()).unwrap();
        assert_eq!(first, again);

        let mut value = value(&[(64, 64)]);
        value["target"]["cuda"] = json!({ "cudnn_conv_algo_search": "A-word_of-4" });
        assert!(Manifest::parse(value.to_string().as_bytes()).is_ok());
    }

    /// An error's text with the texts of its causes.
    fn chain(error: &dyn std::error::Error) -> String {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        text
    }

    #[test]
    fn the_figures_of_tiles_survive_the_round_trip() {
        let mut value = value(&[(64, 64)]);
        value["tiling"] = json!({ "floor_db": 36.9, "filled_db": 20.5, "tiles": [tile(64, 8, 0), tile(64, 16, 5)] });
        let manifest = Manifest::parse(value.to_string().as_bytes()).unwrap();
        assert_eq!(manifest, Manifest::parse(&serde_json::to_vec(&manifest).unwrap()).unwrap());
        let tiling = manifest.tiling.unwrap();
        assert_eq!(tiling.of(64, 64).map(|tile| tile.overlap).collect::<Vec<_>>(), [8, 16]);
        assert_eq!(tiling.of(256, 64).count(), 0);
        let reaches = |psnr_db: f64| {
            let tile = MeasuredTile { psnr_db, ..tiling.tiles[0].clone() };
            [false, true].map(|is_filled| tiling.reaches(&tile, is_filled))
        };
        assert_eq!([20.5, 23.5, 36.9, 39.9].map(reaches), [[false; 2], [false, true], [false, true], [true; 2]]);
    }

    fn tile(side: u32, overlap: u32, margin: u32) -> Value {
        json!({ "width": side, "height": side, "overlap": overlap, "margin": margin, "psnr_db": 36.9, "fills": true })
    }

    fn tiling(side: u32, overlap: u32, margin: u32) -> Value {
        json!({ "floor_db": 30.0, "filled_db": 20.0, "tiles": [tile(side, overlap, margin)] })
    }

    #[test]
    fn each_broken_rule_is_named() {
        let cases = [
            ("/schema", json!(1), "expected a manifest of schema 2, found 1"),
            ("/unknown", json!(0), "unknown field"),
            ("/name", json!("../compact"), "plain file name"),
            ("/contract/inputs/0/name", json!(""), "printable"),
            ("/contract/outputs/0/axes/1", json!({ "channels": 1 }), "channels"),
            ("/contract/task", json!("sing"), "unknown variant"),
            ("/contract/inputs/0/name", json!("other"), "`other`: expected an input, found none"),
            ("/graphs", json!([]), "at least one"),
            ("/graphs/0/inputs/input", json!([1, 3, 64]), "[batch, 3 channels, height, width]"),
            ("/graphs/0/inputs/input", json!([2, 3, 64, 64]), "`output`: expected [2, 3, 256, 256]"),
            ("/graphs/0/inputs/input", json!([1, 3, u64::MAX, 64]), "expected tensors of 1 to"),
            ("/graphs/0/inputs/input", json!([1, 3, 0, 64]), "expected tensors of 1 to"),
            ("/graphs/0/inputs/input", json!([1, 3, 1 << 20, 1 << 20]), "expected tensors of 1 to"),
            ("/graphs/0/outputs/output", json!([1, 3, 256, 255]), "found [1, 3, 256, 255]"),
            ("/graphs/0/file", json!("../64x64.onnx"), "plain file name"),
            ("/graphs/0/file", json!("other.onnx"), "not among files"),
            ("/tiling", json!({ "floor_db": 30.0 }), "missing field"),
            ("/tiling", tiling(64, 64, 0), "an overlap smaller than the tile"),
            ("/tiling", tiling(64, 8, 5), "a margin of at most half of it"),
            ("/tiling", tiling(0, 0, 0), "an overlap smaller than the tile"),
            (
                "/tiling",
                json!({ "floor_db": 30.0, "filled_db": 20.0, "tiles": [tile(64, 8, 0), tile(64, 8, 1)] }),
                "stands there twice",
            ),
            ("/selftest/file", json!(".."), "plain file name"),
            ("/selftest/graph", json!("other.onnx"), "selftest.graph"),
            ("/selftest/tolerance", json!(-1.0), "selftest.tolerance"),
            ("/gates/0/graph", json!("other.onnx"), "gates"),
            ("/files/64x64.onnx/sha256", json!("00"), "64 lower-case"),
            ("/target/streams", json!(0), "target.streams"),
            (
                "/target/tensorrt",
                json!({ "trt_extra_plugin_lib_paths": "x" }),
                "not a provider option that an engine may set",
            ),
            ("/target/cuda", json!({ "use_tf32": "../x" }), "a word or a number"),
            ("/target/openvino", json!({ "CACHE_DIR": "x" }), "not a provider option that an engine may set"),
            ("/target/openvino", json!({ "INFERENCE_PRECISION_HINT": "f32 bf16" }), "a word or a number"),
            ("/files/tensorrt~1..~1x", json!({ "bytes": 1, "sha256": "0".repeat(64) }), "plain file name"),
            ("/files/tensorrt~1x", json!({ "bytes": 1, "sha256": "0".repeat(64) }), "plain file name"),
            ("/files/tensorrt-rtx~1..~1x", json!({ "bytes": 1, "sha256": "0".repeat(64) }), "plain file name"),
            ("/graphs/0/plan", plan("elsewhere.plan", "8.9"), "a file in tensorrt-rtx/ that is among files"),
            ("/graphs/0/plan", plan("tensorrt-rtx/x.plan", "8.9"), "found \"tensorrt-rtx/x.onnx\""),
            ("/graphs/0/any_size", json!(1), "expected a boolean"),
            ("/files/a~1b", json!({ "bytes": 1, "sha256": "0".repeat(64) }), "plain file name"),
        ];
        for (pointer, replacement, expected) in cases {
            let mut value = value(&[(64, 64)]);
            match value.pointer_mut(pointer) {
                Some(place) => *place = replacement,
                None => {
                    let (parent, key) = pointer.rsplit_once('/').unwrap();
                    value.pointer_mut(parent).unwrap()[key.replace("~1", "/")] = replacement;
                }
            }
            let error = chain(&Manifest::parse(value.to_string().as_bytes()).unwrap_err());
            assert!(error.contains(expected), "{pointer}: {error}");
        }
    }

    #[test]
    fn an_engine_has_the_name_of_its_directory() {
        assert_eq!(engine_name(Path::new("engines/x4")).unwrap(), "x4");
        for refused in ["", "engines/..", "engines/x4:2"] {
            assert!(engine_name(Path::new(refused)).is_err(), "{refused}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
            let _ = Manifest::parse(&bytes);
        }

        #[test]
        fn no_change_of_a_byte_makes_it_panic(position in 0_usize..2000, byte: u8) {
            let mut bytes = value(&[(64, 64)]).to_string().into_bytes();
            let position = position % bytes.len();
            bytes[position] = byte;
            let _ = Manifest::parse(&bytes);
        }
    }
}
