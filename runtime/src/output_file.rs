//! Files that get their name when they are finished.

use std::fs::File;
use std::path::{Path, PathBuf};

use tileforge_files::unfinished;

use crate::error::{Error, Result};

/// A file that gets its name when it is finished. If it is dropped before, nothing is left behind.
pub(crate) struct OutputFile {
    path: PathBuf,
    file: unfinished::File,
}

impl OutputFile {
    /// Starts a file beside the place where it will be.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let file = unfinished::file_in(folder, 0o666);
        let file = file.map_err(|source| Error::file(folder, "create a file in it", source))?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Where to write.
    pub(crate) fn file(&self) -> &File {
        self.file.as_file()
    }

    /// Gives the file its name.
    pub(crate) fn finish(self) -> Result<()> {
        self.file.rename(&self.path).map_err(|source| Error::file(&self.path, "create", source))
    }
}
