//! The rules of schema 1. Nothing here touches the file system.

use std::collections::BTreeMap;
use std::path::{self, Path};

use serde::Deserialize;

use super::manifest::{Component, Graph, Interface, Manifest, SCHEMA, Target, Task};
use crate::compiled;
use crate::error::{Error, Result};

/// Longest side of a tile, in input pixels.
const TILE_MAXIMUM: usize = 1 << 14;

/// Largest tensor of a graph's interface, in elements: 2 GiB of float32.
const TENSOR_MAXIMUM: usize = 1 << 29;

/// Most images in one run.
const BATCH_MAXIMUM: usize = 64;

/// Most sessions that run at the same time.
const STREAMS_MAXIMUM: u32 = 16;

/// What a manifest may give to providers. Not among them are paths, of libraries for one.
const PROVIDER_OPTIONS: [&str; 14] = [
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
];

/// Longest reach of a receptive field that is not "unbounded", in input pixels.
const RECEPTIVE_FIELD_MAXIMUM: u32 = 1 << 14;

impl Manifest {
    /// Reads a manifest and checks every rule that can be checked without the files.
    ///
    /// Never panics, whatever the bytes are.
    ///
    /// # Errors
    /// [`Error::Manifest`] with the first rule that is broken.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        /// Read first, so that a newer schema is not reported as an unknown field.
        #[derive(Deserialize)]
        struct Schema {
            schema: u32,
        }
        let broken = |error: serde_json::Error| Error::Manifest(format!("not a manifest: {error}"));
        let Schema { schema } = serde_json::from_slice(bytes).map_err(broken)?;
        if schema != SCHEMA {
            return Err(Error::Manifest(format!(
                "expected schema {SCHEMA}, found {schema}; use the runtime of the release that built the engine"
            )));
        }
        let manifest: Self = serde_json::from_slice(bytes).map_err(broken)?;
        manifest.validate()?;
        Ok(manifest)
    }

    /// Checks the rules that [`Manifest::parse`] checks, on a manifest made in memory.
    ///
    /// # Errors
    /// [`Error::Manifest`] with the first rule that is broken.
    pub fn validate(&self) -> Result<()> {
        rule(self.schema == SCHEMA, || format!("schema: expected {SCHEMA}, found {}", self.schema))?;
        plain_name(&self.name)?;
        match (&self.interface, &self.component) {
            (Some(interface), None) => interface.validate()?,
            (None, Some(component)) => component.validate()?,
            (Some(_), Some(_)) => rule(false, || "expected an interface or a component, found both".into())?,
            (None, None) => rule(false, || "expected an interface or a component, found neither".into())?,
        }
        for (name, digest) in &self.files {
            match compiled_name(name) {
                Some(parts) => parts.split('/').try_for_each(plain_name)?,
                None => plain_name(name)?,
            }
            let sound = digest.sha256.len() == 64
                && digest.sha256.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
            rule(sound, || format!("files.{name}.sha256: expected 64 lower-case hexadecimal digits"))?;
        }
        rule(!self.graphs.is_empty(), || "graphs: expected at least one, found none".into())?;
        for graph in &self.graphs {
            self.listed("graphs", &graph.file)?;
            match &self.interface {
                Some(interface) => graph.validate(interface)?,
                None => graph.validate_tensors()?,
            }
        }
        self.listed("selftest.file", &self.selftest.file)?;
        self.graph_exists("selftest.graph", &self.selftest.graph)?;
        let tolerance = self.selftest.tolerance;
        rule(tolerance.is_finite() && tolerance >= 0.0, || {
            format!("selftest.tolerance: expected a number of at least 0, found {tolerance}")
        })?;
        let Target { streams, tensorrt, cuda, .. } = &self.target;
        rule((1..=STREAMS_MAXIMUM).contains(streams), || {
            format!("target.streams: expected 1 to {STREAMS_MAXIMUM}, found {streams}")
        })?;
        for (name, value) in tensorrt.iter().chain(cuda) {
            rule(PROVIDER_OPTIONS.contains(&name.as_str()), || {
                format!("target: \"{}\" is no option that an engine may ask for", name.escape_debug())
            })?;
            let sound = !value.is_empty()
                && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
            rule(sound, || {
                format!("target: expected a word or a number for {name}, found \"{}\"", value.escape_debug())
            })?;
        }
        self.gates.iter().try_for_each(|gate| self.graph_exists("gates", &gate.graph))
    }

    /// How pictures go through the engine.
    ///
    /// # Errors
    /// [`Error::Manifest`]: it is one of tensors.
    pub fn images(&self) -> Result<&Interface> {
        let what = self.component.as_ref().map_or("no upscaler", |component| component.task.name());
        self.interface.as_ref().ok_or_else(|| {
            Error::Manifest(format!(
                "{}: expected an engine of task upscale, found {what}: its tensors are those of a program that runs the whole system; \
                 `runtime verify` runs its self-test",
                self.name
            ))
        })
    }

    fn listed(&self, key: &str, file: &str) -> Result<()> {
        plain_name(file)?;
        rule(self.files.contains_key(file), || format!("{key}: \"{file}\" is not among files"))
    }

    fn graph_exists(&self, key: &str, file: &str) -> Result<()> {
        let exists = self.graphs.iter().any(|graph| graph.file == file);
        rule(exists, || format!("{key}: \"{file}\" is not among graphs"))
    }
}

