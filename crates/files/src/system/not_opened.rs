//! Why a folder is not opened.

use std::io;

/// Why a folder is not opened.
pub(crate) enum NotOpened {
    Missing,
    /// There is something else.
    NoFolder,
    Other(io::Error),
}
