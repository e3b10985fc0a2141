//! The errors of the whole crate.

use std::io;
use std::path::{Path, PathBuf};

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong: where, what was expected, what was found, and what to do next.
///
/// The text of an error never repeats its cause; walk [`std::error::Error::source`] for the chain.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused something on a file or folder.
    #[error("{}: cannot {action}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// What was tried, as a verb: "read", "create".
        action: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// A manifest, or the metadata that becomes one, breaks a rule of the schema.
    #[error("{0}")]
    Manifest(String),
    /// An engine directory is not whole, or was changed after it was built.
    #[error("{}: {problem}", path.display())]
    Engine {
        /// The directory, or the file in it.
        path: PathBuf,
        /// What is wrong, and what to do.
        problem: String,
        /// The rule that was broken, if there is one below this error.
        #[source]
        source: Option<Box<Error>>,
    },
    /// The ONNX Runtime library is missing, too old or something else.
    #[error("ONNX Runtime: {0}")]
    Library(String),
    /// ONNX Runtime refused a graph or a run.
    #[error("{}: ONNX Runtime cannot {action}: {message}", path.display())]
    Session {
        /// The graph's file.
        path: PathBuf,
        /// What was tried, as a verb.
        action: &'static str,
        /// ONNX Runtime's words.
        message: String,
    },
    /// This box cannot run the engine the way that was asked for.
    #[error("{0}")]
    DoesNotFit(String),
    /// An image file that cannot be read or written.
    #[error("{}: {problem}", path.display())]
    Image {
        /// The image's file.
        path: PathBuf,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// Tile, overlap and margin that do not go together, or a picture that is too large for them.
    #[error("tiles: {0}")]
    Tiling(String),
    /// Memory, of this machine or of a GPU, does not suffice.
    #[error("{0}")]
    OutOfMemory(String),
    /// Pictures whose sizes do not go together.
    #[error("{0}")]
    Sizes(String),
    /// The engine gave something that is not a picture, such as NaN.
    #[error("{0}")]
    Output(String),
    /// The caller asked to stop.
    #[error("stopped before the end; what was not finished is not there")]
    Cancelled,
    /// A thread of this program panicked: a defect of ours.
    #[error("internal: the {0} stage stopped without an error; please report this")]
    Internal(&'static str),
}

impl Error {
    /// Whether memory, of this machine or of a GPU, did not suffice for what ONNX Runtime was asked to do.
    pub fn is_out_of_memory(&self) -> bool {
        // ONNX Runtime has no code of its own for this: these are the words of its arenas, of CUDA, and of C++.
        const WORDS: [&str; 5] =
            ["failed to allocate", "out of memory", "cudaerrormemoryallocation", "bad_alloc", "could not allocate"];
        match self {
            Self::OutOfMemory(_) => true,
            Self::Session { message, .. } => WORDS.iter().any(|words| message.to_lowercase().contains(words)),
            _ => false,
        }
    }

    pub(crate) fn file(path: &Path, action: &'static str, source: io::Error) -> Self {
        Self::File { path: path.to_owned(), action, source }
    }

    pub(crate) fn image(path: &Path, problem: impl Into<String>) -> Self {
        Self::Image { path: path.to_owned(), problem: problem.into() }
    }

    pub(crate) fn engine(path: &Path, problem: impl Into<String>) -> Self {
        Self::Engine { path: path.to_owned(), problem: problem.into(), source: None }
    }
}
