//! What a graph promises to whoever runs it.
//!
//! An architecture states its contract once; it travels as metadata of the ONNX file (`tileforge.*`) into the engine's manifest, and
//! the runtime acts on it. docs/metadata.md describes every key.

use std::collections::BTreeMap;
use std::fmt;

/// What a network does with its input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// An image to an image, `scale` times as large (1 for restoration).
    Upscale,
}

/// How an image is extended to a size that the network takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Padding {
    /// Mirrored at the last pixel, which is not repeated.
    Reflect,
}

/// An arithmetic that a network can compute in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Precision {
    /// 32-bit floats.
    Fp32,
    /// 16-bit floats, IEEE.
    Fp16,
    /// The upper half of 32-bit floats.
    Bf16,
}

/// How far a pixel of the output sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceptiveField {
    /// At most this many input pixels in each direction.
    Radius(usize),
    /// The whole image.
    Unbounded,
}

/// Everything that the runtime must know of a network that maps an image to an image.
#[derive(Debug, Clone, PartialEq)]
pub struct Contract {
    /// What it does.
    pub task: Task,
    /// Name of the graph's input: an image `[batch, channels, height, width]`.
    pub input: &'static str,
    /// Name of the graph's output: an image `[batch, channels, height · scale, width · scale]`.
    pub output: &'static str,
    /// Output pixels for each input pixel, in each direction.
    pub scale: usize,
    /// Channels of the input and of the output: 3 for RGB, 1 for grey.
    pub channels: usize,
    /// Smallest and largest sample value, in and out.
    pub range: (f32, f32),
    /// Heights and widths must be multiples of this.
    pub size_multiple: usize,
    /// Smallest height and width.
    pub size_minimum: usize,
    /// How smaller or unfitting images are extended.
    pub padding: Padding,
    /// How far an output pixel sees: tiles that overlap by twice this give the same pixels as the whole image.
    pub receptive_field: ReceptiveField,
    /// Arithmetics in which the whole network is known to keep its quality.
    pub safe_precisions: &'static [Precision],
}

impl Contract {
    /// The contract as metadata of an ONNX file.
    pub fn metadata(&self) -> BTreeMap<String, String> {
        let precisions: Vec<String> = self.safe_precisions.iter().map(ToString::to_string).collect();
        let pairs = [
            ("task", self.task.to_string()),
            ("input", self.input.into()),
            ("output", self.output.into()),
            ("scale", self.scale.to_string()),
            ("channels", self.channels.to_string()),
            ("range", format!("{}..{}", self.range.0, self.range.1)),
            ("size_multiple", self.size_multiple.to_string()),
            ("size_minimum", self.size_minimum.to_string()),
            ("padding", self.padding.to_string()),
            ("receptive_field", self.receptive_field.to_string()),
            ("safe_precisions", precisions.join(",")),
        ];
        pairs.into_iter().map(|(key, value)| (format!("tileforge.{key}"), value)).collect()
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Task::Upscale => "upscale",
        })
    }
}

impl fmt::Display for Padding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Padding::Reflect => "reflect",
        })
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Precision::Fp32 => "fp32",
            Precision::Fp16 => "fp16",
            Precision::Bf16 => "bf16",
        })
    }
}

impl fmt::Display for ReceptiveField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReceptiveField::Radius(pixels) => write!(f, "{pixels}"),
            ReceptiveField::Unbounded => f.write_str("unbounded"),
        }
    }
}
