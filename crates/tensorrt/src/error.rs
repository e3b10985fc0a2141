//! What can go wrong while a plan is built.

use crate::message::Refusal;
use crate::{ComputeCapability, LibraryVersion};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::path::PathBuf;

/// The result of every fallible function of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong while a plan is built or read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Error {
    /// This program was compiled without the bindings to the builder.
    #[error(
        "this program was compiled without TensorRT for RTX (the feature `rtx`); \
         compile it again on a machine with libclang"
    )]
    NotCompiledIn,
    /// A library is not where it was expected.
    #[error("{}: not there; TensorRT for RTX {} is needed", path.display(), LibraryVersion::EXPECTED)]
    LibraryMissing {
        /// The library's file.
        path: PathBuf,
    },
    /// The operating system could not load a library.
    #[error("{}: cannot be loaded: {reason}", path.display())]
    LibraryUnusable {
        /// The library's file.
        path: PathBuf,
        /// The loader's message.
        reason: String,
    },
    /// A library has another release than the one that this program was compiled for.
    #[error("{}: expected TensorRT for RTX {}, found {found}", path.display(), LibraryVersion::EXPECTED)]
    LibraryVersion {
        /// The library's file.
        path: PathBuf,
        /// The release that it reports.
        found: LibraryVersion,
    },
    /// A process can load the library from one folder only.
    #[error("TensorRT for RTX is already loaded from {}; {} cannot be loaded too", loaded.display(), asked.display())]
    AnotherLibrary {
        /// The folder in use.
        loaded: PathBuf,
        /// The folder that was asked for.
        asked: PathBuf,
    },
    /// The parser refused the graph.
    #[error("{}: TensorRT cannot read it: {refusal}", graph.display())]
    Parse {
        /// The graph's file.
        graph: PathBuf,
        /// Its message, and the node that it refers to.
        refusal: Box<Refusal>,
    },
    /// The builder has no implementation of some part of the graph for these GPUs.
    #[error("{}: TensorRT cannot build it for compute capability {}: {refusal}", graph.display(), list(capabilities))]
    Refused {
        /// The graph's file.
        graph: PathBuf,
        /// The target capabilities of the plan.
        capabilities: Vec<ComputeCapability>,
        /// Its message, and the node that it refers to.
        refusal: Box<Refusal>,
    },
    /// A capability lacks arithmetic that the graph needs, such as FP8 before 8.9.
    #[error("{}: compute capability {} has no {precision}: {refusal}", graph.display(), list(capabilities))]
    Precision {
        /// The graph's file.
        graph: PathBuf,
        /// The target capabilities of the plan.
        capabilities: Vec<ComputeCapability>,
        /// The element type, by the builder's name.
        precision: String,
        /// Its message, and the node that it refers to.
        refusal: Box<Refusal>,
    },
    /// A requested option is impossible for any graph.
    #[error("{0}")]
    Options(String),
    /// The caller ended the build.
    #[error("the build was cancelled")]
    Cancelled,
    /// The library failed without a message that explains it.
    #[error("TensorRT for RTX failed: cannot {action}: {reason}")]
    Failed {
        /// What was tried, as a verb phrase.
        action: Cow<'static, str>,
        /// The known part of the reason.
        reason: String,
    },
    /// Bytes that are not a plan of TensorRT for RTX.
    #[error("not a plan of TensorRT for RTX: {reason}")]
    NotAPlan {
        /// What was expected and what was found.
        reason: String,
    },
    /// The description of a plan's program has another form than in release 1.7.1.
    #[error(
        "what the plan runs is not known: expected the form of TensorRT for RTX {}, found {found}",
        LibraryVersion::EXPECTED
    )]
    ProgramNotKnown {
        /// What is in another form.
        found: String,
    },
}

impl Error {
    pub(crate) fn not_known(found: String) -> Self {
        Error::ProgramNotKnown { found }
    }
}

fn list(capabilities: &[ComputeCapability]) -> String {
    capabilities.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
