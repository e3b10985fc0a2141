//! Why a folder is not opened.

use std::io;

/// Why a folder is not opened.
pub(crate) enum NotOpened {
    Missing,
    /// The path is not a folder.
    NoFolder,
    Other(io::Error),
}
