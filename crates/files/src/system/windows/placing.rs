//! Names of opened files, and exchanging two folders.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use windows_sys::Win32::Foundation::{ERROR_ACCESS_DENIED, ERROR_SHARING_VIOLATION, ERROR_USER_MAPPED_FILE};

use super::calls;
use super::state::Identity;

/// Exchanges two folders in one step. Windows cannot.
pub(crate) fn exchange(_one: &Path, _other: &Path) -> io::Result<bool> {
    Ok(false)
}

/// The reason why a file or folder cannot be replaced. Windows says no more than that it is denied where a program has
/// it open.
pub(crate) fn not_replaced(error: io::Error) -> io::Error {
    let code = error.raw_os_error().map(i32::cast_unsigned);
    if !matches!(code, Some(ERROR_ACCESS_DENIED | ERROR_SHARING_VIOLATION | ERROR_USER_MAPPED_FILE)) {
        return error;
    }
    let what = "a program may have it open, and nothing was changed; end that program, and try again";
    io::Error::new(error.kind(), format!("{error}: {what}"))
}

/// A path that leads to an opened file whatever its name is by now. Windows has no such paths.
pub(crate) fn path_of_opened(_file: &File) -> Option<PathBuf> {
    None
}

/// Gives an opened file a second name.
pub(crate) fn link(file: &File, target: &Path) -> io::Result<()> {
    fs::hard_link(calls::path_of(file)?, target)?;
    // The file that was opened cannot be renamed meanwhile if it was opened from its folder; any other one may have
    // been.
    if Identity::of_unfollowed(target)? == Identity::of(file)? {
        return Ok(());
    }
    fs::remove_file(target)?;
    Err(io::ErrorKind::NotFound.into())
}
