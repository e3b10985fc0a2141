//! Kernels on processors: 3×3 convolutions by Winograd's algorithm, linear layers, and attention.
//!
//! All are of 32-bit floats. [`Convolution`] and [`Linear`] are prepared from weights once and run on tensors of any
//! size; [`Attention`] has no weights. Their results do not depend on the number of threads, and a sample's results not
//! on the others of its batch.
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
mod linear;
mod products;
#[cfg(test)]
mod samples;
mod simd;
mod units;
mod winograd;

pub use attention::{Attention, Bias, Lengths};
pub use convolution::{Activation, Convolution, Image, Pads};
pub use kind::is_supported;
pub use linear::{Arrangement, Linear};
pub use units::{Error, RunError, Scratch};
