//! The unfinished files and folders of this process.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use parking_lot::{ReentrantMutex, ReentrantMutexGuard};

/// The paths of all unfinished files and folders of this process, in the order in which they were made. Two threads
/// may have the same path.
static REGISTERED: Mutex<BTreeMap<u64, (PathBuf, Abandoned)>> = Mutex::new(BTreeMap::new());
/// Held while a file or folder gets its final name. Several files may get their names together, so a thread may hold
/// it twice.
static FINISHING: ReentrantMutex<()> = ReentrantMutex::new(());
/// Most attempts to remove a folder. Threads that still write into it make the removal fail, and the process does not
/// wait for these threads.
const ATTEMPTS: usize = 1000;

/// What happens to an unfinished file or folder when its program ends at once.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Abandoned {
    /// It is removed with its content.
    Removed,
    /// A folder that the next program continues with is removed only if it is empty.
    RemovedIfEmpty,
}

/// An entry in the list of unfinished files and folders, removed on drop.
#[derive(Debug)]
pub(crate) struct Registered(u64);

impl Registered {
    /// Makes a file or folder and lists its path. After [`abandon_all`], nothing more is made: the thread waits.
    pub(crate) fn make<T>(
        abandoned: Abandoned,
        make: impl FnOnce() -> io::Result<T>,
        path: impl Fn(&T) -> PathBuf,
    ) -> io::Result<(T, Self)> {
        let mut registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
        let made = make()?;
        let path = path(&made);
        let number = registered.last_key_value().map_or(0, |(number, _)| number + 1);
        registered.insert(number, (path, abandoned));
        Ok((made, Self(number)))
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        REGISTERED.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
}

/// Makes folders in an unfinished folder. If a signal has just made this process remove the unfinished folder, the
/// standard library's functions would make it again; this function waits instead.
///
/// # Errors
/// The system's reason.
pub fn create_folders(path: &Path) -> io::Result<()> {
    let _registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    fs::create_dir_all(path)
}

/// While the guard is held, [`abandon_all`] waits. Hold it while an unfinished folder gets its final name, or while
/// several files that belong together get theirs.
pub fn finishing() -> ReentrantMutexGuard<'static, ()> {
    FINISHING.lock()
}

/// Removes all unfinished files and folders of this process, for a program that ends at once. From now on, nothing is
/// made and nothing gets its final name: a thread that tries waits until the process ends.
pub fn abandon_all() {
    mem::forget(FINISHING.lock());
    let registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    for (path, abandoned) in registered.values() {
        match abandoned {
            Abandoned::Removed => remove(path),
            // Fails if the folder is not empty, so that its content stays.
            Abandoned::RemovedIfEmpty => drop(fs::remove_dir(path)),
        }
    }
    mem::forget(registered);
}

fn remove(path: &Path) {
    for _ in 0..ATTEMPTS {
        let Ok(found) = fs::symlink_metadata(path) else { return };
        // Try again after a failure: a thread may have written into the folder.
        let _ = if found.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    }
}
