//! What a model promises to its users.
//!
//! An architecture states its [`Contract`] once. It travels as JSON in the metadata of the ONNX file and in the
//! engine's manifest. Calibration, gates, self-test and runtime read it; none of them guesses anything about a tensor.
//!
//! | type | says |
//! |---|---|
//! | [`Contract`] | the task, every input and output, and the precisions that keep the model's quality |
//! | [`TensorSpec`] | name, element type, axes and meaning of one tensor |
//! | [`Axis`], [`Sizes`] | how long an axis is, and which axes of other tensors grow with it |
//! | [`Meaning`] | what the values are: pixels with their range, latents with their scale, tokens, depth with its unit
//! |
//! | [`Upscale`] | the contract of a network from picture to picture, as one struct |
//! | [`Inpaint`] | the contract of a network that fills in what a mask covers, as one struct |
//! | [`Task`], [`Precision`], [`Provider`], [`DataType`] | the words that all crates share |

/// The examples of the README are compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[macro_use]
mod named;

mod axis;
mod contract;
mod data_type;
mod error;
mod inpaint;
mod meaning;
mod metadata;
mod precision;
mod provider;
mod rule;
mod task;
mod upscale;
mod validate;

pub use axis::{Axis, Extent, Sizes};
pub use contract::{Contract, ReceptiveField, Shape, Shapes, TensorSpec};
pub use data_type::DataType;
pub use error::{Error, Result};
pub use inpaint::Inpaint;
pub use meaning::{ChannelOrder, DepthUnit, Embedding, Meaning, Normalisation, Padding};
pub use metadata::{ARCHITECTURE_KEY, CHECKPOINTS_KEY, CONTRACT_KEY, HYPERPARAMETERS_KEY, PARAMETERS_KEY};
pub use precision::Precision;
pub use provider::Provider;
pub use task::Task;
pub use upscale::Upscale;
