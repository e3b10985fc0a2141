//! The bytes of an engine's files.

use std::fs::{self, File};
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use tileforge_files::Mapped;

use crate::error::{Error, Result};
use crate::hexadecimal::hexadecimal;

/// Bytes that are digested before they are released from memory: a multiple of every page size.
const CHUNK: usize = 16 << 20;

/// The memory-mapped bytes of a file. They stay the same file's bytes, even if the file is renamed or removed.
#[derive(Debug)]
pub(crate) struct FileMap(Mapped);

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
        Mapped::new(file).map(Self).map_err(|source| Error::file(path, "map", source))
    }

    /// A path that leads to the opened file; `None` if it has lost its name, or if the system has no such paths.
    pub(crate) fn opened_path(&self) -> Option<PathBuf> {
        self.0.opened_path()
    }

    /// SHA-256 of the bytes, as [`sha256`](crate::digest::sha256) gives it. Digested bytes are released from this
    /// process's memory, and stay in the system's file cache.
    pub(crate) fn sha256(&self) -> String {
        let mut digest = Sha256::new();
        for (number, chunk) in self.chunks(CHUNK).enumerate() {
            digest.update(chunk);
            self.0.release(number * CHUNK..number * CHUNK + chunk.len());
        }
        hexadecimal(&digest.finalize())
    }

    /// Makes a hard link to the file at `target`, or a copy where that is impossible, such as on another file system.
    pub(crate) fn place_at(&self, target: &Path) -> Result<()> {
        if self.0.link(target).is_ok() {
            return Ok(());
        }
        fs::write(target, &**self).map_err(|source| Error::file(target, "write", source))
    }
}

impl Deref for FileMap {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_that_of_all_bytes_and_keeps_none_of_them_in_memory() {
        let folder = tempfile::tempdir().unwrap();
        for length in [0, 1, CHUNK - 1, CHUNK, 2 * CHUNK + 3] {
            let path = folder.path().join(length.to_string());
            let bytes: Vec<u8> = (0..length).map(|place| (place % 251) as u8).collect();
            fs::write(&path, &bytes).unwrap();
            let map = FileMap::open(&path).unwrap();
            assert_eq!(map.sha256(), crate::digest::sha256(&bytes), "{length}");
            assert!(*map == *bytes, "{length}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn an_opened_file_has_a_path_as_long_as_it_has_a_name() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = ["one", "other"].map(|name| folder.path().join(name));
        fs::write(&one, "first").unwrap();
        let map = FileMap::open(&one).unwrap();
        let path = map.opened_path().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"first");
        fs::rename(&one, &other).unwrap();
        fs::write(&one, "second").unwrap();
        assert_eq!(fs::read(map.opened_path().unwrap()).unwrap(), b"first");
        fs::remove_file(&other).unwrap();
        assert_eq!(map.opened_path(), None);
        assert_eq!(&*map, b"first");
    }
}
