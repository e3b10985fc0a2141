//! What can go wrong between an engine and its results.

use std::path::{Path, PathBuf};

use tileforge_contract::{DataType, Provider};

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong. The text of an error never repeats its cause: walk [`std::error::Error::source`].
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
        source: std::io::Error,
    },
    /// The engine is not whole, or its manifest breaks a rule.
    #[error(transparent)]
    Engine(#[from] tileforge_engine::Error),
    /// No ONNX Runtime library was found.
    #[error("ONNX Runtime: the library was not found. Looked at:{}", list(places))]
    LibraryNotFound {
        /// Every place that was looked at.
        places: Vec<PathBuf>,
    },
    /// A place that was named holds no ONNX Runtime library.
    #[error("ONNX Runtime: {by} names {}, and there is no such library", path.display())]
    NoLibraryAt {
        /// Who named it: an option or an environment variable.
        by: &'static str,
        /// The library's file.
        path: PathBuf,
    },
    /// The library cannot be used.
    #[error("ONNX Runtime: {} {problem}", path.display())]
    Library {
        /// The library's file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// Another library is loaded already: there is one a process.
    #[error("ONNX Runtime: {} is loaded already, and a process has one; {} cannot be loaded, too", loaded.display(), wanted.display())]
    LibraryLoaded {
        /// The library of this process.
        loaded: PathBuf,
        /// The other one.
        wanted: PathBuf,
    },
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
    /// A tensor is not what a graph takes.
    #[error("{}: {tensor}: expected {expected}, found {found}", path.display())]
    Tensor {
        /// The graph's file, or that of the tensors.
        path: PathBuf,
        /// The tensor's name.
        tensor: String,
        /// What was expected of it.
        expected: String,
        /// What it is.
        found: String,
    },
    /// Elements of another type were asked for than a tensor has.
    #[error("expected elements of {expected}, found {found}")]
    ElementType {
        /// The type that was asked for.
        expected: DataType,
        /// The tensor's type.
        found: DataType,
    },
    /// A provider cannot be used on this box.
    #[error("provider {provider}: cannot be used on this box: {reason}")]
    ProviderUnusable {
        /// The provider.
        provider: Provider,
        /// What is missing.
        reason: String,
    },
    /// A provider does not take its options.
    #[error("{provider} does not take its options: {reason}")]
    ProviderOptions {
        /// The provider.
        provider: Provider,
        /// Its words.
        reason: String,
    },
    /// Nothing that was asked for can run the engine here.
    #[error("{verdict}")]
    DoesNotFit {
        /// Every provider with its reason.
        verdict: Box<crate::Verdict>,
    },
    /// The engine would run, but not where it was built for, and a step down is not allowed.
    #[error("{verdict}")]
    NoStepDown {
        /// Every provider with its reason.
        verdict: Box<crate::Verdict>,
    },
    /// Some nodes would run on another provider, and that is not allowed.
    #[error("{}: {nodes} nodes would run on {found} instead of {expected}", path.display())]
    NodesElsewhere {
        /// The graph's file.
        path: PathBuf,
        /// Number of such nodes.
        nodes: usize,
        /// The provider that all nodes should run on.
        expected: Provider,
        /// ONNX Runtime's name of the other one.
        found: String,
    },
    /// TensorRT, its version or the GPU is not known, so that nothing can be compiled.
    #[error("{graph}: cannot be compiled: TensorRT, its version or the GPU is not known")]
    CannotCompile {
        /// The graph's file.
        graph: String,
    },
    /// Compiled graphs have to be kept, and there is no folder for them.
    #[error("there is no folder to keep compiled graphs in")]
    NoCache,
    /// Memory, of this machine or of a GPU, does not suffice.
    #[error("no memory for a tensor of {shape:?}: {reason}")]
    OutOfMemory {
        /// The tensor's shape.
        shape: Vec<usize>,
        /// ONNX Runtime's words.
        reason: String,
    },
    /// The engine's self-test cannot be read or run.
    #[error("{}: {problem}", path.display())]
    SelfTest {
        /// Its file.
        path: PathBuf,
        /// What was expected and what was found.
        problem: String,
    },
}

impl Error {
    /// Whether memory, of this machine or of a GPU, did not suffice for what ONNX Runtime was asked to do.
    pub fn is_out_of_memory(&self) -> bool {
        // ONNX Runtime has no code of its own for this: these are the words of its arenas, of CUDA, and of C++.
        const WORDS: [&str; 5] =
            ["failed to allocate", "out of memory", "cudaerrormemoryallocation", "bad_alloc", "could not allocate"];
        match self {
            Self::OutOfMemory { .. } => true,
            Self::Session { message, .. } => WORDS.iter().any(|words| message.to_lowercase().contains(words)),
            _ => false,
        }
    }

    /// Whether this box cannot run the engine the way that was asked for.
    pub fn does_not_fit(&self) -> bool {
        matches!(
            self,
            Self::DoesNotFit { .. }
                | Self::NoStepDown { .. }
                | Self::NodesElsewhere { .. }
                | Self::ProviderUnusable { .. }
                | Self::CannotCompile { .. }
                | Self::NoCache
                | Self::Engine(tileforge_engine::Error::NothingCompiled { .. })
        )
    }

    pub(crate) fn file(path: &Path, action: &'static str, source: std::io::Error) -> Self {
        Self::File { path: path.to_owned(), action, source }
    }

    pub(crate) fn selftest(path: &Path, problem: impl Into<String>) -> Self {
        Self::SelfTest { path: path.to_owned(), problem: problem.into() }
    }
}

fn list(places: &[PathBuf]) -> String {
    places.iter().map(|place| format!("\n  {}", place.display())).collect()
}
