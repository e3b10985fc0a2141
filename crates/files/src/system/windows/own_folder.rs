//! A folder of this user, and its files, which are opened only relative to the opened folder.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use windows_sys::Wdk::Storage::FileSystem::{
    FILE_CREATE, FILE_NON_DIRECTORY_FILE, FILE_OPEN, FILE_OPEN_REPARSE_POINT, NTCREATEFILE_CREATE_DISPOSITION,
};
use windows_sys::Win32::Storage::FileSystem::{DELETE, FILE_GENERIC_READ, FILE_GENERIC_WRITE, SYNCHRONIZE};

use super::calls;
use super::opening::{SHARED, no_link, unfollowed};
use super::standing::{Standing, private};
use crate::system::NotOpened;

/// Makes a folder that no other user may enter, unless its path already exists.
pub(crate) fn make(path: &Path) -> io::Result<()> {
    match calls::make_folder(path, &private(true)?) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// An opened folder.
#[derive(Debug)]
pub(crate) struct OwnFolder(File);

impl OwnFolder {
    /// Opens a folder. A link is not followed, and opening never waits.
    pub(crate) fn open(path: &Path) -> Result<Self, NotOpened> {
        let file = match unfollowed(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(NotOpened::Missing),
            opened => opened.map_err(NotOpened::Other)?,
        };
        // A link to a folder does not count as a folder.
        match file.metadata() {
            Ok(found) if found.is_dir() => Ok(Self(file)),
            Ok(_) => Err(NotOpened::NoFolder),
            Err(error) => Err(NotOpened::Other(error)),
        }
    }

    pub(crate) fn as_file(&self) -> &File {
        &self.0
    }

    fn at(&self, name: &str, access: u32, disposition: NTCREATEFILE_CREATE_DISPOSITION) -> io::Result<File> {
        let options = FILE_OPEN_REPARSE_POINT | FILE_NON_DIRECTORY_FILE;
        let how = calls::Opening { access, share: SHARED, disposition, options };
        calls::open_in(&self.0, Path::new(name), how)
    }

    /// Opens a file to read and write; `None` if there is no regular file, or if it has another owner than the folder
    /// or a second name.
    pub(crate) fn open_file(&self, name: &str) -> io::Result<Option<File>> {
        match self.at(name, FILE_GENERIC_READ | FILE_GENERIC_WRITE, FILE_OPEN) {
            Ok(file) => {
                let has_one_name = calls::information(&file)?.links == 1;
                let is_own = Standing::of(&file)?.account() == Standing::of(&self.0)?.account();
                Ok((file.metadata()?.is_file() && has_one_name && is_own).then_some(file))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes a file that does not exist yet. It inherits the rights of the folder, which no other user may enter.
    pub(crate) fn create(&self, name: &str) -> io::Result<File> {
        self.at(name, FILE_GENERIC_READ | FILE_GENERIC_WRITE, FILE_CREATE)
    }

    /// Opens a file to read it. A link is not followed.
    pub(crate) fn read(&self, name: &str) -> io::Result<File> {
        no_link(self.at(name, FILE_GENERIC_READ, FILE_OPEN)?)
    }

    /// Removes a file, if it exists.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        match self.at(name, DELETE | SYNCHRONIZE, FILE_OPEN) {
            Ok(file) => calls::remove(&file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Moves a file to the path `to`, and replaces an older file there.
    pub(crate) fn rename(&self, name: &str, to: &Path) -> io::Result<()> {
        calls::rename(&self.at(name, DELETE | SYNCHRONIZE, FILE_OPEN)?, to)
    }

    /// Renames the file `name` to `older` within the folder, and replaces an older file of this name.
    pub(crate) fn replace(&self, older: &str, name: &str) -> io::Result<()> {
        self.rename(name, &calls::path_of(&self.0)?.join(older))
    }

    /// Makes a hard link to a file.
    pub(crate) fn link(&self, name: &str, second: &Path) -> io::Result<()> {
        super::placing::link(&self.read(name)?, second)
    }

    /// Free bytes of the file system for this user.
    pub(crate) fn free_bytes(&self) -> io::Result<u64> {
        calls::free_bytes(&calls::path_of(&self.0)?)
    }

    pub(crate) fn names(&self) -> io::Result<Vec<String>> {
        let entries = fs::read_dir(calls::path_of(&self.0)?)?;
        entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }
}
