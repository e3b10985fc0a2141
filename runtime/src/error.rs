//! The errors of this crate.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tileforge_image::{Size, TilingError};

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong. The text of an error never repeats its cause: walk [`std::error::Error::source`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A picture cannot be read, cut, joined or written.
    #[error(transparent)]
    Image(#[from] tileforge_image::Error),
    /// The engine is incomplete, or its manifest breaks a rule.
    #[error(transparent)]
    Engine(#[from] tileforge_engine::Error),
    /// The engine does not run here.
    #[error(transparent)]
    Session(tileforge_session::Error),
    /// The engine is for another task.
    #[error(transparent)]
    Contract(#[from] tileforge_contract::Error),
    /// A diffusion pipeline, or a request to it, is invalid.
    #[error(transparent)]
    Diffusion(#[from] crate::diffusion::Error),
    /// The operating system refused an operation on a file or folder.
    #[error("{}: cannot {action}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// What was tried, as a verb: "read", "create".
        action: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// A file of tensors cannot be read or written.
    #[error("{}: {problem}", path.display())]
    TensorFile {
        /// The file.
        path: PathBuf,
        /// What was expected, what was found, and what to do.
        problem: String,
    },
    /// A map of depth cannot be read or written.
    #[error("{}: {problem}", path.display())]
    DepthMap {
        /// The map's file.
        path: PathBuf,
        /// What was expected, what was found, and what to do.
        problem: String,
    },
    /// A picture and its map have different sizes.
    #[error("expected a depth map of the picture's size {picture}, found {map}")]
    MapSize {
        /// The picture's size.
        picture: Size,
        /// The map's.
        map: Size,
    },
    /// A picture and its mask have different sizes.
    #[error("expected a mask of the picture's size {picture}, found {mask}")]
    MaskSize {
        /// The picture's size.
        picture: Size,
        /// The mask's.
        mask: Size,
    },
    /// A picture does not have the one size that the network takes.
    #[error("expected a picture of {expected}, the one size that the network takes, found {found}")]
    OnlySize {
        /// The size that the network takes.
        expected: Size,
        /// The picture's size.
        found: Size,
    },
    /// A clip has more frames than the engine for its first chunk takes, and there is no engine for later chunks.
    #[error("the clip has more than {frames} frames, and there is no engine for later chunks")]
    ClipTooLong {
        /// Frames of the first chunk.
        frames: usize,
    },
    /// An engine of several parts has no part, or several parts, for some work.
    #[error("{}: expected one {wanted} among its parts, found {}; its parts are {}", path.display(),
        if found.is_empty() { "none".into() } else { found.join(", ") }, parts.join(", "))]
    NoPart {
        /// The engine's directory.
        path: PathBuf,
        /// What the part should do.
        wanted: &'static str,
        /// The parts that do it.
        found: Vec<String>,
        /// All its parts.
        parts: Vec<String>,
    },
    /// The engine restores nothing.
    #[error("the engine {engine:?} does not restore films: it lacks the states of a text for its transformer")]
    NoRestoration {
        /// The engine's name.
        engine: String,
    },
    /// A result would have a side of one pixel.
    #[error("frames of {frame} become {resized}, and a result has at least two rows and columns")]
    TooThin {
        /// The size of the frames.
        frame: Size,
        /// What it becomes.
        resized: Size,
    },
    /// Batches cannot share as many frames as they have.
    #[error("expected batches that share fewer frames than the {batch} that the engine takes together, found {shared}")]
    SharedFrames {
        /// Frames that they should share.
        shared: usize,
        /// Frames of a batch.
        batch: usize,
    },
    /// A tensor is not what the engine takes.
    #[error("{tensor}: expected {expected}, found {found}")]
    Tensor {
        /// The tensor's name.
        tensor: String,
        /// What was expected.
        expected: String,
        /// What was found.
        found: String,
    },
    /// The engine has no graph for inputs of the given shapes.
    #[error("the engine has no graph for {wanted}; it has some for:{}", lines(known))]
    NoSuchShapes {
        /// The shapes that were asked for.
        wanted: String,
        /// The shapes that it has.
        known: Vec<String>,
    },
    /// The engine has no tiles of the size that was asked for.
    #[error("the engine has no tiles of {wanted}, only of \
        {}", known.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    NoSuchTile {
        /// The size that was asked for.
        wanted: Size,
        /// The sizes that it has.
        known: Vec<Size>,
    },
    /// The engine has no graph of the size that was asked for.
    #[error("the engine has no graph for {wanted}, only for \
        {}", known.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    NoSuchGraph {
        /// The size that was asked for.
        wanted: Size,
        /// The sizes that it has.
        known: Vec<Size>,
    },
    /// The engine has no graph for pictures of this size in the network.
    #[error("with an input size of {input_size}, a picture of {picture} has {wanted} in the network, and the engine \
        has no graph for that, only for {}", known.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    NoSuchInputSize {
        /// The size of the picture.
        picture: Size,
        /// The least length of its shorter side in the network, as it was asked for.
        input_size: u32,
        /// The size that follows from both.
        wanted: Size,
        /// The sizes that it has.
        known: Vec<Size>,
    },
    /// The engine takes tiles of any size, but not with as many pixels as were asked for.
    #[error("the engine takes tiles of at most as many pixels as {largest}, and {wanted} has more")]
    TileTooLarge {
        /// The size that was asked for.
        wanted: Size,
        /// One of the largest sizes that it takes.
        largest: Size,
    },
    /// The engine has no graph for as many images as were asked for.
    #[error("the engine has no graph for {wanted} images in one run, only for \
        {}", known.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    NoSuchBatch {
        /// The number that was asked for.
        wanted: usize,
        /// The numbers that it has graphs for, the least first.
        known: Vec<usize>,
    },
    /// Alpha cannot be enlarged.
    #[error("cannot enlarge alpha: {reason}")]
    Alpha {
        /// The resizer's reason.
        reason: String,
    },
    /// The caller asked to stop.
    #[error("stopped before the end; no unfinished output is left")]
    Cancelled,
    /// The queue is full.
    #[error("the queue is full: {capacity} requests wait already; try again later")]
    QueueFull {
        /// How many may wait.
        capacity: usize,
    },
    /// The service is closed.
    #[error("no more requests are taken")]
    Closed,
    /// A stream or a clip has no frame.
    #[error("expected at least one frame, found none")]
    NoFrames,
    /// The request's deadline has passed.
    #[error("the deadline has passed; no unfinished output is left")]
    Deadline,
    /// The result was already taken.
    #[error("the result was already taken")]
    Taken,
    /// The host's budget does not hold an engine.
    #[error(
        "{engine}: a session takes at least {needed} bytes, and the budget of {budget} bytes does not have \
        that much left beside what is in use; raise the budget"
    )]
    OverBudget {
        /// The engine's name.
        engine: String,
        /// Bytes that a session takes at least.
        needed: u64,
        /// Bytes of the budget.
        budget: u64,
    },
    /// The system cannot start a thread.
    #[error("cannot start the {name} thread")]
    Thread {
        /// The thread's name.
        name: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// An error that ended several requests.
    #[error(transparent)]
    Shared(Arc<Error>),
    /// A thread of this program panicked: a bug.
    #[error("internal: the {0} stage stopped without an error; please report this")]
    Internal(String),
}

