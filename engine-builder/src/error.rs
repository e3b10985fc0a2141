//! What can go wrong while an engine is built.

use crate::PrecisionOption;
use std::path::{Path, PathBuf};
use tileforge_contract::Precision;
use tileforge_files::unfinished::relocated;

/// The result of every fallible function of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong while an engine is built.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused a file or a folder.
    #[error("{}: cannot {action}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// What was tried, as a verb phrase.
        action: &'static str,
        /// The operating system's message.
        source: std::io::Error,
    },
    /// A profile, a model file or an output folder is not what was expected.
    #[error("{}: {reason}", path.display())]
    Input {
        /// The file or folder.
        path: PathBuf,
        /// What was expected, what was found, and what to do next.
        reason: String,
    },
    /// An option has no effect on an engine in this precision.
    #[error("{option} has no effect on an engine in {precision}")]
    NoEffect {
        /// The option.
        option: PrecisionOption,
        /// The engine's precision.
        precision: Precision,
        /// The precisions that use it.
        users: &'static str,
    },
    /// The profile's machine does not compute in a precision.
    #[error("the machine of profile {profile} does not compute in {precision}: {reason}")]
    Precision {
        /// The profile's name.
        profile: String,
        /// The precision that was asked for.
        precision: Precision,
        /// What the machine lacks.
        reason: String,
        /// The precisions that it computes in.
        possible: Vec<Precision>,
    },
    /// The engine cannot be compiled on this machine.
    #[error("{profile}: an engine cannot be compiled here: {reason}")]
    Portable {
        /// The profile's name.
        profile: String,
        /// Why.
        reason: String,
    },
    /// A graph or an engine missed its gates. Nothing was written.
    #[error("the gates were not passed; nothing was written\n{0}")]
    Gate(String),
    /// TensorRT would refuse a graph.
    #[error("{0}")]
    Lint(String),
    /// The checkpoint cannot be exported.
    #[error(transparent)]
    Export(#[from] tileforge_exporter::Error),
    /// The graph cannot be made, read or written.
    #[error(transparent)]
    Graph(#[from] tileforge_graph::Error),
    /// The engine directory cannot be written or read.
    #[error(transparent)]
    Engine(#[from] tileforge_engine::Error),
    /// ONNX Runtime failed.
    #[error(transparent)]
    Session(#[from] tileforge_session::Error),
    /// The engine or the graph would be written over something that is read.
    #[error(transparent)]
    Output(tileforge_files::outputs::Collision),
    /// A picture for calibration cannot be read.
    #[error(transparent)]
    Image(#[from] tileforge_image::Error),
    /// The model's contract is broken.
    #[error(transparent)]
    Contract(#[from] tileforge_contract::Error),
}

impl Error {
    /// The same error about a file of the folder `from`, which is gone or has got the name `to`.
    #[must_use]
    pub(crate) fn relocated(self, from: &Path, to: &Path) -> Self {
        match self {
            Error::File { path, action, source } => Error::File { path: relocated(&path, from, to), action, source },
            Error::Input { path, reason } => Error::Input { path: relocated(&path, from, to), reason },
            Error::Graph(error) => Error::Graph(error.relocated(from, to)),
            Error::Engine(error) => Error::Engine(error.relocated(from, to)),
            Error::Session(error) => Error::Session(error.relocated(from, to)),
            other => other,
        }
    }

    pub(crate) fn file(path: &Path, action: &'static str, source: std::io::Error) -> Self {
        Error::File { path: path.to_owned(), action, source }
    }

    pub(crate) fn input(path: &Path, reason: impl Into<String>) -> Self {
        Error::Input { path: path.to_owned(), reason: reason.into() }
    }
}
