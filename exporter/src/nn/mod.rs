//! Layers as functions: each fetches its weights from a [`Scope`] and returns what it computes.

mod conv;
mod scope;

pub use conv::{conv2d, image_input, prelu};
pub use scope::{Declaration, Parameters, Scope};
