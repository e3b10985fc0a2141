//! What can go wrong between a checkpoint and a graph.

use std::path::{Path, PathBuf};

/// The result of every fallible function of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong between a checkpoint and a graph.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused a file.
    #[error("{}: cannot {action}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What was tried, as a verb phrase.
        action: &'static str,
        /// The operating system's message.
        source: std::io::Error,
    },
    /// A checkpoint cannot be read.
    #[error("{}: {reason}", path.display())]
    Checkpoint {
        /// The file.
        path: PathBuf,
        /// What was expected, what was found, and what to do next.
        reason: String,
    },
    /// No architecture fits the checkpoint.
    #[error("{}: no known architecture fits its {tensors} tensors\n{candidates}", path.display())]
    UnknownArchitecture {
        /// The file.
        path: PathBuf,
        /// How many tensors it has.
        tensors: usize,
        /// For each candidate, nearest first, the keys that were missing.
        candidates: String,
    },
    /// The architecture was found, but its hyperparameters cannot be.
    #[error("{}: {architecture}: {reason}", path.display())]
    Hyperparameters {
        /// The file.
        path: PathBuf,
        /// The architecture that the names tell.
        architecture: &'static str,
        /// What was expected, what was found, and what to do next.
        reason: String,
    },
    /// The architecture was found, but the tensors are not exactly the ones that it needs.
    #[error("{}: the tensors are not those of {architecture}\n{problems}\n{hint}", path.display())]
    Tensors {
        /// The file.
        path: PathBuf,
        /// The architecture with what was detected.
        architecture: String,
        /// Each missing tensor, wrong shape and leftover, a line each.
        problems: String,
        /// What to do next.
        hint: &'static str,
    },
    /// A wrong `--shapes` or `--set`.
    #[error("{0}")]
    Option(String),
    /// A graph does not have the tensors that its architecture promises: a defect of ours.
    #[error("{architecture}: expected the {kind} {expected}, found {found}; please report this")]
    Promise {
        /// The architecture.
        architecture: String,
        /// "input" or "output".
        kind: &'static str,
        /// The contract's tensors.
        expected: String,
        /// The graph's tensors.
        found: String,
    },
    /// The contract breaks a rule: a hyperparameter is beyond what a network can have.
    #[error(transparent)]
    Contract(#[from] tileforge_contract::Error),
    /// The graph cannot be made or written.
    #[error(transparent)]
    Graph(#[from] tileforge_graph::Error),
}

impl Error {
    pub(crate) fn checkpoint(path: &Path, reason: impl Into<String>) -> Self {
        Error::Checkpoint { path: path.to_owned(), reason: reason.into() }
    }
}
