//! Plans for RTX GPUs, built by NVIDIA's own builder on any machine, with or without a GPU.
//!
//! TensorRT for RTX compiles an ONNX graph into a *plan* for one or several compute capabilities. Its libraries are
//! loaded at run time from a folder ([`Library::load`]); [`Library::build`] reads a graph from its file, with the
//! weights beside it, and returns the plan's bytes. The network is strongly typed: the graph states every precision,
//! and no builder option changes one.
//!
//! A plan is for exactly one release of the library ([`Library::version`], [`PlanHeader::version`]) and for the
//! capabilities that it was built for ([`PlanHeader::capabilities`]).
//!
//! [`Program`] reads from a plan's file which kernels it runs, without any library. [`Gpu::least_seconds`] computes
//! from that the minimum time that a GPU needs.
//!
//! The bindings (crate `trtx`) are compiled in with the feature `rtx`, which needs libclang. Without it the crate has
//! the same items, and [`Library::load`] reports what is missing.
//!
//! Sources: <https://docs.nvidia.com/deeplearning/tensorrt-rtx/latest/> and the headers of release 1.7.

/// The examples of the README are compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod capability;
mod error;
mod library;
mod message;
#[cfg(feature = "rtx")]
mod native;
mod options;
mod plan;
mod program;
mod release;
mod roofline;
#[cfg(feature = "rtx")]
mod symbols;

pub use capability::ComputeCapability;
pub use error::{Error, Result};
pub use library::Library;
pub use message::{Message, Refusal, Severity};
pub use options::{BuildOptions, InputRange, Progress, Refit};
pub use plan::{Plan, PlanHeader, Validity};
pub use program::{ElementType, Operation, OperationKind, Program};
pub use release::LibraryVersion;
pub use roofline::{Gpu, LeastTimes};
