//! What can go wrong while an engine is built.

use std::path::{Path, PathBuf};

/// The result of every fallible function of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong while an engine is built.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused a file or a folder.
    #[error("{}: cannot {action}: {source}", path.display())]
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
    /// What was asked for does not go together.
    #[error("{0}")]
    Usage(String),
    /// A graph or an engine did not pass its gates. Nothing was written.
    #[error("the gates were not passed; nothing was written\n{0}")]
    Gate(String),
    /// TensorRT would not take a graph.
    #[error("{0}")]
    Lint(String),
    /// The checkpoint cannot be exported.
    #[error(transparent)]
    Export(#[from] tileforge_exporter::Error),
    /// The graph cannot be made, read or written.
    #[error(transparent)]
    Graph(#[from] tileforge_graph::Error),
    /// ONNX Runtime, or the engine's own format.
    #[error(transparent)]
    Runtime(#[from] tileforge_runtime::Error),
}

impl Error {
    pub(crate) fn file(path: &Path, action: &'static str, source: std::io::Error) -> Self {
        Error::File { path: path.to_owned(), action, source }
    }

    pub(crate) fn input(path: &Path, reason: impl Into<String>) -> Self {
        Error::Input { path: path.to_owned(), reason: reason.into() }
    }
}
