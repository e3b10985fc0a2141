//! Why a command did not end with exit code 0.

use std::io;
use std::path::{Path, PathBuf};

use tileforge_files::outputs::Collision;
use tileforge_runtime::Error;
use tileforge_terminal::{self as terminal, Exit, PrintError, chain, chain_with};

use super::advice::{advice, of_registry};

/// Why a command did not end with exit code 0.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The library's error, with its chain of causes.
    Runtime(Error),
    /// The operating system refused an operation on a file or folder of the command itself.
    File {
        /// The file or folder.
        path: PathBuf,
        /// What was tried, as a verb.
        action: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// A film cannot be read or written, or ffmpeg is missing.
    Film(tileforge_film::Error),
    /// Something between an engine and a registry failed.
    Registry(Box<tileforge_registry::Error>),
    /// Libraries cannot be installed.
    Setup(String),
    /// Invalid arguments, or arguments that exclude each other.
    Usage(String),
    /// A gate or a self-test failed; the figures have been printed.
    Gate(String),
    /// Some pictures of several failed, and their errors have been printed.
    Partly(String),
    /// Results cannot be printed.
    Print(PrintError),
}

pub(crate) type CommandResult = Result<(), Failure>;

macro_rules! from_errors {
    ($($error:ty),+) => { $(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self::Runtime(error.into())
            }
        }
    )+ };
}

from_errors!(
    Error,
    tileforge_contract::Error,
    tileforge_engine::Error,
    tileforge_image::Error,
    tileforge_image::TilingError,
    tileforge_session::Error
);

impl From<tileforge_registry::Error> for Failure {
    fn from(error: tileforge_registry::Error) -> Self {
        Self::Registry(error.into())
    }
}

impl From<tileforge_film::Error> for Failure {
    fn from(error: tileforge_film::Error) -> Self {
        Self::Film(error)
    }
}

impl From<PrintError> for Failure {
    fn from(error: PrintError) -> Self {
        Self::Print(error)
    }
}

impl From<Collision> for Failure {
    fn from(collision: Collision) -> Self {
        Self::Usage(collision.to_string())
    }
}

impl Failure {
    pub(crate) fn file(path: &Path, action: &'static str, source: io::Error) -> Self {
        Self::File { path: path.to_owned(), action, source }
    }

    /// Whether the reader of the frames has closed the pipe.
    fn is_closed_pipe(&self) -> bool {
        let Self::Runtime(error) = self else { return false };
        matches!(error.root(), Error::Image(tileforge_image::Error::File { source, .. })
            if source.kind() == io::ErrorKind::BrokenPipe)
    }
}

impl terminal::Failure for Failure {
    fn exit(&self) -> Exit {
        match self {
            Self::Runtime(error) => match error.root() {
                Error::Session(error) if error.does_not_fit() => Exit::DoesNotFit,
                Error::Cancelled => Exit::Stopped,
                error if is_of_arguments(error) => Exit::Usage,
                _ => Exit::Failed,
            },
            Self::File { .. }
            | Self::Film(_)
            | Self::Registry(_)
            | Self::Setup(_)
            | Self::Partly(_)
            | Self::Print(_) => Exit::Failed,
            Self::Usage(_) => Exit::Usage,
            Self::Gate(_) => Exit::Gate,
        }
    }

    /// The error's text; `None` if the reader of the frames has closed the pipe. The command still fails, because not
    /// all frames were written.
    fn text(&self) -> Option<String> {
        if self.is_closed_pipe() {
            return None;
        }
        Some(match self {
            Self::Runtime(error) => error_text(error),
            Self::File { path, action, source } => format!("{}: cannot {action}\n  because: {source}", path.display()),
            Self::Film(error) => chain(error),
            Self::Registry(error) => chain_with(error.as_ref(), of_registry(error)),
            Self::Setup(text) | Self::Usage(text) | Self::Gate(text) | Self::Partly(text) => text.clone(),
            Self::Print(error) => chain(error),
        })
    }
}

/// Whether arguments ask for what there is not, or contradict each other.
fn is_of_arguments(error: &Error) -> bool {
    use tileforge_image::TilingError;
    use tileforge_runtime::diffusion::{self, schedulers};
    match error {
        Error::NoSuchTile { .. }
        | Error::NoSuchGraph { .. }
        | Error::NoSuchInputSize { .. }
        | Error::TileTooLarge { .. }
        | Error::NoSuchBatch { .. }
        | Error::SharedFrames { .. }
        | Error::TooThin { .. }
        | Error::Image(tileforge_image::Error::Tiling(
            TilingError::Overlap { .. } | TilingError::Margin { .. } | TilingError::TooFewPixels { .. },
        )) => true,
        Error::Engine(error) => {
            matches!(error, tileforge_engine::Error::NoSuchEngine { .. } | tileforge_engine::Error::NoSuchPart { .. })
        }
        Error::Diffusion(error) => matches!(
            error,
            diffusion::Error::Range { .. }
                | diffusion::Error::SizeMultiple { .. }
                | diffusion::Error::NoSuchSize { .. }
                | diffusion::Error::NoSuchText { .. }
                | diffusion::Error::Inputs { .. }
                | diffusion::Error::Prompt(_)
                | diffusion::Error::Scheduler(
                    schedulers::Error::Sampler { .. }
                        | schedulers::Error::SamplerSpread { .. }
                        | schedulers::Error::Steps { .. }
                        | schedulers::Error::Spacing { .. }
                        | schedulers::Error::Range { .. }
                        | schedulers::Error::StepsOfStrength { .. }
                        | schedulers::Error::NoSteps { .. }
                )
        ),
        _ => false,
    }
}

/// An error with its causes, one a line, and what to type.
pub(crate) fn error_text(error: &Error) -> String {
    chain_with(error, advice(error).as_deref())
}

#[cfg(test)]
mod tests {
    use tileforge_terminal::Failure as _;

    use super::*;

    #[test]
    fn each_failure_has_its_exit_code() {
        let codes = [
            Failure::from(Error::Cancelled),
            Failure::Usage(String::new()),
            Failure::from(tileforge_session::Error::NoCache),
            Failure::Gate(String::new()),
            Failure::from(Error::Closed),
            Failure::from(Error::NoSuchBatch { wanted: 3, known: vec![1] }),
        ]
        .map(|failure| failure.exit());
        assert_eq!(codes, [Exit::Stopped, Exit::Usage, Exit::DoesNotFit, Exit::Gate, Exit::Failed, Exit::Usage]);
    }

    #[test]
    fn frames_that_nobody_reads_are_no_error_to_speak_of() {
        let failure = |kind: io::ErrorKind| {
            let (path, source) = ("standard output".into(), kind.into());
            Failure::from(tileforge_image::Error::File { path, action: "write", source })
        };
        assert_eq!(failure(io::ErrorKind::BrokenPipe).text(), None);
        assert!(failure(io::ErrorKind::StorageFull).text().is_some());
        assert_eq!(failure(io::ErrorKind::BrokenPipe).exit(), Exit::Failed);
    }
}
