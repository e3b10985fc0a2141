//! Digests of the files that engines are made of.

use crate::{Error, Result};
use std::path::{Path, PathBuf};
use tileforge_engine::digest::FileDigest;
use tileforge_files::Digests;

/// The digest of a file as manifests have it.
pub(crate) fn digest_of(digests: &Digests, path: &Path) -> Result<FileDigest> {
    let found = digests.of(path).map_err(|e| Error::file(path, "read", e))?;
    Ok(FileDigest { bytes: found.bytes, sha256: found.sha256 })
}

/// Digests files at the same time, as far as there are processors. [`digest_of`] then knows them.
pub(crate) fn prepare(digests: &Digests, paths: &[PathBuf]) -> Result<()> {
    digests.prepare(paths).map_err(|(path, error)| Error::file(&path, "read", error))
}