impl Interface {
    /// Checks that every value is within its documented bounds.
    ///
    /// # Errors
    /// [`Error::Manifest`] with the first rule that is broken.
    pub fn validate(&self) -> Result<()> {
        let within = |key: &str, value: u32, low: u32, high: u32| {
            rule((low..=high).contains(&value), || format!("interface.{key}: expected {low} to {high}, found {value}"))
        };
        rule(self.task == Task::Upscale, || format!("interface.task: expected upscale, found {}", self.task))?;
        within("scale", self.scale, 1, 64)?;
        rule(matches!(self.channels, 1 | 3), || {
            format!("interface.channels: expected 1 or 3, found {}", self.channels)
        })?;
        let [low, high] = self.range;
        rule(low.is_finite() && high.is_finite() && low < high && (high - low).is_finite(), || {
            format!("interface.range: expected two numbers in ascending order, found {low} and {high}")
        })?;
        within("size_multiple", self.size_multiple, 1, TILE_MAXIMUM as u32)?;
        within("size_minimum", self.size_minimum, 1, TILE_MAXIMUM as u32)?;
        within("receptive_field", self.receptive_field.unwrap_or(0), 0, RECEPTIVE_FIELD_MAXIMUM)?;
        rule(!self.input.is_empty() && !self.output.is_empty(), || {
            "interface: expected names for input and output, found an empty one".into()
        })
    }
}

impl Component {
    /// Checks that it is no upscaler, which has an interface.
    ///
    /// # Errors
    /// [`Error::Manifest`] if it is.
    pub fn validate(&self) -> Result<()> {
        rule(self.task != Task::Upscale, || {
            "component.task: expected another task than upscale, which has an interface".into()
        })
    }
}

impl Graph {
    /// That there are inputs and outputs, none of them too large.
    fn validate_tensors(&self) -> Result<()> {
        for (key, tensors) in [("inputs", &self.inputs), ("outputs", &self.outputs)] {
            rule(!tensors.is_empty(), || format!("graphs.{}.{key}: expected at least one, found none", self.file))?;
            for (name, shape) in tensors {
                let elements = shape.iter().try_fold(1_usize, |product, size| product.checked_mul(*size));
                rule(
                    !name.is_empty() && elements.is_some_and(|elements| (1..=TENSOR_MAXIMUM).contains(&elements)),
                    || {
                        format!(
                            "graphs.{}.{key}: expected 1 to {TENSOR_MAXIMUM} elements, found \"{name}\" of {shape:?}",
                            self.file
                        )
                    },
                )?;
            }
        }
        Ok(())
    }

    fn validate(&self, interface: &Interface) -> Result<()> {
        let input = only(&self.file, "inputs", &self.inputs, &interface.input)?;
        let output = only(&self.file, "outputs", &self.outputs, &interface.output)?;
        let channels = interface.channels as usize;
        let scale = interface.scale as usize;
        let expected = || self.shape(input, &format!("[batch of 1 to {BATCH_MAXIMUM}, {channels}, height, width]"));
        let &[batch, found, height, width] = input else { return Err(expected()) };
        if found != channels || !(1..=BATCH_MAXIMUM).contains(&batch) {
            return Err(expected());
        }
        let (multiple, minimum) = (interface.size_multiple as usize, interface.size_minimum as usize);
        let fits = |length: usize| (minimum.max(1)..=TILE_MAXIMUM).contains(&length) && length.is_multiple_of(multiple);
        rule(fits(height) && fits(width), || {
            format!(
                "graphs.{}: expected height and width of {minimum} to {TILE_MAXIMUM} and multiples of \
                 {multiple}, found {height} and {width}",
                self.file
            )
        })?;
        // Both factors are bounded by now, so that nothing overflows.
        let expected = [batch, channels, height * scale, width * scale];
        if output != expected {
            return Err(self.shape(output, &format!("{expected:?} for the output")));
        }
        rule(expected.iter().product::<usize>() <= TENSOR_MAXIMUM, || {
            format!("graphs.{}: expected at most {TENSOR_MAXIMUM} elements, found {expected:?}", self.file)
        })
    }

