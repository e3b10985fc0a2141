//! Opening files and folders.

use std::fs::{self, File, FileType};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};

/// Opens a path of any kind to read it, and never waits for another program.
pub(crate) fn read(path: &Path) -> io::Result<File> {
    read_at(CWD, path)
}

/// As [`read`], by a path relative to an opened folder.
pub(crate) fn read_in(folder: &File, path: &Path) -> io::Result<File> {
    read_at(folder.as_fd(), path)
}

/// Opens a folder.
pub(crate) fn folder(path: &Path) -> io::Result<File> {
    folder_at(CWD, path)
}

/// Opens a folder by its path relative to an opened folder.
pub(crate) fn folder_in(folder: &File, path: &Path) -> io::Result<File> {
    folder_at(folder.as_fd(), path)
}

/// Opens a file to read and append to it, or makes it. A link is not followed.
pub(crate) fn append(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // The permissions of any new file.
    let mode = Mode::from_raw_mode(0o666);
    Ok(rustix::fs::openat(CWD, path, flags | OFlags::NONBLOCK | OFlags::NOCTTY, mode)?.into())
}

/// Opens a file or a folder to lock it. A link is not followed.
pub(crate) fn unfollowed(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    Ok(rustix::fs::openat(CWD, path, flags, Mode::empty())?.into())
}

/// A path that leads to an opened folder, even if it has been renamed.
pub(crate) fn path_of_folder(folder: &File) -> io::Result<PathBuf> {
    Ok(format!("/proc/self/fd/{}", folder.as_raw_fd()).into())
}

/// The name of a kind that is not a file, a folder or a link, with its article.
pub(crate) fn special(kind: FileType) -> &'static str {
    if kind.is_fifo() {
        "a named pipe"
    } else if kind.is_socket() {
        "a socket"
    } else if kind.is_char_device() || kind.is_block_device() {
        "a device"
    } else {
        "something else"
    }
}

/// Whether a path leads to a named pipe.
pub(crate) fn is_named_pipe(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo())
}

fn read_at(folder: BorrowedFd<'_>, path: &Path) -> io::Result<File> {
    // Without NONBLOCK, opening a named pipe waits until another program writes to it. NONBLOCK has no effect on
    // regular files. NOCTTY: opening a terminal must not make it the controlling terminal.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    Ok(rustix::fs::openat(folder, path, flags, Mode::empty())?.into())
}

fn folder_at(folder: BorrowedFd<'_>, path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(folder, path, flags, Mode::empty())?.into())
}
