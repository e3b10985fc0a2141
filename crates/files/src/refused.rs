//! Why a file is not read.

use std::io;

/// Why a file or folder is refused. It is the inner error of an [`io::Error`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The path is not a regular file.
    #[error("expected a regular file, found {found}")]
    NotRegular {
        /// What the path is instead, with its article.
        found: &'static str,
    },
    /// The file is longer than the limit.
    #[error("expected at most {most} bytes, found {found}")]
    TooLong {
        /// The limit.
        most: u64,
        /// The file's length.
        found: u64,
    },
    /// The file is a placeholder whose content is in a cloud.
    #[error(
        "its content is not on this machine, but with OneDrive or another cloud; let that keep the file on this device, \
         and try again"
    )]
    Elsewhere,
    /// Another user owns the file or folder at this path, or can change it.
    #[error("expected {expected} of your own, found {found}; remove it, or name another place")]
    NotOwn {
        /// What the path should be, with its article.
        expected: &'static str,
        /// What the path is instead.
        found: String,
    },
}

/// The error for a path that is not a regular file.
pub(crate) fn not_regular(found: &'static str, is_folder: bool) -> io::Error {
    let kind = if is_folder { io::ErrorKind::IsADirectory } else { io::ErrorKind::InvalidInput };
    io::Error::new(kind, Refused::NotRegular { found })
}

/// The error for a folder that is not this user's own.
pub(crate) fn not_own(found: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, Refused::NotOwn { expected: "a folder", found })
}