    fn shape(&self, found: &[usize], expected: &str) -> Error {
        Error::Manifest(format!("graphs.{}: expected shape {expected}, found {found:?}", self.file))
    }
}

/// The shape of the one tensor that a graph has, under the interface's name.
fn only<'g>(file: &str, key: &str, tensors: &'g BTreeMap<String, Vec<usize>>, name: &str) -> Result<&'g [usize]> {
    match tensors.get(name) {
        Some(shape) if tensors.len() == 1 => Ok(shape),
        _ => Err(Error::Manifest(format!(
            "graphs.{file}.{key}: expected \"{name}\" alone, found {:?}",
            tensors.keys().collect::<Vec<_>>()
        ))),
    }
}

/// The part behind `tensorrt/` of a file that TensorRT compiled, which is in a folder of its own.
fn compiled_name(name: &str) -> Option<&str> {
    name.strip_prefix(compiled::FOLDER)?.strip_prefix('/').filter(|rest| rest.matches('/').count() == 1)
}

/// A file name that stays in its directory on every system.
fn plain_name(name: &str) -> Result<()> {
    let mut parts = Path::new(name).components();
    let plain = matches!(parts.next(), Some(path::Component::Normal(part)) if part == name)
        && parts.next().is_none()
        && !name.contains(['/', '\\', ':', '\0']);
    rule(plain, || format!("files: expected a plain file name, found \"{}\"", name.escape_debug()))
}

