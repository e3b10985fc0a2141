//! The types of `manifest.json`, schema 1. `engine-builder` writes with these very types.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use crate::digest::FileDigest;
pub use crate::provider::Provider;
use crate::tile::Size;

/// The schema that this version reads and writes.
pub const SCHEMA: u32 = 1;

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
    /// How pixels become tensors and tensors pixels, of an engine that takes pictures; see [`Manifest::images`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<Interface>,
    /// What any other engine is: each has this or an interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub component: Option<Component>,
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

/// How pixels become tensors and tensors pixels. The architecture says it; nothing is guessed.
///
/// Input `[1, channels, height, width]`, output `[1, channels, height · scale, width · scale]`,
/// float32, values within [`Interface::range`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interface {
    /// What the model does.
    pub task: Task,
    /// Name of the input tensor.
    pub input: String,
    /// Name of the output tensor.
    pub output: String,
    /// Output pixels for each input pixel, along each axis: 1 to 64.
    pub scale: u32,
    /// Channels in and out: 1 (grey) or 3 (red, green, blue).
    pub channels: u32,
    /// The values of black and of white.
    pub range: [f32; 2],
    /// Input height and width are multiples of this.
    pub size_multiple: u32,
    /// Input height and width are at least this.
    pub size_minimum: u32,
    /// How an image that is smaller than a tile is extended.
    pub padding: Padding,
    /// How far from an input pixel the output still depends on it, in input pixels; `None` where
    /// that is unbounded or unknown.
    pub receptive_field: Option<u32>,
    /// The precisions that the architecture is known to keep its quality in.
    pub safe_precisions: Vec<Precision>,
}

/// What an engine of tensors is: a part of a system of several networks, which hands them on. Names and shapes are the
/// graphs'.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Component {
    /// What it does: anything but [`Task::Upscale`].
    pub task: Task,
    /// What else must be known, by the keys of docs/metadata.md without `tileforge.`: `scaling_factor`, `sequence`,
    /// `input.NAME`, …
    pub facts: BTreeMap<String, String>,
    /// The precisions that the architecture is known to keep its quality in.
    pub safe_precisions: Vec<Precision>,
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
    /// Input shapes by tensor name; of pictures `[batch, channels, height, width]`.
    pub inputs: BTreeMap<String, Vec<usize>>,
    /// Output shapes by tensor name; of pictures `[batch, channels, height, width]`.
    pub outputs: BTreeMap<String, Vec<usize>>,
    /// ONNX Runtime fused its operators offline, in ways that hold for any processor; memory layouts
    /// for the one at hand are still chosen on loading.
    pub optimised: bool,
}

impl Graph {
    /// Images in one run. Zero for a graph that does not go with `interface`, which [`Manifest::parse`] refuses.
    pub fn batch(&self, interface: &Interface) -> usize {
        self.inputs.get(&interface.input).and_then(|shape| shape.first()).copied().unwrap_or(0)
    }

    /// The tile's size in input pixels. Zero for a graph that does not go with `interface`, which
    /// [`Manifest::parse`] refuses.
    pub fn tile(&self, interface: &Interface) -> Size {
        let shape = self.inputs.get(&interface.input).map_or(&[][..], Vec::as_slice);
        let length = |axis: usize| shape.get(axis).and_then(|&length| u32::try_from(length).ok());
        Size { width: length(3).unwrap_or(0), height: length(2).unwrap_or(0) }
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

/// Known inputs and outputs; see [`crate::engine::selftest`].
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

/// Defines an enum whose values have one lower-case name, in JSON and in ONNX metadata.
macro_rules! named {
    ($(#[$about:meta])* $name:ident { $($(#[$value_about:meta])* $value:ident = $text:literal,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum $name { $($(#[$value_about])* #[serde(rename = $text)] $value,)+ }

        impl $name {
            /// Every value.
            pub const ALL: &[Self] = &[$(Self::$value),+];

            /// The name in manifests and in ONNX metadata.
            pub fn name(self) -> &'static str {
                match self { $(Self::$value => $text),+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(self.name())
            }
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                Self::ALL.iter().copied().find(|value| value.name() == text).ok_or_else(|| {
                    let names: Vec<_> = Self::ALL.iter().map(|value| value.name()).collect();
                    format!("expected one of {}, found \"{text}\"", names.join(", "))
                })
            }
        }
    };
}

named! {
    /// What a model does.
    Task {
        /// A picture to the same picture with more pixels (or cleaner ones, at scale 1).
        Upscale = "upscale",
        /// The noise in a noisy latent image, under the condition of a text.
        Unet = "unet",
        /// An image or a video to a latent one.
        VaeEncoder = "vae_encoder",
        /// A latent image or video to one of pixels.
        VaeDecoder = "vae_decoder",
        /// A text's tokens to what conditions an image.
        TextEncoder = "text_encoder",
        /// A picture to the depth of each of its pixels.
        Depth = "depth",
        /// A frame and the one before it to the frame that is shown.
        Realtime = "realtime",
    }
}

named! {
    /// How an image is extended beyond its edge.
    Padding {
        /// Mirrored, without repeating the edge pixel: `c b | a b c | b a`.
        Reflect = "reflect",
    }
}

named! {
    /// A number format of weights and activations.
    Precision {
        /// IEEE 754 binary32.
        Fp32 = "fp32",
        /// IEEE 754 binary16.
        Fp16 = "fp16",
        /// bfloat16.
        Bf16 = "bf16",
        /// 8-bit integers with scales.
        Int8 = "int8",
        /// 8-bit floats (E4M3) with scales.
        Fp8 = "fp8",
    }
}

impl Precision {
    /// The least compute capability of GPUs that compute in it, `(major, minor)`: what tensor cores multiply by compute
    /// capability is in the CUDA programming guide, and TensorRT 10 and CUDA 13 begin with Turing.
    pub fn least_capability(self) -> (u32, u32) {
        match self {
            Self::Fp8 => (8, 9),
            Self::Bf16 => (8, 0),
            Self::Fp32 | Self::Fp16 | Self::Int8 => (7, 5),
        }
    }

    /// Whether ONNX Runtime's CPU kernels compute in it.
    pub fn runs_on_cpu(self) -> bool {
        matches!(self, Self::Fp32 | Self::Fp16 | Self::Int8)
    }
}
