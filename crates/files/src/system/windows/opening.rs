//! Opening files and folders.
//!
//! Names such as `NUL` and `COM1` are devices in every folder, and `\\.\pipe\NAME` is a pipe. They are refused by their
//! names, because opening a device may already have an effect. What is opened all the same is asked what it is.

use std::fs::{File, FileType, OpenOptions};
use std::io;
use std::os::windows::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf, Prefix};

use windows_sys::Wdk::Storage::FileSystem::{FILE_DIRECTORY_FILE, FILE_OPEN};
use windows_sys::Win32::Storage::FileSystem::{
    FILE_APPEND_DATA, FILE_FLAG_BACKUP_SEMANTICS, FILE_FLAG_OPEN_REPARSE_POINT, FILE_GENERIC_READ,
    FILE_READ_ATTRIBUTES, FILE_SHARE_DELETE, FILE_SHARE_READ, FILE_SHARE_WRITE, READ_CONTROL, SYNCHRONIZE,
};

use super::calls;
use crate::refused::not_regular;

/// As on Unix, an opened file does not keep others from writing, renaming or removing it.
pub(super) const SHARED: u32 = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;

/// Opens whatever is at a path to read it, and never waits for another program.
pub(crate) fn read(path: &Path) -> io::Result<File> {
    // Without BACKUP_SEMANTICS, opening a folder says no more than that it is denied.
    open(path, OpenOptions::new().read(true).custom_flags(FILE_FLAG_BACKUP_SEMANTICS))
}

/// As [`read`], by a path from an opened folder. While it is open, no process can write, rename or remove the file.
pub(crate) fn read_in(folder: &File, path: &Path) -> io::Result<File> {
    let how = calls::Opening { access: FILE_GENERIC_READ, share: FILE_SHARE_READ, disposition: FILE_OPEN, options: 0 };
    no_device(calls::open_in(folder, path, how)?)
}

/// Opens a folder.
pub(crate) fn folder(path: &Path) -> io::Result<File> {
    folder_only(read(path)?)
}

/// Opens a folder by its path from an opened folder.
pub(crate) fn folder_in(folder: &File, path: &Path) -> io::Result<File> {
    let how = calls::Opening {
        access: FILE_GENERIC_READ,
        share: SHARED,
        disposition: FILE_OPEN,
        options: FILE_DIRECTORY_FILE,
    };
    calls::open_in(folder, path, how)
}

fn folder_only(file: File) -> io::Result<File> {
    if file.metadata()?.is_dir() { Ok(file) } else { Err(io::ErrorKind::NotADirectory.into()) }
}

/// Opens a file to read it and to write behind its end, or makes it. A link is not followed.
pub(crate) fn append(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).access_mode(FILE_GENERIC_READ | FILE_APPEND_DATA | SYNCHRONIZE);
    no_link(open(path, options.custom_flags(FILE_FLAG_OPEN_REPARSE_POINT))?)
}

/// Opens a file or a folder to lock it. A link is not followed.
pub(crate) fn unfollowed(path: &Path) -> io::Result<File> {
    open(path, OpenOptions::new().read(true).custom_flags(FILE_FLAG_BACKUP_SEMANTICS | FILE_FLAG_OPEN_REPARSE_POINT))
}

/// Opens what is at a path, to ask what it is. `follow`: a link leads on.
pub(super) fn inspect(path: &Path, follow: bool) -> io::Result<File> {
    with_rights(path, FILE_READ_ATTRIBUTES, follow)
}

/// Opens what is at a path, to ask whose it is. A link is not followed.
pub(super) fn inspect_security(path: &Path) -> io::Result<File> {
    with_rights(path, FILE_READ_ATTRIBUTES | READ_CONTROL, false)
}

fn with_rights(path: &Path, rights: u32, follow: bool) -> io::Result<File> {
    let reparse = if follow { 0 } else { FILE_FLAG_OPEN_REPARSE_POINT };
    let mut options = OpenOptions::new();
    options.access_mode(rights).custom_flags(FILE_FLAG_BACKUP_SEMANTICS | reparse);
    open(path, &options)
}

/// A path that leads to an opened folder.
pub(crate) fn path_of_folder(folder: &File) -> io::Result<PathBuf> {
    calls::path_of(folder)
}

/// What is neither a file nor a folder nor a link, with its article.
pub(crate) fn special(_kind: FileType) -> &'static str {
    "something else"
}

/// Whether a path leads to a named pipe.
pub(crate) fn is_named_pipe(path: &Path) -> bool {
    device(path).is_ok_and(|found| found == Some("a named pipe"))
}

fn open(path: &Path, options: &OpenOptions) -> io::Result<File> {
    match device(path)? {
        Some(found) => Err(not_regular(found, false)),
        None => no_device(options.clone().share_mode(SHARED).open(path)?),
    }
}

/// What a path names that is no place of a file, with its article.
fn device(path: &Path) -> io::Result<Option<&'static str>> {
    // Windows turns `folder\NUL` into `\\.\NUL`.
    let absolute = std::path::absolute(path)?;
    let Some(Component::Prefix(prefix)) = absolute.components().next() else { return Ok(None) };
    Ok(match prefix.kind() {
        Prefix::DeviceNS(name) if name.eq_ignore_ascii_case("pipe") => Some("a named pipe"),
        Prefix::DeviceNS(_) => Some("a device"),
        _ => None,
    })
}

fn no_device(file: File) -> io::Result<File> {
    match calls::special(&file) {
        None => Ok(file),
        Some(found) => Err(not_regular(found, false)),
    }
}

pub(super) fn no_link(file: File) -> io::Result<File> {
    if file.metadata()?.is_symlink() { Err(not_regular("a link", false)) } else { Ok(file) }
}
