//! Output files that appear under their name only when they are complete.

use std::fs::File;
use std::path::{Path, PathBuf};

use tileforge_files::unfinished;

use crate::error::{Error, Result};

/// A file that gets its name when it is finished. Dropped unfinished, it leaves nothing behind.
pub(crate) struct OutputFile {
    path: PathBuf,
    file: unfinished::File,
}

impl OutputFile {
    /// Creates the temporary file in the folder of `path`.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let file = unfinished::file_in(folder, 0o666);
        let file = file.map_err(|source| Error::file(folder, "create a file in it", source))?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// The file to write to.
    pub(crate) fn file(&self) -> &File {
        self.file.as_file()
    }

    /// Gives the file its name.
    pub(crate) fn finish(self) -> Result<()> {
        self.file.rename(&self.path).map_err(|source| Error::file(&self.path, "create", source))
    }
}
