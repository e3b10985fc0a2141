//! Locks of unfinished files and folders. The opened file or folder holds its lock.

use std::fs::{File, TryLockError};
use std::io;

/// A lock, which an opened file holds until it is closed.
#[derive(Debug)]
pub(crate) struct Held;

pub(crate) fn try_lock(file: &File) -> Result<Held, TryLockError> {
    file.try_lock().map(|()| Held)
}

/// Waits until no other process holds the lock.
pub(crate) fn wait(file: &File) -> io::Result<Held> {
    file.lock().map(|()| Held)
}
