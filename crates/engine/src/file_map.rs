//! Read-only mappings of files.
//!
//! Files are mapped only here, because mapping is `unsafe`: if another process truncates a mapped file, reads fail with
//! SIGBUS. Engine files are written once and renamed into place, and never changed. That makes mapping sound in
//! practice. The same condition holds for every program that maps model files.
#![allow(unsafe_code)]

use std::fs::{self, File};
use std::io;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, linkat};

use crate::error::{Error, Result};

/// The bytes of a file, loaded by the system as they are read. It stays the same file whatever happens to its name.
#[derive(Debug)]
pub(crate) struct FileMap {
    file: File,
    /// Most systems refuse to map an empty file.
    map: Option<memmap2::Mmap>,
}

impl FileMap {
    /// Maps the file at `path`.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        Self::of_file(tileforge_files::open(path), path)
    }

    /// Maps the file `name` of an opened folder; `path` is its path, for errors.
    pub(crate) fn open_in(folder: &File, name: &str, path: &Path) -> Result<Self> {
        Self::of_file(tileforge_files::open_in(folder, Path::new(name)), path)
    }

    fn of_file(opened: io::Result<File>, path: &Path) -> Result<Self> {
        let file = opened.map_err(|source| Error::file(path, "open", source))?;
        let length = file.metadata().map_err(|source| Error::file(path, "inspect", source))?.len();
        let map = if length == 0 {
            None
        } else {
            // SAFETY: the mapping is read-only and private to this value; the module's documentation speaks of files
            // that change while they are mapped.
            Some(unsafe { memmap2::Mmap::map(&file) }.map_err(|source| Error::file(path, "map", source))?)
        };
        Ok(Self { file, map })
    }

    /// Gives the file a second name, or copies it where that is impossible, such as on another file system.
    pub(crate) fn place_at(&self, target: &Path) -> Result<()> {
        // The descriptor is linked, not the path, which another file may have by now.
        let opened = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        if linkat(CWD, opened, CWD, target, AtFlags::SYMLINK_FOLLOW).is_ok() {
            return Ok(());
        }
        fs::write(target, &**self).map_err(|source| Error::file(target, "write", source))
    }
}

impl Deref for FileMap {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.map.as_deref().unwrap_or_default()
    }
}
