//! Kernels on processors: 3×3 convolutions by Winograd's algorithm, and attention.
//!
//! Both are of 32-bit floats. [`Convolution`] is prepared from weights once and runs on tensors of any size;
//! [`Attention`] has no weights. Their results do not depend on the number of threads, and a sample's results not on
//! the others of its batch.
//!
//! A run is cut into units, and the caller's threads compute these. What a unit computes is written
//! once, for vectors of 16 floats, and compiled for each kind of processor.

/// The examples of the README are compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod attention;
mod convolution;
mod functions;
mod kind;
mod products;
#[cfg(test)]
mod samples;
mod simd;
mod units;
mod winograd;

pub use attention::{Attention, Bias, Lengths};
pub use convolution::{Activation, Convolution, Image, Pads};
pub use kind::is_supported;
pub use units::{Error, RunError, Scratch};
