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
                tileforge_files::give_usual_permissions(file.path())
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
