//! The types of `manifest.json`, schema 2. `engine-builder` writes with these very types.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tileforge_contract::{Contract, Precision, Provider, Shapes, Sizes};

use crate::Result;
pub use crate::digest::FileDigest;

/// The schema that this version reads and writes.
pub const SCHEMA: u32 = 2;

/// What an engine is, what it needs and what it proved. Read with [`Manifest::parse`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The engine's name; also that of its directory when it was built.
    pub name: String,
    /// What wrote it, such as "engine-builder 0.1.0".
    pub producer: String,
    /// The model that it came from.
    pub model: Model,
    /// What the model promises: its task, its tensors and what their values mean.
    pub contract: Contract,
    /// The precision of most weights and activations.
    pub precision: Precision,
    /// Names of the nodes that compute in FP32 although the engine does not; of INT8 and FP8, the layers that are not
    /// in 8 bits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub islands: Vec<String>,
    /// What activations were measured on, where the precision depends on that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Calibration>,
    /// What it was built for.
    pub target: Target,
    /// What it was built with.
    pub built_with: BuiltWith,
    /// One graph for each tile shape.
    pub graphs: Vec<Graph>,
    /// The gates that it passed, with their figures.
    pub gates: Vec<Gate>,
    /// Known inputs and outputs.
    pub selftest: SelfTest,
    /// Every other file of the directory, by name; those that TensorRT compiled as `tensorrt/KEY/NAME`.
    pub files: BTreeMap<String, FileDigest>,
}

/// The model of an engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// The architecture's name, such as "compact".
    pub architecture: String,
    /// The licence of the weights, as an SPDX expression where there is one.
    pub licence: Option<String>,
    /// SHA-256 of the checkpoint.
    pub checkpoint_sha256: Option<String>,
    /// SHA-256 of the graph that the engine was built from.
    pub graph_sha256: String,
    /// Number of trained parameters.
    pub parameters: u64,
}

/// What the ranges of activations were measured on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// "folder", "built-in test image" or "random tensors".
    pub source: String,
    /// Number of pictures that tiles were drawn from, or of files with tensors.
    pub pictures: usize,
    /// Number of tiles, or of sets of tensors.
    pub tiles: usize,
    /// SHA-256 of all tiles' values.
    pub sha256: String,
    /// How ranges were chosen for INT8: "minmax", "percentile", "entropy" or "mse".
    pub range: Option<String>,
}

/// What an engine was built for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// Name of the profile.
    pub profile: String,
    /// What executes it.
    pub provider: Provider,
    /// The GPU's compute capability, such as "8.9"; `None` for a CPU.
    pub compute_capability: Option<String>,
    /// Nothing in it was compiled for a GPU: it was built on a machine without the one that it is for.
    #[serde(default, skip_serializing_if = "is_false")]
    pub portable: bool,
    /// Sessions that run at the same time, where the user does not choose.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub streams: u32,
    /// What ONNX Runtime's TensorRT provider is given, by its own names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tensorrt: BTreeMap<String, String>,
    /// What ONNX Runtime's CUDA provider is given, by its own names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cuda: BTreeMap<String, String>,
}

fn one() -> u32 {
    1
}

/// What is mostly so is not written.
fn is_one(value: &u32) -> bool {
    *value == 1
}

/// What is seldom true is not written.
fn is_false(value: &bool) -> bool {
    !value
}

/// What an engine was built with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BuiltWith {
    /// Version of ONNX Runtime.
    pub onnxruntime: String,
    /// Such as "linux".
    pub operating_system: String,
    /// Such as "x86_64".
    pub processor: String,
}

/// One graph of an engine: one tile shape.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Graph {
    /// The ONNX file, a plain name.
    pub file: String,
    /// Input shapes by tensor name.
    pub inputs: Shapes,
    /// Output shapes by tensor name.
    pub outputs: Shapes,
    /// ONNX Runtime fused its operators offline, in ways that hold for any processor; memory layouts
    /// for the one at hand are still chosen on loading.
    pub optimised: bool,
}

impl Graph {
    /// The batch, height, width, frames and tokens of the graph's tensors.
    ///
    /// # Errors
    /// [`Error::Contract`](crate::Error::Contract): the shapes do not keep the contract, which [`Manifest::parse`] refuses.
    pub fn sizes(&self, contract: &Contract) -> Result<Sizes> {
        Ok(contract.check(&self.inputs, &self.outputs)?)
    }
}

/// A gate that the engine passed when it was built.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gate {
    /// Such as "finite" or "psnr_db".
    pub name: String,
    /// File name of the graph that was measured.
    pub graph: String,
    /// What was measured.
    pub value: f64,
    /// What it had to reach.
    pub floor: f64,
}

/// Known inputs and outputs; inputs as `input.NAME`, expected outputs as `expected.NAME`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SelfTest {
    /// The safetensors file, a plain name.
    pub file: String,
    /// File name of the graph that it is for.
    pub graph: String,
    /// Largest absolute error that passes, as a fraction of the expected output's range.
    pub tolerance: f64,
}
