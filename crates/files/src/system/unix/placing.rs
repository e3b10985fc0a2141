//! Names of opened files, and exchanging two folders.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, RenameFlags, linkat, renameat_with};
use rustix::io::Errno;

use super::state::Identity;

/// Exchanges two folders in one step. Returns whether it did, because not every file system supports this.
pub(crate) fn exchange(one: &Path, other: &Path) -> io::Result<bool> {
    match renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE) {
        Ok(()) => Ok(true),
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The reason why a file or folder cannot be replaced, unchanged: Unix replaces files even if other programs have them
/// open.
pub(crate) fn not_replaced(error: io::Error) -> io::Error {
    error
}

/// A path that leads to an opened file even if it has been renamed; `None` if the file has no name any more, or if the
/// system has no such paths.
pub(crate) fn path_of_opened(file: &File) -> Option<PathBuf> {
    let path = descriptor(file);
    let named = Identity::of_path(&fs::canonicalize(&path).ok()?).ok()?;
    // This process may have lost the right to open the file again.
    let again = Identity::of(&File::open(&path).ok()?).ok()?;
    let opened = Identity::of(file).ok()?;
    [named, again].iter().all(|other| *other == opened).then_some(path)
}

/// Makes a hard link to an opened file.
pub(crate) fn link(file: &File, target: &Path) -> io::Result<()> {
    // Link the descriptor, not the path, which another file may have by now.
    Ok(linkat(CWD, descriptor(file), CWD, target, AtFlags::SYMLINK_FOLLOW)?)
}

/// Linux's path of an opened file.
fn descriptor(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}
