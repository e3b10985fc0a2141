//! Devices and inodes of Unix.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The identity of a file or folder, its time of change, and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    modified: (i64, i64),
    length: u64,
}

impl Stamp {
    /// `None` if there is no file.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let found = fs::metadata(path).ok()?;
        let (device, inode) = (found.dev(), found.ino());
        Some(Self { device, inode, modified: (found.mtime(), found.mtime_nsec()), length: found.len() })
    }

    /// Only the identity, without time and length.
    pub(crate) fn identity(self) -> Self {
        Self { modified: (0, 0), length: 0, ..self }
    }
}
