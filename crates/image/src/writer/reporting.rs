//! A file whose first error is kept.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::sync::{Arc, OnceLock};

/// A file that remembers its first error, because encoders drop some errors or turn them into text.
pub(super) struct Reporting {
    pub(super) file: File,
    pub(super) failure: Failure,
}

#[derive(Clone, Default)]
pub(super) struct Failure(Arc<OnceLock<io::Error>>);

impl Failure {
    pub(super) fn error(&self) -> Option<io::Error> {
        let error = self.0.get()?;
        Some(
            error
                .raw_os_error()
                .map_or_else(|| io::Error::new(error.kind(), error.to_string()), io::Error::from_raw_os_error),
        )
    }

    pub(super) fn note<T>(&self, result: io::Result<T>) -> io::Result<T> {
        result.inspect_err(|error| {
            if error.kind() != io::ErrorKind::Interrupted {
                let copy = error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error);
                // A later error is a consequence of the first.
                let _ = self.0.set(copy);
            }
        })
    }
}

impl Write for Reporting {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.failure.note(self.file.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.failure.note(self.file.flush())
    }
}

impl Seek for Reporting {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        self.failure.note(self.file.seek(position))
    }
}
