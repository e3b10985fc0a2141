//! The errors of this crate.

use std::path::{Path, PathBuf};

use tileforge_contract::{DataType, Provider};
use tileforge_files::unfinished::relocated;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The name of ONNX Runtime in errors.
pub(crate) const ONNX_RUNTIME: &str = "ONNX Runtime";

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
        /// Every place that was searched.
        places: Vec<PathBuf>,
    },
    /// A named place holds no ONNX Runtime library.
    #[error("ONNX Runtime: {by} names {}, and there is no such library", path.display())]
    NoLibraryAt {
        /// The option or environment variable that names the place.
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
    /// The library cannot be loaded, because system libraries that it needs are missing.
    #[error("ONNX Runtime: {} cannot be loaded, because Microsoft's Visual C++ runtime is missing: expected {}",
        path.display(), missing.join(", "))]
    RuntimeMissing {
        /// The library's file.
        path: PathBuf,
        /// The names of the missing libraries.
        missing: Vec<&'static str>,
    },
    /// Another library is already loaded, and a process can load only one.
    #[error("ONNX Runtime: {} is loaded already, and a process has one; {} cannot be loaded, \
        too", loaded.display(), wanted.display())]
    LibraryLoaded {
        /// The loaded library.
        loaded: PathBuf,
        /// The requested library.
        wanted: PathBuf,
    },
    /// A library refused a graph or a run.
    #[error("{}: {library} cannot {action}: {message}", path.display())]
    Session {
        /// The library's name.
        library: &'static str,
        /// The graph's file.
        path: PathBuf,
        /// What was tried, as a verb.
        action: &'static str,
        /// The library's message.
        message: String,
    },
    /// The caller's [`Cancel`](crate::Cancel) ended the run.
    #[error("cancelled")]
    Cancelled,
    /// A tensor is not what the graph expects.
    #[error("{}: {tensor}: expected {expected}, found {found}", path.display())]
    Tensor {
        /// The file of the graph, or of the tensors.
        path: PathBuf,
        /// The tensor's name.
        tensor: String,
        /// What was expected.
        expected: String,
        /// What was found.
        found: String,
    },
    /// A tensor has elements of another type than requested.
    #[error("expected elements of {expected}, found {found}")]
    ElementType {
        /// The requested type.
        expected: DataType,
        /// The tensor's type.
        found: DataType,
    },
    /// A provider cannot be used on this machine.
    #[error("provider {provider}: cannot be used on this machine: {reason}")]
    ProviderUnusable {
        /// The provider.
        provider: Provider,
        /// What is missing.
        reason: String,
    },
    /// A provider refuses its options.
    #[error("{provider} does not take its options: {reason}")]
    ProviderOptions {
        /// The provider.
        provider: Provider,
        /// The provider's message.
        reason: String,
    },
    /// No allowed provider can run the engine on this machine.
    #[error("{verdict}")]
    DoesNotFit {
        /// Every provider with the reason against it.
        verdict: Box<crate::Verdict>,
    },
    /// The engine would run, but not on the provider that it was built for, and a step down is not allowed.
    #[error("{verdict}")]
    NoStepDown {
        /// Every provider with the reason against it.
        verdict: Box<crate::Verdict>,
    },
    /// None of several engines runs on this machine.
    #[error("none of the engines fits this machine:{}", lines(verdicts))]
    NoneFits {
        /// Every engine with the reasons against it.
        verdicts: Vec<crate::Verdict>,
    },
    /// Every engine that runs on this machine is a fallback, and the caller accepts no fallback.
    #[error("no engine fits this machine exactly:{}", lines(verdicts))]
    NotExact {
        /// Every engine with the reasons against it.
        verdicts: Vec<crate::Verdict>,
    },
    /// Some nodes would run on another provider, and that is not allowed.
    #[error("{}: {nodes} {} would run on {found} instead of {expected}", path.display(), if *nodes == 1 { "node" } else { "nodes" })]
    NodesElsewhere {
        /// The graph's file.
        path: PathBuf,
        /// Number of such nodes.
        nodes: usize,
        /// The provider that all nodes should run on.
        expected: Provider,
        /// ONNX Runtime's name of the other provider.
        found: String,
    },
    /// Nothing can be compiled, because TensorRT, its version or the GPU is unknown.
    #[error("{graph}: cannot be compiled: TensorRT, its version or the GPU is not known")]
    CannotCompile {
        /// The graph's file.
        graph: String,
    },
    /// The engine has no plan of a graph.
    #[error("{graph}: the engine has no plan of it for RTX GPUs")]
    NoPlan {
        /// The graph's file.
        graph: String,
    },
    /// No GPU of this machine has added anything to the engine, so there is nothing to take along.
    #[error(
        "{engine}: no GPU of this machine has added anything to it; expected what TensorRT compiled, or the \
        runtime cache of a plan"
    )]
    NothingAdded {
        /// The engine's name.
        engine: String,
    },
    /// A result has to be kept, and the environment has no cache folder.
    #[error("there is no cache folder to keep what is compiled or pulled in")]
    NoCache,
    /// There is not enough memory, on this machine or on a GPU.
    #[error("no memory for a tensor of {shape:?}: {reason}")]
    OutOfMemory {
        /// The tensor's shape.
        shape: Vec<usize>,
        /// ONNX Runtime's message.
        reason: String,
    },
    /// The engine's self-test cannot be read or run.
    #[error("{}: {problem}", path.display())]
    SelfTest {
        /// The self-test's file.
        path: PathBuf,
        /// What was expected and what was found.
        problem: String,
    },
}

