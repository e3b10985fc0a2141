//! The types of `manifest.json`, schema 2. `engine-builder` writes with the same types.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tileforge_contract::{Contract, Precision, Provider, Shapes, Sizes};

pub use crate::digest::FileDigest;
use crate::error::Result;
pub use crate::recipe::{
    Adaptation, CalibrationRecipe, DiffusionRecipe, FolderRecipe, ForeignRecipe, ProfileRecipe, Recipe,
};
use crate::signature::SIGNATURE_FILE;
pub use crate::tiling::{MeasuredTile, Tiling};

/// The folder of compiled graphs in an engine's directory.
pub const COMPILED_FOLDER: &str = "tensorrt";

/// The name of the manifest in an engine directory.
pub const MANIFEST_FILE: &str = "manifest.json";

/// Larger manifests are refused without being read.
pub const MANIFEST_MAXIMUM_BYTES: u64 = 16 << 20;

/// The schema that this version reads and writes.
pub const SCHEMA: u32 = 2;

/// What an engine is, what it needs, and which gates it passed. Read it with [`Manifest::parse`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Must be [`SCHEMA`].
    pub schema: u32,
    /// The engine's name: its directory's name when it was built.
    pub name: String,
    /// The program that wrote it, such as "engine-builder 0.1.0".
    pub producer: String,
    /// What was requested for the build, to repeat it; `None` in parts: the pipeline's manifest has the recipe for all
    /// of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recipe: Option<Box<Recipe>>,
    /// The model.
    pub model: Model,
    /// What the model promises: its task, its tensors and what their values mean.
    pub contract: Contract,
    /// The precision of most weights and activations.
    pub precision: Precision,
    /// FP16: names of the nodes that compute in FP32 because FP16 cannot represent their values. INT8 and FP8: names
    /// of the layers that are not in 8 bits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub islands: Vec<String>,
    /// What activations were measured on, if the precision needs that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Calibration>,
    /// What the build did not run because its calibration budget ended; `None` if it ran everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<LeftOut>,
    /// The machine that it was built for.
    pub target: Target,
    /// The software that it was built with.
    pub built_with: BuiltWith,
    /// One graph for each tile shape, or one for all shapes.
    pub graphs: Vec<Graph>,
    /// The gates that it passed, with figures.
    pub gates: Vec<Gate>,
    /// Whether a sample's results have the same bytes in every batch, on any number of threads: the builder compared
    /// batches with single samples on ONNX Runtime's CPU kernels. `None` if it did not: no graph takes several
    /// samples, the engine is for another provider or for clips, or its builder is older.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batches_change_no_byte: Option<bool>,
    /// How well its tiles join, if that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tiling: Option<Tiling>,
    /// The self-test.
    pub selftest: SelfTest,
    /// Every other file of the directory, by name. Files that TensorRT compiled have names `tensorrt/KEY/NAME`, plans
    /// for RTX GPUs `tensorrt-rtx/NAME`, and files that a GPU added to a plan `tensorrt-rtx/KEY/NAME`.
    pub files: BTreeMap<String, FileDigest>,
}

impl Manifest {
    /// Whether a file of this name belongs to the engine's directory: a file that the manifest lists, the manifest, or
    /// its signature.
    pub fn has_file(&self, name: &str) -> bool {
        [MANIFEST_FILE, SIGNATURE_FILE].contains(&name) || self.files.contains_key(name)
    }

    /// Whether its graph was made of an ONNX file that another program wrote.
    pub fn is_foreign(&self) -> bool {
        // Such a file is built only with words about what it does.
        self.recipe.as_ref().is_some_and(|recipe| !recipe.foreign.is_empty())
    }
}

/// The model of an engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// The architecture's name, such as "compact".
    pub architecture: String,
    /// The licence of the weights, as an SPDX expression if there is one.
    pub licence: Option<String>,
    /// SHA-256 of the checkpoint.
    pub checkpoint_sha256: Option<String>,
    /// SHA-256 of the graph that the engine was built from.
    pub graph_sha256: String,
    /// Number of trained parameters.
    pub parameters: u64,
}

