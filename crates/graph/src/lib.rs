//! An ONNX model in memory.
//!
//! A [`Model`] is a list of nodes over named values. It is made in one of two ways: traced by calling layer functions
//! on [`Value`]s (see [`Trace`]), or read from a file with [`load`]. Every value has a [`TensorType`]; shapes are
//! inferred when a node is added, so a wrong shape is reported at the layer that made it. [`rewrite`] changes a model
//! by rules. Weights are never loaded: a [`Weight`] is a range of a mapped file or a lazy transform of such ranges,
//! evaluated in pieces while [`save`] writes it.
//!
//! This crate knows ONNX (<https://github.com/onnx/onnx/blob/main/docs/IR.md>). It knows nothing about checkpoints,
//! engines or pixels.

/// The examples of the README are compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod attribute;
mod budget;
mod cuda;
mod data_type;
mod dim;
mod error;
mod external;
pub mod infer;
mod infer_types;
mod kernels;
mod known;
mod load;
mod mapped;
mod memory;
mod message;
mod model;
mod openvino;
mod operations;
pub mod proto;
mod reach;
pub mod rewrite;
mod save;
mod text;
mod trace;
mod weight;
mod weight_files;

pub use attribute::Attribute;
pub use budget::Budget;
pub use cuda::for_cuda;
pub use data_type::DataType;
pub use dim::{Dim, TensorType};
pub use error::{Error, Result};
pub use external::{ExternalTensor, Interface, external_files, external_tensors, interface, relocate_weights};
pub use kernels::{Attention, Convolution3x3, OWN_DOMAIN, with_kernels};
pub use load::{decode, load, load_untyped};
pub use mapped::{Checksum, MappedFile, StoredEntry};
pub use model::{Model, Node, Opset, Port};
pub use openvino::{IN_MEMORY, for_openvino};
pub use reach::{PictureAxes, Reach, Unbounded, reach};
pub use save::{
    LinkMethod, LinkedFile, NoLink, SaveReport, WeightStorage, Written, save, save_sharing_weights, save_with_progress,
};
pub use text::to_text;
pub use trace::{Border, Constant, ConvOptions, Size, Trace, Value};
pub use weight::Weight;
pub use weight_files::{WeightFile, check_weight_files};
