//! The identity of a file, and its state, which changes with the file.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::system::FileState;

/// The device and the inode of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Identity(u64, u64);

impl Identity {
    fn new(found: &Metadata) -> Self {
        Self(found.dev(), found.ino())
    }

    pub(crate) fn of(file: &File) -> io::Result<Self> {
        Ok(Self::new(&file.metadata()?))
    }

    /// The identity of a path's target. Links are followed.
    pub(crate) fn of_path(path: &Path) -> io::Result<Self> {
        Ok(Self::new(&fs::metadata(path)?))
    }

    /// The identity of a path. A link is not followed.
    pub(crate) fn of_unfollowed(path: &Path) -> io::Result<Self> {
        Ok(Self::new(&fs::symlink_metadata(path)?))
    }
}

impl FileState {
    pub(crate) fn of(file: &File) -> io::Result<Self> {
        Ok(Self::new(&file.metadata()?))
    }

    pub(crate) fn of_path(path: &Path) -> io::Result<Self> {
        Ok(Self::new(&fs::metadata(path)?))
    }

    fn new(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            length: metadata.len(),
            written: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}
