//! What can go wrong between an engine and its pixels.

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
    /// The engine is not whole, or its manifest breaks a rule.
    #[error(transparent)]
    Engine(#[from] tileforge_engine::Error),
    /// The engine does not run here.
    #[error(transparent)]
    Session(#[from] tileforge_session::Error),
    /// The engine is one of another task.
    #[error(transparent)]
    Contract(#[from] tileforge_contract::Error),
    /// The engine has no tiles of the size that was asked for.
    #[error("the engine has no tiles of {wanted}, only of {}", known.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    NoSuchTile {
        /// The size that was asked for.
        wanted: Size,
        /// The sizes that it has.
        known: Vec<Size>,
    },
    /// Alpha cannot be enlarged.
    #[error("cannot enlarge alpha: {reason}")]
    Alpha {
        /// The resizer's reason.
        reason: String,
    },
    /// The caller asked to stop.
    #[error("stopped before the end; what was not finished is not there")]
    Cancelled,
    /// A thread of this program panicked: a defect of ours.
    #[error("internal: the {0} stage stopped without an error; please report this")]
    Internal(&'static str),
}

impl From<TilingError> for Error {
    fn from(error: TilingError) -> Self {
        Self::Image(error.into())
    }
}

impl Error {
    /// Whether memory, of this machine or of a GPU, did not suffice.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Session(error) if error.is_out_of_memory())
    }
}
