//! What can go wrong with a graph.

use std::path::{Path, PathBuf};
use tileforge_files::bounded;
use tileforge_files::unfinished::relocated;

/// The result of every fallible function of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong while a graph is made, read or written.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The operating system refused to read or write a file.
    #[error("{}: cannot {action}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What was tried, as a verb phrase ("open", "write the weights").
        action: &'static str,
        /// The operating system's message.
        reason: String,
    },
    /// A file is not a valid ONNX model.
    #[error("{}: not a valid ONNX model: {reason}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What was expected and what was found.
        reason: String,
    },
    /// A node's inputs do not fit its operator.
    #[error("node `{node}` ({operator}): {reason}")]
    Node {
        /// The node's name, which begins with the checkpoint path of its layer.
        node: String,
        /// The ONNX operator.
        operator: String,
        /// What was expected and what was found.
        reason: String,
    },
    /// A requested transformation of a weight is impossible.
    #[error("weight `{weight}`: {reason}")]
    Weight {
        /// The initializer's name, or the transformation that failed.
        weight: String,
        /// What was expected and what was found.
        reason: String,
    },
    /// Something is wrong with the graph in a file.
    #[error("{}: cannot be used", path.display())]
    InFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<Error>,
    },
    /// A weight file has changed since the graph was written.
    #[error("{}: the graph was exported with another file of this name: expected {expected}, found {found}; export \
        the checkpoint again", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
        /// Its length or digest when the graph was written.
        expected: String,
        /// Its length or digest now.
        found: String,
    },
    /// The output would overwrite a file that is also read.
    #[error(transparent)]
    Output(tileforge_files::outputs::Collision),
    /// The graph as a whole is wrong.
    #[error("graph: {0}")]
    Graph(String),
}

impl Error {
    /// The same error, with the file that the graph was read from.
    #[must_use]
    pub fn in_file(self, path: &Path) -> Self {
        match self {
            // These errors already name their file.
            Error::File { .. }
            | Error::Format { .. }
            | Error::InFile { .. }
            | Error::Changed { .. }
            | Error::Output(_) => self,
            other => Error::InFile { path: path.to_owned(), source: Box::new(other) },
        }
    }

    /// The same error, with the folder `from` in its path replaced by `to`: the folder was removed or renamed.
    #[must_use]
    pub fn relocated(mut self, from: &Path, to: &Path) -> Self {
        match &mut self {
            Error::File { path, .. }
            | Error::Format { path, .. }
            | Error::InFile { path, .. }
            | Error::Changed { path, .. } => *path = relocated(path, from, to),
            Error::Node { .. } | Error::Weight { .. } | Error::Output(_) | Error::Graph(_) => {}
        }
        self
    }

    pub(crate) fn file(path: &Path, action: &'static str, reason: impl ToString) -> Self {
        Error::File { path: path.to_owned(), action, reason: reason.to_string() }
    }

    pub(crate) fn format(path: &Path, reason: impl ToString) -> Self {
        Error::Format { path: path.to_owned(), reason: bounded(reason.to_string()) }
    }

    pub(crate) fn changed(path: &Path, expected: String, found: String) -> Self {
        Error::Changed { path: path.to_owned(), expected, found }
    }

    pub(crate) fn weight(weight: impl ToString, reason: impl ToString) -> Self {
        Error::Weight { weight: bounded(weight.to_string()), reason: bounded(reason.to_string()) }
    }
}
