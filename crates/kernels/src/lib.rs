//! Convolutions of 3×3 on processors, by Winograd's algorithm.
//!
//! [`Convolution`] is prepared from weights once and runs on tensors of any size: 32-bit floats, channels before rows
//! and columns (NCHW). It needs 2.25 multiplications for an output and a channel where the sum of nine products needs
//! 9. Its results do not depend on the number of threads, and a sample's results not on the others of its batch.

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
