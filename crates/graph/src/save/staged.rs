//! Finished files that wait for their names.

use crate::{Error, Result};
use std::fs;
use std::path::Path;
use tileforge_files::unfinished;

/// A finished file, which is removed unless it is renamed to its place.
pub(super) enum Staged {
    File(unfinished::File),
    /// A linked checkpoint, alone in a temporary folder.
    Link(unfinished::Folder),
}

/// The name of a linked checkpoint in its temporary folder.
pub(super) const LINKED: &str = "checkpoint";

impl Staged {
    pub(super) fn rename(self, path: &Path) -> Result<()> {
        match self {
            Staged::File(file) => {
                // Temporary files are private to their owner; results get the permissions of any new file.
                let permissions = permissions_of_new_files();
                fs::set_permissions(file.path(), permissions)
                    .map_err(|e| Error::file(path, "set the permissions", e))?;
                file.rename(path).map_err(|e| Error::file(path, "rename", e))
            }
            Staged::Link(folder) => {
                fs::rename(folder.path().join(LINKED), path).map_err(|e| Error::file(path, "rename", e))
            }
        }
    }
}

pub(super) fn temporary(folder: &Path) -> Result<unfinished::File> {
    unfinished::file_in(folder, 0o600).map_err(|e| Error::file(folder, "create a file in", e))
}

fn permissions_of_new_files() -> fs::Permissions {
    use std::os::unix::fs::PermissionsExt;
    // `umask` can only read the mask by setting it, which is not safe with threads; /proc shows it without that.
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u32::from_str_radix(line.strip_prefix("Umask:")?.trim(), 8).ok());
    fs::Permissions::from_mode(0o666 & !mask.unwrap_or(0o022))
}
