//! Read-only mappings of files.
//!
//! The one place where a file is mapped, because mapping is `unsafe`: another process that
//! truncates the file while it is mapped makes reads fail with SIGBUS. Engine files are written
//! once and renamed into place (never modified), which is the condition that makes this sound in
//! practice; the same holds for every reader of model files that maps them.
#![allow(unsafe_code)]

use std::fs::File;
use std::ops::Deref;
use std::path::Path;

use crate::error::{Error, Result};

/// The bytes of a file, paged in as they are read.
pub(crate) struct FileMap(Option<memmap2::Mmap>);

impl FileMap {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|source| Error::file(path, "open", source))?;
        let length = file.metadata().map_err(|source| Error::file(path, "inspect", source))?.len();
        // Mapping nothing is an error on most systems.
        if length == 0 {
            return Ok(Self(None));
        }
        // SAFETY: the mapping is read-only and private to this value; see the module's note on
        // files that change while they are mapped.
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
