//! Files that get their name when they are finished.

use std::fs::File;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::error::{Error, Result};

/// A file that gets its name when it is finished. If it is dropped before, nothing is left behind.
pub(crate) struct OutputFile {
    path: PathBuf,
    file: NamedTempFile,
}

impl OutputFile {
    /// Starts a file beside the place where it will be.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut builder = tempfile::Builder::new();
        builder.prefix(".tileforge-").suffix(".partial");
        // The permissions of any new file. The default would hide the file from other users.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let file = builder.tempfile_in(folder);
        let file = file.map_err(|source| Error::file(folder, "create a file in it", source))?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Where to write.
    pub(crate) fn file(&self) -> &File {
        self.file.as_file()
    }

    /// Gives the file its name.
    pub(crate) fn finish(self) -> Result<()> {
        let Self { path, file } = self;
        file.persist(&path).map(drop).map_err(|error| Error::file(&path, "create", error.error))
    }
}
