//! Runs graphs on ONNX Runtime.
//!
//! | module | holds |
//! |---|---|
//! | [`Environment`] | passed to everything that runs: library, devices, cache folder or none |
//! | [`onnxruntime`] | finding and loading the ONNX Runtime library |
//! | [`provider`] | which providers this machine can use, and why not others |
//! | [`choice`] | which of several engines fits this machine best |
//! | [`fit`] | whether an engine fits this machine, before anything is loaded |
//! | [`releases`] | whether an engine was made with other releases than those that are here |
//! | [`additions`] | what this machine's GPUs have added to an engine |
//! | [`compiled`] | graphs that TensorRT compiled for this GPU, kept for the next time |
//! | [`Ladder`] | sessions on the best provider that takes an engine, and where those are [`Location`] |
//! | [`Session`] | a loaded graph, with its tensors: [`Tensor`], [`Buffer`], [`Bound`]; [`Cancel`] ends a run |
//! | [`selftest`] | known inputs and outputs, which show whether an engine computes correctly on this machine |

/// The examples of the README are compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod additions;
mod assigned;
mod buffer;
mod cancel;
mod capture;
pub mod choice;
pub mod compiled;
mod copying;
mod environment;
mod error;
pub mod fit;
mod jetson;
mod kernels;
mod ladder;
mod native;
pub mod onnxruntime;
pub mod openvino;
mod options;
mod placement;
mod plans;
mod processors;
pub mod provider;
mod providers;
pub mod releases;
pub mod selftest;
mod session;
mod system;
mod tensor;
mod verdict;
mod weights;

pub use assigned::Assigned;
pub use buffer::{Buffer, Buffers, Element};
pub use cancel::{Cancel, Notice};
pub use environment::Environment;
pub use error::{Error, Result};

pub use jetson::Jetson;
pub use ladder::{Ladder, Location};
pub use options::{OptimisationLevel, SessionOptions};
pub use placement::Placement;
pub use plans::RUNTIME_CACHE_OPTION;
pub use processors::{Processors, multiply_8_bits};
pub use provider::{Gpu, Probe};
pub use releases::{OtherRelease, Software, other_releases};
pub use session::{Bound, Session};
pub use system::memory::{available_memory, peak_memory_bytes};
pub use tensor::{Named, Tensor, TensorInfo, safetensors_type};
pub use verdict::{Fit, Step, Verdict};
