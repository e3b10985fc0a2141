//! Digests of the files that engines are made of.

use crate::Result;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tileforge_engine::digest::{FileDigest, sha256_file};

/// SHA-256 of files, each computed once: weights are compared with what was published, recorded in the recipe, and
/// named in the manifest of each profile's engine. Clones share what they know.
#[derive(Debug, Clone, Default)]
pub struct Digests(Arc<Mutex<BTreeMap<PathBuf, FileDigest>>>);

impl Digests {
    /// The digest of a file, as it was when it was first asked for.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn of(&self, path: &Path) -> Result<FileDigest> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(digest) = known.get(path) {
            return Ok(digest.clone());
        }
        let digest = sha256_file(path)?;
        known.insert(path.to_owned(), digest.clone());
        Ok(digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_digested_once_for_all_clones() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("weights");
        std::fs::write(&file, "before").unwrap();
        let digests = Digests::default();
        let first = digests.clone().of(&file).unwrap();
        assert_eq!(first.sha256, tileforge_engine::digest::sha256(b"before"));
        std::fs::write(&file, "after").unwrap();
        assert_eq!(digests.of(&file).unwrap(), first);
        assert_ne!(Digests::default().of(&file).unwrap(), first);
    }
}
