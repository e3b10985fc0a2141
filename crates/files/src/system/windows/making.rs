//! Making files and folders for certain users.

use std::fs;
use std::io;
use std::path::Path;

use tempfile::NamedTempFile;

use super::calls;
use super::standing::{ALL, private};

/// Makes a temporary file. Modes exist only on Unix: the file has the rights of new files in its folder.
pub(crate) fn file(builder: &mut tempfile::Builder<'_, '_>, parent: &Path, _mode: u32) -> io::Result<NamedTempFile> {
    builder.tempfile_in(parent)
}

/// Makes a temporary file that no other user may open.
pub(crate) fn private_file(builder: &mut tempfile::Builder<'_, '_>, parent: &Path) -> io::Result<NamedTempFile> {
    let descriptor = private(false)?;
    builder.make_in(parent, |path| calls::make_file(path, &descriptor, ALL))
}

/// Makes a folder that no other user may enter, and the missing folders above it.
pub(crate) fn private_folders(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)?;
    match calls::make_folder(path, &private(true)?) {
        Err(_) if path.is_dir() => Ok(()),
        made => made,
    }
}

/// Files have the rights of their folder from the beginning, so nothing is changed.
#[derive(Debug)]
pub(crate) struct Usual;

impl Usual {
    pub(crate) fn in_folder(_folder: &Path) -> io::Result<Self> {
        Ok(Self)
    }

    pub(crate) fn give_to_file(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    pub(crate) fn give_to_folder(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }
}

/// Does nothing: the file has the permissions of any new file from the beginning.
pub(crate) fn give_usual(_path: &Path) -> io::Result<()> {
    Ok(())
}
