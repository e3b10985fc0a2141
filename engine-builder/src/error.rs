//! What can go wrong while an engine is built.

use crate::portable::NotCompiled;
use crate::{Origin, PrecisionOption};
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
    /// There is no model or profile of a name.
    #[error("{name}: {reason}")]
    NoSuchName {
        /// The name.
        name: String,
        /// What there is.
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
    /// The profile's machine does not support a precision.
    #[error("the machine of profile {profile} does not compute in {precision}: {reason}")]
    Precision {
        /// The profile's name.
        profile: String,
        /// The requested precision.
        precision: Precision,
        /// What the machine lacks.
        reason: String,
        /// The precisions that it supports.
        possible: Vec<Precision>,
    },
    /// The engine cannot be compiled on this machine.
    #[error("{profile}: an engine cannot be compiled here: {reason}")]
    Portable {
        /// The profile's name.
        profile: String,
        /// Why.
        reason: NotCompiled,
    },
    /// NVIDIA's builder refuses a graph, or cannot be used.
    #[error(transparent)]
    Plan(#[from] tileforge_tensorrt::Error),
    /// The process that builds a plan failed.
    #[error("{graph}: the builder of its plan failed: {reason}")]
    PlanProcess {
        /// The graph's file.
        graph: String,
        /// How the process ended.
        reason: String,
    },
    /// The sizes of a video network's graph are not given.
    #[error("{}: no profile says how many frames a chunk has", path.display())]
    NoSizes {
        /// The checkpoint or graph.
        path: PathBuf,
    },
    /// A graph or an engine missed its gates. Nothing was written.
    #[error("the gates were not passed; nothing was written\n{0}")]
    Gate(String),
    /// TensorRT would refuse a graph.
    #[error("{0}")]
    Lint(String),
    /// A model has several graphs and none was chosen, or none of the chosen name.
    #[error("{}: {}the model has the graphs {}", path.display(), none_of(found.as_deref()), graphs.join(", "))]
    ModelGraph {
        /// The model file.
        path: PathBuf,
        /// The requested name.
        found: Option<String>,
        /// The graphs that it has.
        graphs: Vec<String>,
    },
    /// A checkpoint's graph was chosen by a name that no task has.
    #[error("{reason}")]
    Component {
        /// The known names, and the one that was found.
        reason: String,
    },
    /// A file of a model is not on this machine.
    #[error(transparent)]
    MissingWeights(Box<MissingWeights>),
    /// A file has another digest or size than the model file states.
    #[error("{}: expected the SHA-256 {expected} ({}), found {found}: it is another file", path.display(),
        if record.is_some() { "recorded on first use" } else { "published" })]
    WrongWeights {
        /// The file.
        path: PathBuf,
        /// The file that records the digest of the first use; `None` for a published digest.
        record: Option<PathBuf>,
        /// The expected digest.
        expected: String,
        /// The file's digest.
        found: String,
    },
    /// A file of a model cannot be downloaded automatically.
    #[error("{model}: no program can download {file}{}", page.as_ref().map_or(String::new(), |page| format!(
        "; get it from {page}"
    )))]
    NoAddress {
        /// The model.
        model: String,
        /// The file.
        file: String,
        /// A page for people.
        page: Option<String>,
    },
    /// A download was requested, but the user's settings declare the machine offline.
    #[error("{model}: its weights are not on this machine, and downloads are switched off; they are at {url}")]
    Offline {
        /// The model.
        model: String,
        /// The address.
        url: String,
    },
    /// A server refused a download.
    #[error("{url}: the server refused the download ({status})")]
    Refused {
        /// The address.
        url: String,
        /// The HTTP status.
        status: u16,
        /// Whether the user's token was sent.
        has_token: bool,
    },
    /// A server sent something other than the file.
    #[error("{url}: {reason}")]
    Server {
        /// The address.
        url: String,
        /// What was expected, and what was found.
        reason: String,
    },
    /// A download was interrupted. The received part stays, and the next download resumes it.
    #[error("{url}: the download was cut: {reason}; what came is in {}, and the next download goes on from there",
        part.display())]
    Cut {
        /// The address.
        url: String,
        /// Where the received part is.
        part: PathBuf,
        /// Why it was interrupted.
        reason: String,
    },
    /// A server of weights cannot be trusted, or redirects to an address that cannot be used.
    #[error(transparent)]
    Download(Box<tileforge_registry::Error>),
    /// The disk has too little free space.
    #[error("{}: expected {needed} bytes of free space, found {free}", path.display())]
    Space {
        /// The folder of the unfinished download.
        path: PathBuf,
        /// Bytes that are needed.
        needed: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// A download received no byte.
    #[error("{url}: cannot be downloaded: {reason}")]
    NoDownload {
        /// The address.
        url: String,
        /// Why.
        reason: String,
    },
    /// The system has no certificates, so no server can be trusted.
    #[error("{url}: this system has no certificates of authorities to check the server with")]
    NoCertificates {
        /// The address.
        url: String,
    },
    /// Another process downloads the same file.
    #[error("{}: another process is downloading it", path.display())]
    Busy {
        /// The unfinished file.
        path: PathBuf,
    },
    /// A file holds the weights of a whole diffusion pipeline, without its configurations.
    #[error("{}: this is a whole pipeline in one file, without tokenizers and scheduler", path.display())]
    PipelineFile {
        /// The file.
        path: PathBuf,
    },
    /// A part of an engine cannot be built. Nothing was written.
    #[error("the part {part} cannot be built")]
    Part {
        /// The part's name.
        part: String,
        /// Why.
        source: Box<Error>,
    },
    /// A rebuild found other files than the engine was made from. Nothing was written.
    #[error("the engine was made of other files\n{}", changes.iter().map(|change| format!("  {change}"))
        .collect::<Vec<_>>().join("\n"))]
    ChangedSource {
        /// Each file with its recorded and its present digest.
        changes: Vec<String>,
    },
    /// The options of a build contradict each other or the kind of model.
    #[error(transparent)]
    Request(#[from] crate::request::RequestError),
    /// The manifest of an engine lacks something that a rebuild needs.
    #[error("{}: {missing}", engine.display())]
    Unrecorded {
        /// The engine.
        engine: PathBuf,
        /// What is missing.
        missing: crate::rebuild::Unrecorded,
    },
    /// A file or folder that the engine was made from was not found.
    #[error("{name}: the engine was made of it{}, and it is not in {}",
        origin.as_ref().map_or_else(String::new, |origin| format!(" (published at {origin})")), places(folders))]
    Ingredient {
        /// The name of the file or folder, as the manifest has it.
        name: String,
        /// What it is.
        ingredient: crate::rebuild::Ingredient,
        /// Where it was published.
        origin: Option<String>,
        /// The folders that were searched.
        folders: Vec<PathBuf>,
    },
    /// A scheduler's configuration cannot be used.
    #[error("{}", path.display())]
    Scheduler {
        /// The configuration.
        path: PathBuf,
        /// Why.
        source: tileforge_runtime::diffusion::schedulers::Error,
    },
    /// The parts of a pipeline cannot make a picture together. Nothing was written.
    #[error("the parts cannot make a picture together")]
    Picture(#[source] tileforge_runtime::Error),
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
    /// The engine or the graph would be written over an input file.
    #[error(transparent)]
    Output(tileforge_files::outputs::Collision),
    /// A picture for calibration cannot be read.
    #[error(transparent)]
    Image(#[from] tileforge_image::Error),
    /// The model's contract is broken.
    #[error(transparent)]
    Contract(#[from] tileforge_contract::Error),
}

/// A file of a model is not on this machine.
#[derive(Debug, thiserror::Error)]
#[error("{model}: {file} is not on this machine{}; it comes from {}, with the licence {licence}",
    in_megabytes(*size), place(origin.as_ref()))]
