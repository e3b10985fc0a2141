//! The errors of this crate, grouped by what a caller can do about them.

use tileforge_registry::Error as RegistryError;
use tileforge_runtime::Error as RuntimeError;
use tileforge_session::Error as SessionError;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong. The text of an error never repeats its cause: walk [`std::error::Error::source`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An engine does not run here, or a request failed.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// An engine cannot be pulled from a registry.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The engine is for another task.
    #[error("expected an engine for {expected}, found one for {found}")]
    OtherTask {
        /// What it was opened as.
        expected: &'static str,
        /// What it is for.
        found: String,
    },
    /// Pixels in memory do not match their description.
    #[error("pixels: expected {expected}, found {found}")]
    Pixels {
        /// What was expected.
        expected: String,
        /// What was found.
        found: String,
    },
    /// One picture is expected, but the latent belongs to a clip.
    #[error("expected the latent of one picture, found that of a clip of {frames} frames")]
    Clip {
        /// The frames.
        frames: usize,
    },
    /// A temporary file for a picture in memory cannot be made.
    #[error("cannot keep a picture for its decoder or encoder")]
    Temporary(#[source] std::io::Error),
}

/// What a caller can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The input is invalid: change it.
    InvalidInput,
    /// It does not fit a device or its memory: use another engine or device.
    DoesNotFit,
    /// Too many requests wait, or another process pulls the same engine: try again later.
    Busy,
    /// The caller cancelled the request.
    Cancelled,
    /// The request's deadline has passed.
    Deadline,
    /// An unexpected failure: the message states where it failed.
    Failed,
}

impl Error {
    /// What a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Runtime(error) => of_runtime(error.root()),
            Self::OtherTask { .. } | Self::Pixels { .. } | Self::Clip { .. } => ErrorKind::InvalidInput,
            Self::Registry(error) => of_registry(error),
            Self::Temporary(_) => ErrorKind::Failed,
        }
    }
}

fn of_registry(error: &RegistryError) -> ErrorKind {
    match error {
        RegistryError::Reference { .. } | RegistryError::NotFound { .. } | RegistryError::Engine(_) => {
            ErrorKind::InvalidInput
        }
        RegistryError::Busy { .. } => ErrorKind::Busy,
        // Connections, certificates, a registry's answers, this machine's disk.
        _ => ErrorKind::Failed,
    }
}

fn of_runtime(error: &RuntimeError) -> ErrorKind {
    use RuntimeError as E;
    match error {
        E::Cancelled => ErrorKind::Cancelled,
        E::Deadline => ErrorKind::Deadline,
        E::QueueFull { .. } | E::Closed => ErrorKind::Busy,
        E::Session(error) => of_session(error),
        error if error.is_out_of_memory() => ErrorKind::DoesNotFit,
        E::Diffusion(diffusion::Error::NotFinite { .. })
        | E::Internal(_)
        | E::Thread { .. }
        | E::Taken
        | E::File { .. } => ErrorKind::Failed,
        E::Image(error) => match error {
            tileforge_image::Error::NotFinite { .. } => ErrorKind::Failed,
            tileforge_image::Error::File { source, .. } if source.kind() != std::io::ErrorKind::NotFound => {
                ErrorKind::Failed
            }
            _ => ErrorKind::InvalidInput,
        },
        // The rest concerns the input: sizes, tensors, tensor files, texts.
        _ => ErrorKind::InvalidInput,
    }
}

fn of_session(error: &SessionError) -> ErrorKind {
    match error {
        SessionError::Cancelled => ErrorKind::Cancelled,
        error if error.is_out_of_memory() => ErrorKind::DoesNotFit,
        SessionError::DoesNotFit { .. }
        | SessionError::NoStepDown { .. }
        | SessionError::NoneFits { .. }
        | SessionError::NotExact { .. }
        | SessionError::ProviderUnusable { .. } => ErrorKind::DoesNotFit,
        SessionError::Tensor { .. } | SessionError::ElementType { .. } | SessionError::Engine(_) => {
            ErrorKind::InvalidInput
        }
        _ => ErrorKind::Failed,
    }
}

use tileforge_runtime::diffusion;

macro_rules! through_runtime {
    ($($error:ty,)+) => {
        $(impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Self::Runtime(error.into())
            }
        })+
    };
}

through_runtime! {
    tileforge_image::Error,
    tileforge_engine::Error,
    SessionError,
    tileforge_contract::Error,
    diffusion::Error,
}
