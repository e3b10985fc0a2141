//! Digests of the files that an engine is made from.

use crate::{Error, Result};
use std::path::{Path, PathBuf};
use tileforge_engine::digest::FileDigest;
use tileforge_files::Digests;

/// The digest of a file in the form that manifests use.
pub(crate) fn digest_of(digests: &Digests, path: &Path) -> Result<FileDigest> {
    let found = digests.of(path).map_err(|e| Error::file(path, "read", e))?;
    Ok(FileDigest { bytes: found.bytes, sha256: found.sha256 })
}

/// Computes the digests of files, at most one per processor at the same time. [`digest_of`] then finds them.
pub(crate) fn prepare(digests: &Digests, paths: &[PathBuf]) -> Result<()> {
    digests.prepare(paths).map_err(|(path, error)| Error::file(&path, "read", error))
}
