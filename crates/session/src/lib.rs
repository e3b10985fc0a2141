//! Graphs on ONNX Runtime.
//!
//! | module | holds |
//! |---|---|
//! | [`Environment`] | what is passed to everything that runs: library, devices, cache folder or none |
//! | [`onnxruntime`] | finding and loading the ONNX Runtime library |
//! | [`provider`] | what could run an engine on this box, and why not |
//! | [`fit`] | whether an engine fits this box, before anything is loaded |
//! | [`compiled`] | what TensorRT compiled for this GPU, kept for the next time |
//! | [`Ladder`] | sessions on the best provider that takes an engine |
//! | [`Session`] | a loaded graph; [`Tensor`], [`Buffer`] and [`Bound`] are what goes through it |
//! | [`selftest`] | known inputs and outputs that prove an engine on the box it lands on |

mod assigned;
mod bound;
mod buffer;
pub mod compiled;
mod environment;
mod error;
pub mod fit;
mod ladder;
mod native;
pub mod onnxruntime;
mod options;
mod placement;
pub mod provider;
pub mod selftest;
mod session;
mod tensor;

pub use assigned::Assigned;
pub use bound::Bound;
pub use buffer::{Buffer, Buffers, Element};
pub use environment::Environment;
pub use error::{Error, Result};
pub use fit::{Fit, Step, Verdict};
pub use ladder::Ladder;
pub use options::{OptimisationLevel, SessionOptions};
pub use placement::Placement;
pub use provider::{Gpu, Probe};
pub use session::{Session, TensorInfo};
pub use tensor::{Named, Tensor};
