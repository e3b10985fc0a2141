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

/// Gives the folder and its files the permissions that the system gives new ones: temporary ones are private to their owner.
pub(crate) fn make_readable(folder: &Path) -> Result<()> {
    let fail = |e| Error::file(folder, "set the permissions", e);
    // What a new file gets is seen by making one.
    let probe = folder.join(".permissions");
    let mode = fs::File::create(&probe).and_then(|file| file.metadata()).map_err(fail)?.permissions().mode();
    fs::remove_file(&probe).map_err(fail)?;
    for entry in folder.read_dir().map_err(fail)? {
        fs::set_permissions(entry.map_err(fail)?.path(), Permissions::from_mode(mode)).map_err(fail)?;
    }
    // Whoever may read the files may enter the folder.
    fs::set_permissions(folder, Permissions::from_mode(mode | 0o100 | ((mode & 0o444) >> 2))).map_err(fail)
}
