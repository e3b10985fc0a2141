//! What a graph promises to whoever runs it.
//!
//! An architecture states its contract once; it travels as metadata of the ONNX file (`tileforge.*`) into the engine's
//! manifest, and the runtime acts on it. docs/metadata.md describes every key.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// What a network does with its input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// An image to an image, `scale` times as large (1 for restoration).
    Upscale,
    /// Noise in a noisy latent image, under the condition of a text.
    Unet,
    /// An image to a latent one.
    VaeEncoder,
    /// A latent image to an image.
    VaeDecoder,
    /// A text's tokens to what conditions an image.
    TextEncoder,
    /// An image, with or without a rough depth, to the depth of each of its pixels.
    Depth,
    /// A frame and the frame before it to the frame that is shown, many times a second.
    Realtime,
}

impl Task {
    /// Every task.
    pub const ALL: [Task; 7] =
        [Task::Upscale, Task::Unet, Task::VaeEncoder, Task::VaeDecoder, Task::TextEncoder, Task::Depth, Task::Realtime];
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

/// Everything that whoever runs a graph must know of it and cannot see in it.
#[derive(Debug, Clone, PartialEq)]
pub enum Contract {
    /// A network that maps an image to an image.
    Upscale(Upscale),
    /// A part of a pipeline of several networks.
    Component(Component),
}

/// What the runtime must know of a part of a pipeline. Its inputs and outputs have the names that pipelines load them
/// by.
#[derive(Debug, Clone, PartialEq)]
pub struct Component {
    /// What it does.
    pub task: Task,
    /// Arithmetics in which the whole network is known to keep its quality.
    pub safe_precisions: &'static [Precision],
    /// What else must be known, by its key of docs/metadata.md.
    pub facts: Vec<(&'static str, String)>,
}

/// Everything that the runtime must know of a network that maps an image to an image.
#[derive(Debug, Clone, PartialEq)]
pub struct Upscale {
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
    /// What the network does.
    pub fn task(&self) -> Task {
        match self {
            Contract::Upscale(_) => Task::Upscale,
            Contract::Component(component) => component.task,
        }
    }

    /// That of a network that maps an image to an image, if it is one.
    pub fn upscale(&self) -> Option<&Upscale> {
        match self {
            Contract::Upscale(upscale) => Some(upscale),
            Contract::Component(_) => None,
        }
    }

    /// The contract as metadata of an ONNX file.
    pub fn metadata(&self) -> BTreeMap<String, String> {
        let (mut pairs, precisions) = match self {
            Contract::Upscale(upscale) => (upscale.facts(), upscale.safe_precisions),
            Contract::Component(component) => (component.facts.clone(), component.safe_precisions),
        };
        pairs.push(("task", self.task().to_string()));
        pairs.push(("safe_precisions", precisions.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")));
        pairs.into_iter().map(|(key, value)| (format!("tileforge.{key}"), value)).collect()
    }
}

impl Upscale {
    fn facts(&self) -> Vec<(&'static str, String)> {
        vec![
            ("input", self.input.into()),
            ("output", self.output.into()),
            ("scale", self.scale.to_string()),
            ("channels", self.channels.to_string()),
            ("range", format!("{}..{}", self.range.0, self.range.1)),
            ("size_multiple", self.size_multiple.to_string()),
            ("size_minimum", self.size_minimum.to_string()),
            ("padding", self.padding.to_string()),
            ("receptive_field", self.receptive_field.to_string()),
        ]
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Task::Upscale => "upscale",
            Task::Unet => "unet",
            Task::VaeEncoder => "vae_encoder",
            Task::VaeDecoder => "vae_decoder",
            Task::TextEncoder => "text_encoder",
            Task::Depth => "depth",
            Task::Realtime => "realtime",
        })
    }
}

impl FromStr for Task {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = || Self::ALL.map(|task| task.to_string()).join(", ");
        Self::ALL
            .into_iter()
            .find(|task| task.to_string() == text)
            .ok_or_else(|| format!("expected one of {}, found `{text}`", names()))
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
