//! A folder of this user, and its files, which are reached only through the opened folder.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags};
use rustix::io::Errno;

use crate::system::NotOpened;

/// Makes a folder that no other user may enter, unless its path already exists.
pub(crate) fn make(path: &Path) -> io::Result<()> {
    match rustix::fs::mkdirat(CWD, path, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// An opened folder.
#[derive(Debug)]
pub(crate) struct OwnFolder(File);

impl OwnFolder {
    /// Opens a folder. A link is not followed, and opening never waits.
    pub(crate) fn open(path: &Path) -> Result<Self, NotOpened> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        match rustix::fs::openat(CWD, path, flags, Mode::empty()) {
            Err(Errno::NOENT) => Err(NotOpened::Missing),
            // For a link, Linux returns the former error, and other systems return the latter.
            Err(Errno::NOTDIR | Errno::LOOP) => Err(NotOpened::NoFolder),
            opened => opened.map(|opened| Self(opened.into())).map_err(|error| NotOpened::Other(error.into())),
        }
    }

    pub(crate) fn as_file(&self) -> &File {
        &self.0
    }

    /// Opens a file to read and write; `None` if there is no regular file, or if it has another owner than the folder
    /// or a second name.
    pub(crate) fn open_file(&self, name: &str) -> io::Result<Option<File>> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        match rustix::fs::openat(&self.0, name, flags, Mode::empty()) {
            Ok(file) => {
                let (file, folder) = (File::from(file), self.0.metadata()?);
                let found = file.metadata()?;
                let is_own = |found: &Metadata| found.is_file() && found.nlink() == 1 && found.uid() == folder.uid();
                Ok(is_own(&found).then_some(file))
            }
            // A link, or a socket.
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes a file that does not exist yet. No other user may enter the folder, so the file has the mode of any new
    /// file.
    pub(crate) fn create(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let made: OwnedFd = rustix::fs::openat(&self.0, name, flags, Mode::from_raw_mode(0o666))?;
        Ok(made.into())
    }

    /// Opens a file to read it. A link is not followed.
    pub(crate) fn read(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = File::from(rustix::fs::openat(&self.0, name, flags, Mode::empty())?);
        if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    /// Removes a file, if it exists.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.0, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Moves a file to the path `to`, and replaces an older file there.
    pub(crate) fn rename(&self, name: &str, to: &Path) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.0, name, CWD, to)?)
    }

    /// Renames the file `name` to `older` within the folder, and replaces an older file of this name.
    pub(crate) fn replace(&self, older: &str, name: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.0, name, &self.0, older)?)
    }

    /// Makes a hard link to a file.
    pub(crate) fn link(&self, name: &str, second: &Path) -> io::Result<()> {
        match rustix::fs::linkat(&self.0, name, CWD, second, AtFlags::empty()) {
            Err(Errno::EXIST) => Err(io::ErrorKind::AlreadyExists.into()),
            linked => Ok(linked?),
        }
    }

    /// Free bytes of the file system for this user.
    pub(crate) fn free_bytes(&self) -> io::Result<u64> {
        let found = rustix::fs::fstatvfs(&self.0)?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }

    pub(crate) fn names(&self) -> io::Result<Vec<String>> {
        let entries = Dir::read_from(&self.0)?;
        let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        let names = names.collect::<io::Result<Vec<_>>>()?;
        Ok(names.into_iter().filter(|name| name != "." && name != "..").collect())
    }
}
