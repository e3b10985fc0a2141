//! Why a file is not read.

use std::io;

/// Why a file is not read. It is the inner error of an [`io::Error`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// There is something else at this path.
    #[error("expected a regular file, found {found}")]
    NotRegular {
        /// What is there, with its article.
        found: &'static str,
    },
    /// The file is longer than anything of its kind.
    #[error("expected at most {most} bytes, found {found}")]
    TooLong {
        /// The limit.
        most: u64,
        /// The file's length.
        found: u64,
    },
    /// The file is a placeholder: its content is in a cloud.
    #[error(
        "its content is not on this machine, but with OneDrive or another cloud; let that keep the file on this device, \
         and try again"
    )]
    Elsewhere,
    /// What is at this path is not this user's own.
    #[error("expected {expected} of your own, found {found}; remove it, or name another place")]
    NotOwn {
        /// What it has to be, with its article.
        expected: &'static str,
        /// What is there.
        found: String,
    },
}

/// The error of something that is no regular file.
pub(crate) fn not_regular(found: &'static str, is_folder: bool) -> io::Error {
    let kind = if is_folder { io::ErrorKind::IsADirectory } else { io::ErrorKind::InvalidInput };
    io::Error::new(kind, Refused::NotRegular { found })
}

/// The error of a folder that is not this user's own.
pub(crate) fn not_own(found: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, Refused::NotOwn { expected: "a folder", found })
}
