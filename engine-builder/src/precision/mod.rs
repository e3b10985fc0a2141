//! The precision of an engine. It is decided here and written into the graphs by [`tileforge_graph::rewrite`];
//! builders and runtimes set no precision flag.
//!
//! | module | holds |
//! |---|---|
//! | `options`, `option` | what the caller asks for |
//! | `job` | what a conversion is given |
//! | `recipe` | the graph of a precision for a target, and which layers are in 8 bits by default |
//! | `islands` | which nodes stay in FP32 |
//! | `search` | which layers cost the most quality, and which fall back until the floor holds |
//! | `convert` | from calibration to the finished graphs |
//! | `uncalibrated` | a graph in a precision, for what a plan of it would run |
//! | `calibration` | the tiles or tensors that activations are measured on |
//! | `statistics`, `histogram` | how activations are distributed on them |
//! | `range` | the range that 8 bits cover, from a histogram |
//! | `quality`, `speed` | a graph against its reference: outputs, and time |

mod calibration;
mod convert;
mod histogram;
mod islands;
mod job;
mod option;
mod options;
mod quality;
mod range;
mod recipe;
#[cfg(test)]
#[cfg(feature = "rtx")]
mod rtx_tests;
mod search;
mod speed;
mod statistics;
#[cfg(test)]
mod tests;
mod uncalibrated;

pub use convert::convert_graph;
pub(crate) use convert::{Converted, convert};
pub(crate) use job::{Job, openvino_options};
pub use option::PrecisionOption;
pub use options::PrecisionOptions;
pub use quality::Sensitivity;
pub(crate) use quality::{Ran, Trial, emulation};
pub use range::RangeMethod;
pub(crate) use speed::{SPEED_OVER_FP32, speed_ratios};
pub use uncalibrated::uncalibrated;