/// The samples that the ranges of activations were measured on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// Where samples came from: "folder", "built-in pictures" or "random tensors".
    pub source: String,
    /// Number of pictures that tiles were drawn from, or of tensor files.
    pub pictures: usize,
    /// Number of tiles, or of sets of tensors.
    pub tiles: usize,
    /// SHA-256 over the values of all tiles.
    pub sha256: String,
    /// How INT8 ranges were chosen: "minmax", "percentile", "entropy" or "mse".
    pub range: Option<String>,
}

/// What calibration and gates did not run, because the network is large and the calibration budget small.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeftOut {
    /// The budget in minutes. Each minute stands for a fixed number of operations.
    pub budget_minutes: u32,
    /// Omitted runs of the smallest graph, which would have measured more activations.
    pub calibration_runs: usize,
    /// Calibration samples that the gates did not judge.
    pub judged: usize,
    /// Files of the graphs without gates of their own.
    pub graphs: Vec<String>,
}

impl LeftOut {
    /// Whether anything was left out.
    pub fn is_something(&self) -> bool {
        self.calibration_runs > 0 || self.judged > 0 || !self.graphs.is_empty()
    }
}

/// The machine that an engine was built for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// Name of the profile.
    pub profile: String,
    /// The execution provider.
    pub provider: Provider,
    /// The GPU's compute capability, such as "8.9"; `None` for a CPU, and for GPUs of several capabilities.
    pub compute_capability: Option<String>,
    /// Whether nothing in the engine is compiled, because it was built on a machine without its GPU.
    #[serde(default, skip_serializing_if = "is_false")]
    pub portable: bool,
    /// Number of sessions that run at the same time, unless the user chooses another number.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub streams: u32,
    /// Options for ONNX Runtime's TensorRT-RTX provider, by the provider's names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tensorrt_rtx: BTreeMap<String, String>,
    /// Options for ONNX Runtime's TensorRT provider, by the provider's names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tensorrt: BTreeMap<String, String>,
    /// Options for ONNX Runtime's CUDA provider, by the provider's names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cuda: BTreeMap<String, String>,
    /// Options for OpenVINO, by OpenVINO's names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub openvino: BTreeMap<String, String>,
}

fn one() -> u32 {
    1
}

/// The default is not written.
fn is_one(value: &u32) -> bool {
    *value == 1
}

/// The default is not written.
fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

/// The default is not written.
fn is_false(value: &bool) -> bool {
    !value
}

/// The software that an engine was built with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BuiltWith {
    /// Version of ONNX Runtime.
    pub onnxruntime: String,
    /// Release of OpenVINO, if the engine was built for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub openvino: Option<String>,
    /// The operating system, such as "linux".
    pub operating_system: String,
    /// The processor's architecture, such as "x86_64".
    pub processor: String,
}

/// One graph of an engine: one tile shape, or the largest of many.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Graph {
    /// The ONNX file, a plain name.
    pub file: String,
    /// Input shapes by tensor name.
    pub inputs: Shapes,
    /// Output shapes by tensor name.
    pub outputs: Shapes,
    /// Whether its height and width are free: it takes every size that the contract allows, up to the number of pixels
    /// of `inputs`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub any_size: bool,
    /// Whether its number of samples is free: it takes any number from one up to the batch of `inputs`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub any_batch: bool,
    /// The most bytes that opening or a run takes beside the weights. The builder measured them with ONNX Runtime on
    /// its processor, or estimated them from the graph's shapes. `None` in engines of older builders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values_bytes: Option<u64>,
    /// The same with one sample, if the number of samples is free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values_bytes_of_one: Option<u64>,
    /// The bytes that our own kernels hold in an open session beside that at most: weights in another form, and the
    /// scratch memory of one thread. Zero: the gates were not measured with them, so they are not used.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub kernels_bytes: u64,
    /// Whether ONNX Runtime fused its operators offline, in ways that are valid for any processor. Memory layouts are
    /// still chosen on loading.
    pub optimised: bool,
    /// The plan that TensorRT for RTX built from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Plan>,
}

