//! Engines that were pulled for a single run, and the indexes that name them, by their digests.

use std::fs;
use std::path::PathBuf;

use tileforge_engine::MANIFEST_FILE;
use tileforge_files::unfinished;

use crate::document::{DOCUMENT_MAXIMUM_BYTES, Digest};
use crate::error::{Error, Result};

/// A folder of engines and indexes, by their digests. The content of a digest never changes, so no entry becomes
/// outdated.
#[derive(Clone, Debug)]
pub struct Cache(PathBuf);

impl Cache {
    /// A cache in this folder, which need not exist yet.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self(folder.into())
    }

    /// The directory of the engine of this manifest, which need not exist yet.
    pub(crate) fn engine(&self, digest: &Digest) -> PathBuf {
        self.0.join("engines").join(digest.file_name())
    }

    /// Whether the engine of this manifest is in the cache. Its files are checked when it is opened.
    pub(crate) fn has_engine(&self, digest: &Digest) -> bool {
        self.engine(digest).join(MANIFEST_FILE).is_file()
    }

    /// A manifest or an index, if it is in the cache and complete.
    pub(crate) fn document(&self, digest: &Digest) -> Option<Vec<u8>> {
        let bytes = tileforge_files::read(&self.place(digest), DOCUMENT_MAXIMUM_BYTES).ok()?;
        (Digest::of(&bytes) == *digest).then_some(bytes)
    }

    /// Stores a manifest or an index.
    pub(crate) fn keep_document(&self, digest: &Digest, bytes: &[u8]) -> Result<()> {
        let (folder, place) = (self.0.join("documents"), self.place(digest));
        fs::create_dir_all(&folder).map_err(|e| Error::file(&folder, "create", e))?;
        unfinished::write(&place, bytes).map_err(|e| Error::file(&place, "write", e))
    }

    fn place(&self, digest: &Digest) -> PathBuf {
        self.0.join("documents").join(digest.file_name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_what_its_digest_names_or_it_is_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().join("made/here"));
        let digest = Digest::of(b"index");
        assert_eq!(cache.document(&digest), None);
        cache.keep_document(&digest, b"index").unwrap();
        assert_eq!(cache.document(&digest).as_deref(), Some(&b"index"[..]));
        fs::write(cache.place(&digest), b"another").unwrap();
        assert_eq!((cache.document(&digest), cache.has_engine(&digest)), (None, false));
    }
}
