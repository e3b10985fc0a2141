//! Read-only mappings of files.
//!
//! Files are mapped only here, because mapping is `unsafe`: if another process truncates a mapped file, reads fail with
//! SIGBUS. Engine files are written once and renamed into place, and never changed. That makes mapping sound in
//! practice. The same condition holds for every program that maps model files.
#![allow(unsafe_code)]

use std::ops::Deref;
use std::path::Path;

use crate::error::{Error, Result};

/// The bytes of a file, loaded by the system as they are read.
pub(crate) struct FileMap(Option<memmap2::Mmap>);

impl FileMap {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = tileforge_files::open(path).map_err(|source| Error::file(path, "open", source))?;
        let length = file.metadata().map_err(|source| Error::file(path, "inspect", source))?.len();
        // Most systems refuse to map an empty file.
        if length == 0 {
            return Ok(Self(None));
        }
        // SAFETY: the mapping is read-only and private to this value; the module's documentation speaks of files that
        // change while they are mapped.
        let map = unsafe { memmap2::Mmap::map(&file) };
        Ok(Self(Some(map.map_err(|source| Error::file(path, "map", source))?)))
    }
}

impl Deref for FileMap {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}