/// A graph's plan for RTX GPUs. Its digest is among [`Manifest::files`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The ONNX file with the EPContext node that names the plan, in the folder [`Plan::FOLDER`].
    pub context: String,
    /// The plan, in the same folder.
    pub file: String,
    /// The release of TensorRT for RTX that built it, such as "1.7.1.116". No other release runs it.
    pub library: String,
    /// The compute capabilities that it was built for, such as "8.9".
    pub compute_capabilities: Vec<String>,
    /// The costs of a run, from the plan's own data; `None` if they are not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub figures: Option<PlanFigures>,
}

/// The costs of a run of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanFigures {
    /// Number of kernels that run in sequence.
    pub kernels: u64,
    /// Bytes that they read and write.
    pub moved_bytes: u64,
    /// Multiply-add operations of convolutions, matrix products and attention, as far as they are known.
    pub multiply_adds: u64,
    /// Bytes of GPU memory for activations, without inputs and outputs.
    pub activation_bytes: u64,
    /// Bytes of GPU memory for weights.
    pub weight_bytes: u64,
    /// The least microseconds of a run on the profile's GPU, calculated from the GPU's rates and not measured; `None`
    /// if the rates are not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least_microseconds: Option<u64>,
}

impl PlanFigures {
    /// Bytes of GPU memory that a session takes.
    pub fn memory_bytes(&self) -> u64 {
        self.weight_bytes.saturating_add(self.activation_bytes)
    }
}

impl Plan {
    /// The folder of plans in an engine's directory.
    pub const FOLDER: &str = "tensorrt-rtx";
}

impl Graph {
    /// The batch, height, width, frames and tokens of the graph's tensors.
    ///
    /// # Errors
    /// [`crate::Error::Contract`]: the shapes break the contract. [`Manifest::parse`] refuses such
    /// manifests.
    pub fn sizes(&self, contract: &Contract) -> Result<Sizes> {
        Ok(contract.check(&self.inputs, &self.outputs)?)
    }
}

/// A gate that the engine passed when it was built.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gate {
    /// The gate's name, such as "finite" or "psnr_db".
    pub name: String,
    /// What was measured: the file name of a graph, or in the manifest of a pipeline [`Gate::PICTURE`].
    pub graph: String,
    /// The measured figure.
    pub value: f64,
    /// The least figure that passes.
    pub floor: f64,
}

impl Gate {
    /// Replaces the graph's name where the gate measured a picture that all parts of a pipeline made together.
    pub const PICTURE: &str = "picture";
}

/// Known inputs and outputs: tensors `input.NAME` and `expected.NAME`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SelfTest {
    /// The safetensors file, a plain name.
    pub file: String,
    /// File name of the graph to run.
    pub graph: String,
    /// Largest absolute error that passes, as a fraction of the expected output's range.
    pub tolerance: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_read_as_it_was_written() {
        // A faster, less exact number parser reads this number as its neighbour.
        let gate =
            Gate { name: "cosine".into(), graph: "model.onnx".into(), value: 0.9999999999999828, floor: 0.999_999 };
        let written = serde_json::to_string(&gate).unwrap();
        assert_eq!(serde_json::from_str::<Gate>(&written).unwrap(), gate, "{written}");
    }

    #[test]
    fn runs_samples_and_graphs_are_something_that_is_left_out() {
        let nothing = LeftOut { budget_minutes: 5, ..LeftOut::default() };
        assert!(!nothing.is_something());
        for something in [
            LeftOut { calibration_runs: 1, ..nothing.clone() },
            LeftOut { judged: 1, ..nothing.clone() },
            LeftOut { graphs: vec!["64x64.onnx".into()], ..nothing.clone() },
        ] {
            assert!(something.is_something(), "{something:?}");
        }
    }
}
