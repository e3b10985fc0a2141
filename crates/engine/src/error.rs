//! What can be wrong with an engine, its archive and its signature.

use std::io;
use std::path::{Path, PathBuf};

use tileforge_files::unfinished::relocated;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What is wrong with an engine. The text of an error never repeats its cause: walk [`std::error::Error::source`].
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
    /// There is no engine at a path.
    #[error("{}: {found}; give {}", path.display(), one_of(path, below))]
    NotAnEngine {
        /// Where an engine was expected.
        path: PathBuf,
        /// What is there instead.
        found: &'static str,
        /// The engines in that folder, as paths from there.
        below: Vec<String>,
    },
    /// There is no engine of a name.
    #[error("{name}: no such engine in {}{}", list(folders), known_text(known))]
    NoSuchEngine {
        /// The name, or the path where nothing is.
        name: String,
        /// The folders that were searched.
        folders: Vec<PathBuf>,
        /// The names of the engines in them.
        known: Vec<String>,
    },
    /// An engine of one network was expected, and this one has several parts.
    #[error("{}: expected an engine of one network, found one of the parts {}; each of these folders in it is an \
        engine", path.display(), parts.join(", "))]
    SeveralParts {
        /// The engine's directory.
        path: PathBuf,
        /// The names of its parts.
        parts: Vec<String>,
    },
    /// An engine of several parts was expected, and this one has a single network.
    #[error("{}: expected an engine of several parts, found one of a single network", path.display())]
    NoParts {
        /// The engine's directory.
        path: PathBuf,
    },
    /// A pipeline engine has no part of this name.
    #[error("{}: no part `{part}`; its parts are {}", path.display(), parts.join(", "))]
    NoSuchPart {
        /// The engine's directory.
        path: PathBuf,
        /// The requested name.
        part: String,
        /// The names of its parts.
        parts: Vec<String>,
    },
    /// The manifest has another schema.
    #[error("expected a manifest of schema {expected}, found {found}")]
    Schema {
        /// The schema that this release reads and writes.
        expected: u32,
        /// The manifest's schema.
        found: u32,
    },
    /// The manifest breaks a rule of its schema.
    #[error("{problem}")]
    Manifest {
        /// Where in the manifest, what was expected, and what was found.
        problem: String,
    },
    /// The manifest's contract breaks a rule, or a graph does not keep the contract.
    #[error(transparent)]
    Contract(#[from] tileforge_contract::Error),
    /// The shape of a graph's tensor breaks the contract.
    #[error("graphs.{file}: the contract is not kept")]
    Graph {
        /// The graph's file.
        file: String,
        /// The tensor.
        source: tileforge_contract::Error,
    },
    /// The graph has a fixed size, and another size was requested.
    #[error("graphs.{file}: its height and width are fixed")]
    FixedSize {
        /// The graph's file.
        file: String,
    },
    /// The requested size is larger than the graph's largest size.
    #[error("graphs.{file}: expected at most {most} pixels, found {found}")]
    TooManyPixels {
        /// The graph's file.
        file: String,
        /// The pixels of its largest size.
        most: usize,
        /// The requested pixels.
        found: usize,
    },
    /// More samples than the graph takes were requested.
    #[error("graphs.{file}: expected at most {most} samples, found {found}")]
    TooManySamples {
        /// The graph's file.
        file: String,
        /// Samples in its largest run.
        most: usize,
        /// The requested samples.
        found: usize,
    },
    /// A manifest cannot be used; the error's source has the reason.
    #[error("{}: not a valid engine manifest", path.display())]
    Invalid {
        /// The manifest's file.
        path: PathBuf,
        /// The broken rule.
        source: Box<Error>,
    },
    /// A file is not the one that the manifest lists.
    #[error("{}: expected {expected}, found {found}", path.display())]
    Altered {
        /// The file.
        path: PathBuf,
        /// Its listed length or digest.
        expected: String,
        /// Its real length or digest, or "missing".
        found: String,
    },
    /// A file is used or present that the manifest does not list. No digest and no signature covers it.
    #[error("{}: expected only files that the manifest lists, found this one", path.display())]
    Unlisted {
        /// The file.
        path: PathBuf,
    },
    /// A signature is required, and there is none.
    #[error("{}: a signature is required, and there is none", path.display())]
    Unsigned {
        /// Where it was expected.
        path: PathBuf,
    },
    /// The signature was not made with the required key.
    #[error("{}: {problem}", path.display())]
    Signature {
        /// The signature's file.
        path: PathBuf,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A file holds no key of the expected kind.
    #[error("{}: expected an Ed25519 {kind} key in PEM form, found {found}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// "public" or "private".
        kind: &'static str,
        /// What it holds instead.
        found: String,
    },
    /// The system provides no random numbers for a key.
    #[error("the system gives no random numbers: {reason}")]
    Random {
        /// The system's reason.
        reason: String,
    },
    /// An archive does not hold exactly one engine.
    #[error("{}: {problem}", path.display())]
    Archive {
        /// The archive, or the file in it.
        path: PathBuf,
        /// What was expected and what was found.
        problem: String,
    },
    /// An engine cannot be put at its place.
    #[error("{}: {problem}", path.display())]
    Place {
        /// Where the engine should go.
        path: PathBuf,
        /// What is there instead.
        problem: String,
    },
    /// The output would be written over something that is read.
    #[error(transparent)]
    Output(tileforge_files::outputs::Collision),
    /// TensorRT left no compiled graph.
    #[error("expected an EPContext model and at least one plan, found {} and {plans} \
        plans", if *context { "one" } else { "none" })]
    NothingCompiled {
        /// Whether there is an EPContext model.
        context: bool,
        /// Number of plans.
        plans: usize,
    },
    /// A thread of this crate panicked: a defect of this crate.
    #[error("internal: {0} stopped without an error; please report this")]
    Internal(&'static str),
}

/// "engines and /home/me/.local/share/tileforge/engines".
fn list(folders: &[PathBuf]) -> String {
    folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(" and ")
}

fn known_text(known: &[String]) -> String {
    if known.is_empty() { String::new() } else { format!(", where known are {}", known.join(", ")) }
}

/// What to give in the place of a folder that is no engine.
fn one_of(path: &Path, below: &[String]) -> String {
    if below.is_empty() {
        return "the folder of an engine".into();
    }
    let below = below.iter().take(8).map(|name| path.join(name).display().to_string());
    format!("one of the engines in it: {}", below.collect::<Vec<_>>().join(", "))
}

impl Error {
    /// An error of the operating system about a file or folder.
    pub fn file(path: &Path, action: &'static str, source: io::Error) -> Self {
        Self::File { path: path.to_owned(), action, source }
    }

    /// The same error, with a path in the folder `from` changed to the path in `to`: the folder `from` was removed or
    /// renamed to `to`.
    #[must_use]
    pub fn relocated(mut self, from: &Path, to: &Path) -> Self {
        if let Self::File { path, .. }
        | Self::NotAnEngine { path, .. }
        | Self::Invalid { path, .. }
        | Self::Altered { path, .. }
        | Self::Unlisted { path } = &mut self
        {
            *path = relocated(path, from, to);
        }
        self
    }

    /// There is no engine at `path`; `below` are those in that folder.
    pub(crate) fn not_an_engine(path: &Path, below: Vec<String>) -> Self {
        let found = match std::fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => "no manifest.json in this folder",
            Ok(_) if path.extension().is_some_and(|ending| ending == "tar") => {
                "an archive, of which `runtime unpack` makes a folder"
            }
            Ok(_) => "not a folder",
            Err(_) => "no such folder",
        };
        Self::NotAnEngine { path: path.to_owned(), found, below }
    }

    pub(crate) fn manifest(problem: impl Into<String>) -> Self {
        Self::Manifest { problem: problem.into() }
    }

    pub(crate) fn altered(path: &Path, expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self::Altered { path: path.to_owned(), expected: expected.into(), found: found.into() }
    }

    pub(crate) fn archive(path: &Path, problem: impl Into<String>) -> Self {
        Self::Archive { path: path.to_owned(), problem: problem.into() }
    }
}
