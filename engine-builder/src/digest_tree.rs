//! The files of an engine directory.

use crate::{Error, Result};
use runtime::digest::{FileDigest, sha256_file};
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Size and SHA-256 of every file in a folder, by name.
pub(crate) fn files(folder: &Path) -> Result<BTreeMap<String, FileDigest>> {
    let mut files = BTreeMap::new();
    for entry in folder.read_dir().map_err(|e| Error::file(folder, "list", e))? {
        let entry = entry.map_err(|e| Error::file(folder, "list", e))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        files.insert(name, sha256_file(&entry.path())?);
    }
    Ok(files)
}

/// Whoever may read the files may enter the folder.
pub(crate) fn make_folder_readable_like(folder: &Path, file: Permissions) -> Result<()> {
    let mode = 0o300 | file.mode() | ((file.mode() & 0o444) >> 2);
    fs::set_permissions(folder, Permissions::from_mode(mode)).map_err(|e| Error::file(folder, "set the permissions", e))
}
