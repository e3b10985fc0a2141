//! Checkpoints of trained image models to ONNX graphs, without Python and without PyTorch.
//!
//! Data flows one way: a [`Checkpoint`] is mapped and its keys are normalised, the [`registry`](arch::registry) finds
//! the architecture from names and shapes, and the architecture traces its graph with the checkpoint's tensors as
//! weights. Nothing is approximated: a tensor that is missing, left over or of another shape is an error, and the graph
//! computes in FP32 with the weights as they are stored.

/// The examples of the README are compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod arch;
pub mod checkpoint;
mod error;
mod export;
pub mod foreign;
pub mod lora;
pub mod nn;
mod noise;
pub mod pipeline;
mod shapes;
mod synthesise;

pub use checkpoint::Checkpoint;
pub use error::{Candidate, Error, MissingHyperparameter, Result};
pub use export::{Export, export, export_task};
pub use noise::Noise;
pub use shapes::Shapes;
pub use synthesise::{parameters, synthesise, synthesise_with_gain};
pub use tileforge_contract::{Contract, Task};