pub struct MissingWeights {
    /// The model.
    pub model: String,
    /// The file.
    pub file: String,
    /// Its bytes, if they are known.
    pub size: Option<u64>,
    /// The licence of the weights.
    pub licence: String,
    /// Where it is published.
    pub origin: Option<Origin>,
    /// The folders that were searched.
    pub folders: Vec<PathBuf>,
}

impl Error {
    /// The error without the name of the engine's part.
    pub fn root(&self) -> &Self {
        match self {
            Error::Part { source, .. } => source.root(),
            error => error,
        }
    }

    /// The same error, with paths in `to` instead of the removed or renamed folder `from`.
    #[must_use]
    pub(crate) fn relocated(self, from: &Path, to: &Path) -> Self {
        match self {
            Error::File { path, action, source } => Error::File { path: relocated(&path, from, to), action, source },
            Error::Input { path, reason } => Error::Input { path: relocated(&path, from, to), reason },
            Error::Graph(error) => Error::Graph(error.relocated(from, to)),
            Error::Engine(error) => Error::Engine(error.relocated(from, to)),
            Error::Session(error) => Error::Session(error.relocated(from, to)),
            Error::Part { part, source } => Error::Part { part, source: Box::new(source.relocated(from, to)) },
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

fn none_of(name: Option<&str>) -> String {
    name.map_or_else(String::new, |name| format!("expected one of its graphs, found `{name}`; "))
}

fn places(folders: &[PathBuf]) -> String {
    let place = |folder: &PathBuf| match folder.as_os_str().is_empty() {
        true => "the current folder".to_owned(),
        false => folder.display().to_string(),
    };
    folders.iter().map(place).collect::<Vec<_>>().join(", ")
}

fn in_megabytes(size: Option<u64>) -> String {
    size.map_or_else(String::new, |bytes| format!(" ({:.1} MB)", bytes as f64 / 1e6))
}

fn place(origin: Option<&Origin>) -> String {
    match origin {
        Some(Origin::Hub { repository, .. }) => format!("the hub's repository {repository}"),
        Some(Origin::Folder(address) | Origin::Page(address)) => address.clone(),
        None => "the folder of its model file".into(),
    }
}
