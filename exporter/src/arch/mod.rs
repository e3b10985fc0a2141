//! The architectures: one file each, and one line in the [`registry`].

mod atd;
mod autoencoder_kl;
mod clip_text;
mod dat;
mod depth;
mod depth_anything;
mod drct;
mod hat;
mod keys;
mod mirage;
mod plksr;
mod reconstruction;
mod registry;
mod rgbd_depth;
mod rgt;
mod rrdbnet;
mod seedvr2_transformer;
mod seedvr2_vae;
mod span;
mod srformer;
mod srvgg_net_compact;
mod swin;
mod swin2sr;
mod swinir;
mod unet_2d_condition;

mod craft;
mod cugan;
mod dctlsa;
mod ditn;
mod dncnn;
mod drunet;
mod fbcnn;
mod fdat;
mod gfpgan;
mod grl;
mod kbnet_l;
mod kbnet_s;
mod lama;
mod moesr;
mod mosr;
mod nafnet;
mod omnisr;
mod rcan;
mod restoration;
mod restoreformer;
mod safmn;
mod scunet;
mod seemore;
mod spanf3;
mod swift_srgan;
mod uni_upsample;

pub use keys::{Keys, Mismatch};
pub use registry::{Entry, GraphOf, Presets, detect, detect_task, graphs_of, registry};

use crate::nn::Scope;
use crate::{Contract, Result, Shapes, Task};
use std::fmt::Debug;
use tileforge_contract::{Padding, Precision, ReceptiveField, Upscale};

/// One of several graphs of a network: its name, and the hyperparameter that makes it.
pub type Variant = (&'static str, (&'static str, &'static str));

/// A kind of network: how to recognise it, and how to compute it.
///
/// The implementing type holds the hyperparameters.
pub trait Architecture: Debug + PartialEq + serde::Serialize + Sized + 'static {
    /// The network's name, as its authors use it.
    const NAME: &'static str;

    /// What its graph does. A checkpoint that gives several graphs has an architecture for each, and each has its own
    /// task.
    const TASK: Task = Task::Upscale;

    /// Sets of tensor names, one for each naming scheme in use. A checkpoint must have all names of one set.
    const SIGNATURES: &'static [&'static [&'static str]];

    /// The graphs that do the network's work together, where one is not enough.
    const VARIANTS: &'static [Variant] = &[];

    /// Whether the shapes fit as well, where another architecture has the same names.
    fn shapes_fit(_keys: &Keys<'_>) -> bool {
        true
    }

    /// The hyperparameters, detected from names and shapes.
    ///
    /// # Errors
    /// The tensors contradict each other, or they do not determine every hyperparameter.
    fn detect(keys: &Keys<'_>) -> Result<Self, Mismatch>;

    /// The graph's inputs and outputs, and what they mean.
    fn contract(&self) -> Contract;

    /// Traces the network from its inputs to its outputs.
    ///
    /// # Errors
    /// The fixed shapes do not fit this network. Errors of layers are kept in the trace instead.
    fn build(&self, w: &Scope<'_>, shapes: &Shapes) -> Result<()>;

    /// Whether the graph does not need a tensor of this name that checkpoints have.
    fn ignores(&self, _name: &str) -> bool {
        false
    }

    /// Configurations worth testing, and the published ones, by name.
    fn presets() -> Vec<(&'static str, Self)>;

    /// Hyperparameters that a synthesised checkpoint must note, because its tensors do not determine them.
    fn notes(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Small shapes for the inputs that may not stay dynamic, for callers that need any valid sizes.
    fn example_shapes(&self) -> Shapes {
        Shapes::default()
    }
}

/// A detected network of any architecture.
pub trait Network: Debug {
    /// The architecture's name.
    fn architecture(&self) -> &'static str;

    /// The hyperparameters by name.
    ///
    /// # Errors
    /// A hyperparameter has no JSON form.
    fn hyperparameters(&self) -> serde_json::Result<serde_json::Value>;

    /// The graph's inputs and outputs, and what they mean.
    fn contract(&self) -> Contract;

    /// See [`Architecture::build`].
    ///
    /// # Errors
    /// The fixed shapes do not fit this network.
    fn build(&self, w: &Scope<'_>, shapes: &Shapes) -> Result<()>;

    /// See [`Architecture::ignores`].
    fn ignores(&self, name: &str) -> bool;

    /// See [`Architecture::notes`].
    fn notes(&self) -> Vec<(&'static str, String)>;

    /// See [`Architecture::example_shapes`].
    fn example_shapes(&self) -> Shapes;
}

impl<A: Architecture> Network for A {
    fn architecture(&self) -> &'static str {
        A::NAME
    }

    fn hyperparameters(&self) -> serde_json::Result<serde_json::Value> {
        serde_json::to_value(self)
    }

    fn contract(&self) -> Contract {
        Architecture::contract(self)
    }

    fn build(&self, w: &Scope<'_>, shapes: &Shapes) -> Result<()> {
        Architecture::build(self, w, shapes)
    }

    fn ignores(&self, name: &str) -> bool {
        Architecture::ignores(self, name)
    }

    fn notes(&self) -> Vec<(&'static str, String)> {
        Architecture::notes(self)
    }

    fn example_shapes(&self) -> Shapes {
        Architecture::example_shapes(self)
    }
}

/// The contract of most networks from picture to picture: values of 0 … 1, any size, a receptive field that is
/// unbounded or unknown, and every floating-point precision.
fn picture(scale: usize, channels: usize) -> Upscale {
    Upscale {
        input: "image".into(),
        output: "upscaled".into(),
        scale,
        channels,
        range: [0.0, 1.0],
        size_multiple: 1,
        size_minimum: 1,
        only_size: None,
        padding: Padding::Reflect,
        receptive_field: ReceptiveField::Unbounded,
        safe_precisions: vec![Precision::Fp32, Precision::Fp16, Precision::Bf16],
    }
}

/// Checks that the side of a kernel is odd: even kernels do not keep an image's size.
fn odd(side: usize) -> Result<usize, Mismatch> {
    match side % 2 {
        1 => Ok(side),
        _ => Err(Mismatch::new(format!("expected kernels of odd sides, which keep an image's size, found {side}"))),
    }
}

/// A receptive field of this many pixels in each direction.
fn reach(pixels: usize) -> ReceptiveField {
    u32::try_from(pixels).map_or(ReceptiveField::Unbounded, ReceptiveField::Radius)
}
