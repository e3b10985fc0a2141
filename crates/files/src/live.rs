//! What this process has not finished.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use parking_lot::{ReentrantMutex, ReentrantMutexGuard};

/// The paths of all unfinished files and folders of this process.
static LIVE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
/// Held while something gets its name. Several files may get theirs together, so a thread may hold it twice.
static FINISHING: ReentrantMutex<()> = ReentrantMutex::new(());
/// Threads that still write into a folder make its removal fail. They end with the process, which does not wait for
/// them.
const ATTEMPTS: usize = 1000;

/// Something unfinished, until this is dropped.
#[derive(Debug)]
pub(crate) struct Live(PathBuf);

impl Live {
    /// Makes something and notes its path. Nothing is made any more after [`abandon_all`].
    pub(crate) fn make<T>(make: impl FnOnce() -> io::Result<T>, path: impl Fn(&T) -> &Path) -> io::Result<(T, Self)> {
        let mut live = LIVE.lock().unwrap_or_else(PoisonError::into_inner);
        let made = make()?;
        let path = path(&made).to_owned();
        live.insert(path.clone());
        Ok((made, Self(path)))
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        LIVE.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
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
    live.iter().for_each(|path| remove(path));
    mem::forget(live);
}

fn remove(path: &Path) {
    for _ in 0..ATTEMPTS {
        let Ok(found) = fs::symlink_metadata(path) else { return };
        // What could not be removed is tried again: a thread may have written into it.
        let _ = if found.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    }
}
