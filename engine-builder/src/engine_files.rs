//! The files of an engine directory, and how a finished one gets its place.

use crate::{Error, Result};
use runtime::digest::{FileDigest, sha256_file};
use runtime::engine::MANIFEST_FILE;
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Size and SHA-256 of every file in a folder and the folders in it, by name: `NAME`, or `FOLDER/NAME`.
pub(crate) fn files(folder: &Path) -> Result<BTreeMap<String, FileDigest>> {
    let mut files = BTreeMap::new();
    for (path, is_folder) in entries(folder)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if is_folder {
            files.extend(self::files(&path)?.into_iter().map(|(inner, digest)| (format!("{name}/{inner}"), digest)));
        } else {
            files.insert(name, sha256_file(&path)?);
        }
    }
    Ok(files)
}

/// What is in a folder, and whether that is a folder.
fn entries(folder: &Path) -> Result<Vec<(PathBuf, bool)>> {
    let fail = |e| Error::file(folder, "list", e);
    let entry = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.map_err(fail)?;
        Ok((entry.path(), entry.file_type().map_err(fail)?.is_dir()))
    };
    folder.read_dir().map_err(fail)?.map(entry).collect()
}

/// Gives the folder and its files the permissions that the system gives new ones: temporary ones are private to their owner.
fn make_readable(folder: &Path) -> Result<()> {
    let fail = |e| Error::file(folder, "set the permissions", e);
    // What a new file gets is seen by making one.
    let probe = folder.join(".permissions");
    let mode = fs::File::create(&probe).and_then(|file| file.metadata()).map_err(fail)?.permissions().mode();
    fs::remove_file(&probe).map_err(fail)?;
    for (path, is_folder) in entries(folder)? {
        if is_folder {
            make_readable(&path)?;
        } else {
            fs::set_permissions(path, Permissions::from_mode(mode)).map_err(fail)?;
        }
    }
    // Whoever may read the files may enter the folder.
    fs::set_permissions(folder, Permissions::from_mode(mode | 0o100 | ((mode & 0o444) >> 2))).map_err(fail)
}

/// The folder that `directory` is in.
pub(crate) fn parent_of(directory: &Path) -> &Path {
    directory.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes the folder that an engine's `directory` is to be in, and returns it. The place itself is free, or holds an older engine.
pub(crate) fn place_for(directory: &Path) -> Result<&Path> {
    refuse_to_replace_anything_but_an_engine(directory)?;
    let parent = parent_of(directory);
    fs::create_dir_all(parent).map_err(|e| Error::file(parent, "create the folder", e))?;
    Ok(parent)
}

fn refuse_to_replace_anything_but_an_engine(directory: &Path) -> Result<()> {
    let Ok(mut entries) = directory.read_dir() else {
        return if directory.exists() { Err(Error::input(directory, "expected a folder or nothing, found a file")) } else { Ok(()) };
    };
    if entries.next().is_some() && !directory.join(MANIFEST_FILE).is_file() {
        return Err(Error::input(directory, "the folder is not empty and holds no engine; give another folder, or empty it"));
    }
    Ok(())
}

/// A folder that vanishes unless it is put in its place.
pub(crate) fn temporary(parent: &Path) -> Result<TempDir> {
    tempfile::Builder::new().prefix(".building-").tempdir_in(parent).map_err(|e| Error::file(parent, "create a folder in", e))
}

/// Renames a finished engine to its place; an older engine there is replaced.
pub(crate) fn put_in_place(staging: TempDir, directory: &Path) -> Result<()> {
    make_readable(staging.path())?;
    let old = if directory.exists() {
        // A folder cannot be renamed over one that is not empty: the old engine steps aside and goes when the new one is there.
        let aside = temporary(parent_of(directory))?;
        fs::rename(directory, aside.path().join("old")).map_err(|e| Error::file(directory, "replace", e))?;
        Some(aside)
    } else {
        None
    };
    let made = staging.keep();
    if let Err(error) = fs::rename(&made, directory) {
        if let Some(aside) = old {
            // Best effort: the error that is reported is the one that matters.
            let _ = fs::rename(aside.path().join("old"), directory);
        }
        let _ = fs::remove_dir_all(&made);
        return Err(Error::file(directory, "rename the finished engine to", error));
    }
    Ok(())
}
