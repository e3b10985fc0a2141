//! Locks of unfinished files and folders.
//!
//! Windows cannot lock folders, and no other handle can read a locked part of a file. So a lock is a system object
//! named after the file's volume and index: it exists until the process that made it drops it or ends. Such objects
//! belong to one machine. Files on another machine have no lock, and are not removed as abandoned.

use std::fs::{File, TryLockError};
use std::io;
use std::os::windows::io::OwnedHandle;
use std::thread;
use std::time::Duration;

use super::calls;

/// The time between two attempts to get a lock.
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
        // The object belongs to another user.
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
