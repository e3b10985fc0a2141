//! Times of Windows, to 100 ns.

use std::fs;
use std::os::windows::fs::MetadataExt;
use std::path::Path;

/// The times of creation and change of a file or folder, and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    made: u64,
    modified: u64,
    length: u64,
}

impl Stamp {
    /// `None` if there is no file.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let found = fs::metadata(path).ok()?;
        Some(Self { made: found.creation_time(), modified: found.last_write_time(), length: found.file_size() })
    }

    /// Only the identity, without time of change and length.
    pub(crate) fn identity(self) -> Self {
        Self { modified: 0, length: 0, ..self }
    }
}