impl Error {
    /// ONNX Runtime cannot load the graph.
    pub(crate) fn unloaded(path: &Path, message: String) -> Self {
        Self::Session { library: ONNX_RUNTIME, path: path.to_owned(), action: "load the graph", message }
    }

    /// Whether ONNX Runtime ran out of memory, on this machine or on a GPU.
    pub fn is_out_of_memory(&self) -> bool {
        match self {
            Self::OutOfMemory { .. } => true,
            Self::Session { message, .. } => says_out_of_memory(message),
            _ => false,
        }
    }

    /// Whether this machine cannot run the engine in the requested way.
    pub fn does_not_fit(&self) -> bool {
        matches!(
            self,
            Self::DoesNotFit { .. }
                | Self::NoStepDown { .. }
                | Self::NoneFits { .. }
                | Self::NotExact { .. }
                | Self::NodesElsewhere { .. }
                | Self::ProviderUnusable { .. }
                | Self::CannotCompile { .. }
                | Self::NoPlan { .. }
                | Self::NoCache
                | Self::NothingAdded { .. }
                | Self::Engine(tileforge_engine::Error::NothingCompiled { .. })
        )
    }

    /// The same error, with a path in the folder `from` changed to the path in `to`: the folder `from` was removed or
    /// renamed to `to`.
    #[must_use]
    pub fn relocated(mut self, from: &Path, to: &Path) -> Self {
        // ONNX Runtime's message contains the path of the file.
        if let Self::Session { message, .. } = &mut self {
            *message = message.replace(&*from.to_string_lossy(), &to.to_string_lossy());
        }
        match self {
            Self::Engine(error) => Self::Engine(error.relocated(from, to)),
            Self::File { ref mut path, .. }
            | Self::Session { ref mut path, .. }
            | Self::Tensor { ref mut path, .. }
            | Self::NodesElsewhere { ref mut path, .. }
            | Self::SelfTest { ref mut path, .. } => {
                *path = relocated(path, from, to);
                self
            }
            other => other,
        }
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

fn lines(verdicts: &[crate::Verdict]) -> String {
    verdicts.iter().map(|verdict| format!("\n  {verdict}")).collect()
}

/// Whether a library says that memory did not suffice. No library has an error code for this. These are the messages of
/// ONNX Runtime's arenas, of CUDA, cuBLAS and cuDNN, of C++ and of OpenVINO.
pub(crate) fn says_out_of_memory(message: &str) -> bool {
    const WORDS: [&str; 8] = [
        "failed to allocate",
        "resource allocation failed",
        "alloc_failed",
        "out of memory",
        "cudaerrormemoryallocation",
        "bad_alloc",
        "could not allocate",
        "can not allocate",
    ];
    let message = message.to_lowercase();
    WORDS.iter().any(|words| message.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_libraries_say_of_memory_is_recognised() {
        for message in [
            "BFCArena::AllocateRawInternal Failed to allocate memory for requested buffer of size 1",
            "CUDA error 2: out of memory",
            "CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED",
            "std::bad_alloc",
        ] {
            assert!(Error::unloaded(Path::new("x"), message.into()).is_out_of_memory(), "{message}");
        }
        assert!(Error::OutOfMemory { shape: vec![1], reason: "full".into() }.is_out_of_memory());
        assert!(!Error::unloaded(Path::new("x"), "no such operator".into()).is_out_of_memory());
        assert!(!Error::NoCache.is_out_of_memory());
    }
}
