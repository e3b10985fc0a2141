//! The errors of this crate.

use std::io;
use std::path::{Path, PathBuf};

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong. The text of an error never repeats its cause.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A program of ffmpeg is not installed.
    #[error(
        "films are read and written by ffmpeg {least} or later, and its program {program} is not on PATH; install the \
         package ffmpeg (Debian, Ubuntu: apt install ffmpeg; Fedora: dnf install ffmpeg; macOS: brew install ffmpeg)"
    )]
    Missing {
        /// `ffmpeg` or `ffprobe`.
        program: &'static str,
        /// The oldest accepted version.
        least: String,
    },
    /// A program of ffmpeg is too old.
    #[error(
        "expected {program} {least} or later, found {found}; install a newer one, such as a build from \
         https://ffmpeg.org/download.html, and put its folder first on PATH"
    )]
    TooOld {
        /// `ffmpeg` or `ffprobe`.
        program: &'static str,
        /// The oldest accepted version.
        least: String,
        /// Its version.
        found: String,
    },
    /// A program cannot be started.
    #[error("cannot start {program}")]
    Start {
        /// Its name.
        program: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// The file is not a film that can be processed.
    #[error("{}: {problem}", path.display())]
    Film {
        /// The film.
        path: PathBuf,
        /// What was expected, what was found, and what to do.
        problem: String,
    },
    /// The film cannot be written in the requested way.
    #[error("{}: {problem}", path.display())]
    Output {
        /// The output film.
        path: PathBuf,
        /// What was expected, what was found, and what to do.
        problem: String,
    },
    /// The operating system refused something on a file.
    #[error("{}: cannot {action}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What was tried, as a verb.
        action: &'static str,
        /// The system's reason.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn film(path: &Path, problem: impl Into<String>) -> Self {
        Self::Film { path: path.to_owned(), problem: problem.into() }
    }

    pub(crate) fn output(path: &Path, problem: impl Into<String>) -> Self {
        Self::Output { path: path.to_owned(), problem: problem.into() }
    }

    pub(crate) fn file(path: &Path, action: &'static str, source: io::Error) -> Self {
        Self::File { path: path.to_owned(), action, source }
    }
}

/// For errors that occur while frames are read and written.
impl From<Error> for tileforge_image::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::File { path, action, source } => Self::File { path, action, source },
            Error::Film { path, problem } | Error::Output { path, problem } => Self::Image { path, problem },
            other => Self::Image { path: "ffmpeg".into(), problem: other.to_string() },
        }
    }
}