impl From<tileforge_session::Error> for Error {
    fn from(error: tileforge_session::Error) -> Self {
        match error {
            tileforge_session::Error::Cancelled => Self::Cancelled,
            error => Self::Session(error),
        }
    }
}

impl From<TilingError> for Error {
    fn from(error: TilingError) -> Self {
        Self::Image(error.into())
    }
}

impl Error {
    pub(crate) fn file(path: &Path, action: &'static str, source: io::Error) -> Self {
        Self::File { path: path.to_owned(), action, source }
    }

    pub(crate) fn tensor_file(path: &Path, problem: impl Into<String>) -> Self {
        Self::TensorFile { path: path.to_owned(), problem: tileforge_files::bounded(problem.into()) }
    }

    /// The underlying error, without the wrapper of an error that ended several requests.
    pub fn root(&self) -> &Self {
        if let Self::Shared(error) = self { error.root() } else { self }
    }

    pub(crate) fn internal(stage: &str) -> Self {
        Self::Internal(stage.to_owned())
    }

    /// Copies or wraps an error that ended several requests, for one of them.
    pub(crate) fn shared(error: &Arc<Self>) -> Self {
        match **error {
            Self::Cancelled => Self::Cancelled,
            _ => Self::Shared(error.clone()),
        }
    }

    /// Whether the memory of this machine or a GPU, or the host's budget, did not suffice.
    pub fn is_out_of_memory(&self) -> bool {
        match self.root() {
            Self::Session(error) => error.is_out_of_memory(),
            Self::OverBudget { .. } => true,
            _ => false,
        }
    }
}

fn lines(items: &[String]) -> String {
    items.iter().map(|item| format!("\n  {item}")).collect()
}
