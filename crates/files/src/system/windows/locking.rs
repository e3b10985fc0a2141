//! Locks of what is unfinished.
//!
//! Windows locks no folders, and what is locked of a file no other handle can read. So a lock is an object of the
//! system with the name of the file's volume and index: it is there until the process that made it has ended. Such
//! objects are of one machine. What is on another machine has no lock, and is not removed as abandoned.

use std::fs::{File, TryLockError};
use std::io;
use std::os::windows::io::OwnedHandle;
use std::thread;
use std::time::Duration;

use super::calls;

/// Between two looks whether a lock is free.
const PAUSE: Duration = Duration::from_millis(50);

/// A lock, until it is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    _object: OwnedHandle,
}

pub(crate) fn try_lock(file: &File) -> Result<Held, TryLockError> {
    if calls::is_remote(file) {
        return Err(TryLockError::Error(io::ErrorKind::Unsupported.into()));
    }
    let found = calls::information(file).map_err(TryLockError::Error)?;
    let name = format!(r"Global\tileforge-{:x}-{:x}", found.volume, found.index);
    match calls::new_object(&name) {
        Ok(Some(object)) => Ok(Held { _object: object }),
        Ok(None) => Err(TryLockError::WouldBlock),
        // An object of another user.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(TryLockError::WouldBlock),
        Err(error) => Err(TryLockError::Error(error)),
    }
}

/// Waits until no other process holds the lock.
pub(crate) fn wait(file: &File) -> io::Result<Held> {
    loop {
        match try_lock(file) {
            Ok(held) => return Ok(held),
            Err(TryLockError::WouldBlock) => thread::sleep(PAUSE),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}
