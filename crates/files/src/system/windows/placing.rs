//! Names of opened files, and exchanging two folders.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use windows_sys::Win32::Foundation::{ERROR_ACCESS_DENIED, ERROR_SHARING_VIOLATION, ERROR_USER_MAPPED_FILE};

use super::calls;
use super::state::Identity;

/// Exchanges two folders in one step. Always returns false, because Windows cannot do this.
pub(crate) fn exchange(_one: &Path, _other: &Path) -> io::Result<bool> {
    Ok(false)
}

/// The reason why a file or folder cannot be replaced. If a program has it open, Windows only reports that access is
/// denied, so a hint is added.
pub(crate) fn not_replaced(error: io::Error) -> io::Error {
    let code = error.raw_os_error().map(i32::cast_unsigned);
    if !matches!(code, Some(ERROR_ACCESS_DENIED | ERROR_SHARING_VIOLATION | ERROR_USER_MAPPED_FILE)) {
        return error;
    }
    let what = "a program may have it open, and nothing was changed; end that program, and try again";
    io::Error::new(error.kind(), format!("{error}: {what}"))
}

/// A path that leads to an opened file even if it has been renamed. Always `None`, because Windows has no such paths.
pub(crate) fn path_of_opened(_file: &File) -> Option<PathBuf> {
    None
}

/// Makes a hard link to an opened file.
pub(crate) fn link(file: &File, target: &Path) -> io::Result<()> {
    fs::hard_link(calls::path_of(file)?, target)?;
    // A file that was opened relative to its folder cannot be renamed meanwhile; any other file may have been, so
    // check the link.
    if Identity::of_unfollowed(target)? == Identity::of(file)? {
        return Ok(());
    }
    fs::remove_file(target)?;
    Err(io::ErrorKind::NotFound.into())
}