fn rule(holds: bool, otherwise: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::Manifest(otherwise())) }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn value(tiles: &[(usize, usize)]) -> Value {
        let digest = json!({ "bytes": 1, "sha256": "0".repeat(64) });
        let name = |&(width, height): &(usize, usize)| format!("{width}x{height}.onnx");
        let graphs: Vec<_> = tiles
            .iter()
            .map(|tile| {
                json!({
                    "file": name(tile), "optimised": false,
                    "inputs": { "input": [1, 3, tile.1, tile.0] },
                    "outputs": { "output": [1, 3, tile.1 * 4, tile.0 * 4] },
                })
            })
            .collect();
        let mut files: serde_json::Map<_, _> = tiles.iter().map(|tile| (name(tile), digest.clone())).collect();
        files.insert("selftest.safetensors".into(), digest);
        json!({
            "schema": 1, "name": "compact-x4", "producer": "engine-builder 0.1.0",
            "model": {
                "architecture": "compact", "licence": null, "checkpoint_sha256": null,
                "graph_sha256": "0".repeat(64), "parameters": 1,
            },
            "interface": {
                "task": "upscale", "input": "input", "output": "output", "scale": 4, "channels": 3,
                "range": [0.0, 1.0], "size_multiple": 1, "size_minimum": 1, "padding": "reflect",
                "receptive_field": 18, "safe_precisions": ["fp32", "fp16"],
            },
            "precision": "fp32",
            "target": { "profile": "cpu", "provider": "cpu", "compute_capability": null },
            "built_with": { "onnxruntime": "1.31.1", "operating_system": "linux", "processor": "x86_64" },
            "graphs": graphs,
            "gates": [{ "name": "finite", "graph": name(&tiles[0]), "value": 1.0, "floor": 1.0 }],
            "selftest": { "file": "selftest.safetensors", "graph": name(&tiles[0]), "tolerance": 1e-3 },
            "files": files,
        })
    }

    pub(crate) fn manifest(tiles: &[(usize, usize)]) -> Manifest {
        Manifest::parse(value(tiles).to_string().as_bytes()).unwrap()
    }

    #[test]
    fn a_manifest_survives_the_round_trip() {
        let first = manifest(&[(64, 64), (256, 256)]);
        let again = Manifest::parse(&serde_json::to_vec_pretty(&first).unwrap()).unwrap();
        assert_eq!(first, again);
    }

    #[test]
    fn each_broken_rule_is_named() {
        let cases = [
            ("/schema", json!(2), "expected schema 1, found 2"),
            ("/unknown", json!(0), "unknown field"),
            ("/name", json!("../compact"), "plain file name"),
            ("/interface/scale", json!(0), "interface.scale"),
            ("/interface/scale", json!(65), "interface.scale"),
            ("/interface/channels", json!(4), "interface.channels"),
            ("/interface/range", json!([1.0, 0.0]), "interface.range"),
            ("/interface/range", json!([-3e38, 3e38]), "interface.range"),
            ("/interface/size_multiple", json!(0), "interface.size_multiple"),
            ("/interface/size_minimum", json!(65), "graphs.64x64.onnx"),
            ("/interface/output", json!("other"), "graphs.64x64.onnx.outputs"),
            ("/graphs", json!([]), "at least one"),
            ("/graphs/0/inputs/input", json!([1, 3, 64]), "expected shape"),
            ("/graphs/0/inputs/input", json!([2, 3, 64, 64]), "expected shape"),
            ("/graphs/0/inputs/input", json!([1, 3, u64::MAX, 64]), "height and width"),
            ("/graphs/0/outputs/output", json!([1, 3, 256, 255]), "for the output"),
            ("/graphs/0/file", json!("../64x64.onnx"), "plain file name"),
            ("/graphs/0/file", json!("other.onnx"), "not among files"),
            ("/selftest/file", json!(".."), "plain file name"),
            ("/selftest/graph", json!("other.onnx"), "selftest.graph"),
            ("/selftest/tolerance", json!(-1.0), "selftest.tolerance"),
            ("/gates/0/graph", json!("other.onnx"), "gates"),
            ("/files/64x64.onnx/sha256", json!("00"), "64 lower-case"),
            ("/target/streams", json!(0), "target.streams"),
            ("/target/tensorrt", json!({ "trt_extra_plugin_lib_paths": "x" }), "no option that an engine may ask for"),
            ("/target/cuda", json!({ "use_tf32": "../x" }), "a word or a number"),
            ("/files/tensorrt~1..~1x", json!({ "bytes": 1, "sha256": "0".repeat(64) }), "plain file name"),
            ("/files/tensorrt~1x", json!({ "bytes": 1, "sha256": "0".repeat(64) }), "plain file name"),
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
            let error = Manifest::parse(value.to_string().as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected), "{pointer}: {error}");
        }
    }

    /// The manifest of an engine of tensors.
    fn component() -> Value {
        let mut value = value(&[(64, 64)]);
        let manifest = value.as_object_mut().unwrap();
        manifest.remove("interface");
        let facts = json!({ "size_multiple": "8" });
        manifest.insert("component".into(), json!({ "task": "unet", "facts": facts, "safe_precisions": ["fp32"] }));
        value["graphs"][0]["inputs"] = json!({ "sample": [2, 4, 64, 64], "timestep": [] });
        value["graphs"][0]["outputs"] = json!({ "out_sample": [2, 4, 64, 64] });
        value
    }

    #[test]
    fn an_engine_of_tensors_is_no_upscaler() {
        let parse = |value: &Value| Manifest::parse(value.to_string().as_bytes());
        let error = parse(&component()).unwrap().images().unwrap_err().to_string();
        assert!(
            error.contains("expected an engine of task upscale, found unet") && error.contains("runtime verify"),
            "{error}"
        );
        for (pointer, replacement, expected) in [
            ("/component/task", json!("upscale"), "component.task"),
            ("/component/task", json!("sing"), "unknown variant"),
            ("/graphs/0/inputs", json!({}), "graphs.64x64.onnx.inputs: expected at least one"),
            ("/graphs/0/outputs/out_sample", json!([u64::MAX, 2]), "graphs.64x64.onnx.outputs"),
            ("/graphs/0/inputs/sample", json!([0, 4]), "graphs.64x64.onnx.inputs"),
        ] {
            let mut value = component();
            *value.pointer_mut(pointer).unwrap() = replacement;
            let error = parse(&value).unwrap_err().to_string();
            assert!(error.contains(expected), "{pointer}: {error}");
        }
        let mut both = component();
        both["interface"] = value(&[(64, 64)])["interface"].clone();
        assert!(parse(&both).unwrap_err().to_string().contains("found both"));
        both.as_object_mut().unwrap().retain(|key, _| key != "interface" && key != "component");
        assert!(parse(&both).unwrap_err().to_string().contains("found neither"));
    }

    #[test]
    fn names_that_leave_the_directory_are_refused() {
        for name in ["", ".", "..", "a/b", "/a", "a/", "a\\b", "c:a", "a\0"] {
            assert!(plain_name(name).is_err(), "{name:?}");
        }
        for name in ["a", "model.weights", ".a", "..a", "tile 64.onnx"] {
            assert!(plain_name(name).is_ok(), "{name:?}");
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
