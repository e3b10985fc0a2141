//! What this process has not finished.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use parking_lot::{ReentrantMutex, ReentrantMutexGuard};

/// The paths of all unfinished files and folders of this process, in the order in which they were made. Two threads may
/// have the same one.
static LIVE: Mutex<BTreeMap<u64, (PathBuf, Abandoned)>> = Mutex::new(BTreeMap::new());
/// Held while something gets its name. Several files may get theirs together, so a thread may hold it twice.
static FINISHING: ReentrantMutex<()> = ReentrantMutex::new(());
/// Threads that still write into a folder make its removal fail. They end with the process, which does not wait for
/// them.
const ATTEMPTS: usize = 1000;

/// What becomes of something unfinished when its program ends at once.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Abandoned {
    /// It goes, with all that is in it.
    Removed,
    /// A folder that the next program goes on with goes only if nothing is in it.
    RemovedIfEmpty,
}

/// Something unfinished, until this is dropped.
#[derive(Debug)]
pub(crate) struct Live(u64);

impl Live {
    /// Makes something and notes its path. Nothing is made any more after [`abandon_all`].
    pub(crate) fn make<T>(
        abandoned: Abandoned,
        make: impl FnOnce() -> io::Result<T>,
        path: impl Fn(&T) -> PathBuf,
    ) -> io::Result<(T, Self)> {
        let mut live = LIVE.lock().unwrap_or_else(PoisonError::into_inner);
        let made = make()?;
        let path = path(&made);
        let number = live.last_key_value().map_or(0, |(number, _)| number + 1);
        live.insert(number, (path, abandoned));
        Ok((made, Self(number)))
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        LIVE.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
}

/// Makes folders in an unfinished one. The functions of the standard library would make that again, too, if a signal has
/// just had it removed.
///
/// # Errors
/// The system's reason.
pub fn create_folders(path: &Path) -> io::Result<()> {
    let _live = LIVE.lock().unwrap_or_else(PoisonError::into_inner);
    fs::create_dir_all(path)
}

/// While this is held, [`abandon_all`] waits. Hold it while an unfinished folder gets its name, or while several files
/// that belong together get theirs.
pub fn finishing() -> ReentrantMutexGuard<'static, ()> {
    FINISHING.lock()
}

/// Removes everything that this process has not finished, for a program that ends at once. From now on, nothing is
/// made and nothing gets its name: a thread that tries waits until the process ends.
pub fn abandon_all() {
    mem::forget(FINISHING.lock());
    let live = LIVE.lock().unwrap_or_else(PoisonError::into_inner);
    for (path, abandoned) in live.values() {
        match abandoned {
            Abandoned::Removed => remove(path),
            // What is in it stays.
            Abandoned::RemovedIfEmpty => drop(fs::remove_dir(path)),
        }
    }
    mem::forget(live);
}

fn remove(path: &Path) {
    for _ in 0..ATTEMPTS {
        let Ok(found) = fs::symlink_metadata(path) else { return };
        // What could not be removed is tried again: a thread may have written into it.
        let _ = if found.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    }
}
