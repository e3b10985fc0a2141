//! Names of opened files, and exchanging two folders.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::calls;
use super::state::Identity;

/// Exchanges two folders in one step. Windows cannot.
pub(crate) fn exchange(_one: &Path, _other: &Path) -> io::Result<bool> {
    Ok(false)
}

/// A path that leads to an opened file whatever its name is by now. Windows has no such paths.
pub(crate) fn path_of_opened(_file: &File) -> Option<PathBuf> {
    None
}

/// Gives an opened file a second name.
pub(crate) fn link(file: &File, target: &Path) -> io::Result<()> {
    fs::hard_link(calls::path_of(file)?, target)?;
    // The file that was opened cannot be renamed meanwhile if it was opened from its folder; any other one may have been.
    if Identity::of_unfollowed(target)? == Identity::of(file)? {
        return Ok(());
    }
    fs::remove_file(target)?;
    Err(io::ErrorKind::NotFound.into())
}
