//! The files of an engine directory, and putting a finished one at its place.

use crate::digest::{FileDigest, sha256_file};
use crate::{Error, MANIFEST_FILE, Result};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::{self, File, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Size and SHA-256 of every file in a folder and its subfolders, by name: `NAME`, or `FOLDER/NAME`.
pub fn files(folder: &Path) -> Result<BTreeMap<String, FileDigest>> {
    names(folder)?.into_iter().map(|name| Ok((name.clone(), sha256_file(&folder.join(name))?))).collect()
}

/// The names of all files in a folder and its subfolders: `NAME`, or `FOLDER/NAME`.
pub(crate) fn names(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for (path, is_folder) in entries(folder)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if is_folder {
            names.extend(self::names(&path)?.into_iter().map(|inner| format!("{name}/{inner}")));
        } else {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// The names in a folder, and whether each is a folder.
fn entries(folder: &Path) -> Result<Vec<(PathBuf, bool)>> {
    let fail = |e| Error::file(folder, "list", e);
    let entry = |entry: io::Result<fs::DirEntry>| {
        let entry = entry.map_err(fail)?;
        Ok((entry.path(), entry.file_type().map_err(fail)?.is_dir()))
    };
    folder.read_dir().map_err(fail)?.map(entry).collect()
}

/// Gives the folder and its files the permissions of newly made ones. Temporary files are private to their owner.
fn make_readable(folder: &Path) -> Result<()> {
    let fail = |e| Error::file(folder, "set the permissions", e);
    // A newly made file shows which permissions the system gives.
    let probe = folder.join(".permissions");
    let mode = File::create(&probe).and_then(|file| file.metadata()).map_err(fail)?.permissions().mode();
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

/// The folder that contains `directory`.
pub fn parent_of(directory: &Path) -> &Path {
    directory.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes the folder that will contain an engine's `directory`, and returns it. Checks that `directory` is free or holds
/// an older engine.
pub fn place_for(directory: &Path) -> Result<&Path> {
    refuse_to_replace_anything_but_an_engine(directory)?;
    let parent = parent_of(directory);
    fs::create_dir_all(parent).map_err(|e| Error::file(parent, "create the folder", e))?;
    Ok(parent)
}

fn refuse_to_replace_anything_but_an_engine(directory: &Path) -> Result<()> {
    let Ok(mut entries) = directory.read_dir() else {
        return if directory.exists() {
            Err(Error::Place { path: directory.to_owned(), problem: "expected a folder or nothing, found a file" })
        } else {
            Ok(())
        };
    };
    if entries.next().is_some() && !directory.join(MANIFEST_FILE).is_file() {
        return Err(Error::Place {
            path: directory.to_owned(),
            problem: "the folder is not empty and holds no engine; give another folder, or empty it",
        });
    }
    Ok(())
}

/// The beginning of the names of unfinished folders.
const UNFINISHED: &str = ".building-";

/// A folder that is removed unless it is put at its place. It is locked while it is in use, so that another build can
/// recognise what a killed build left.
pub struct Temporary {
    folder: TempDir,
    /// `None` if the file system cannot lock folders. Such folders are never removed.
    _lock: Option<File>,
}

impl Temporary {
    /// Its path.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Makes a new folder in `parent`, and removes those that killed builds have left there.
pub fn temporary(parent: &Path) -> Result<Temporary> {
    remove_litter(parent);
    loop {
        let folder = tempfile::Builder::new()
            .prefix(UNFINISHED)
            .tempdir_in(parent)
            .map_err(|e| Error::file(parent, "create a folder in", e))?;
        // Before the folder is locked, another build may take it for a leftover and remove it. Then the next one is
        // tried.
        match File::open(folder.path()) {
            Ok(lock) => match lock.try_lock() {
                Ok(()) if is_still_there(folder.path(), &lock) => return Ok(Temporary { folder, _lock: Some(lock) }),
                Ok(()) | Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(_)) => return Ok(Temporary { folder, _lock: None }),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::file(folder.path(), "open", error)),
        }
    }
}

fn is_still_there(path: &Path, opened: &File) -> bool {
    let same = |a: &fs::Metadata, b: &fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    matches!((fs::metadata(path), opened.metadata()), (Ok(a), Ok(b)) if same(&a, &b))
}

/// Removes unfinished folders that nobody has locked. Folders that cannot be read or removed belong to others and do no
/// harm.
fn remove_litter(parent: &Path) {
    for path in parent.read_dir().into_iter().flatten().flatten().map(|entry| entry.path()) {
        if is_unfinished(&path)
            && let Ok(lock) = File::open(&path)
            && lock.try_lock().is_ok()
        {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

/// Whether a path is the path of a [`Temporary`].
pub fn is_unfinished(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(UNFINISHED))
}

/// Puts a finished engine at its place. An older engine there is replaced, in one step if the file system can exchange
/// two folders.
pub fn put_in_place(staging: Temporary, directory: &Path) -> Result<()> {
    make_readable(staging.path())?;
    if directory.exists() {
        match renameat_with(CWD, staging.path(), CWD, directory, RenameFlags::EXCHANGE) {
            // Now the temporary name holds the older engine, which is removed with it.
            Ok(()) => return Ok(()),
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => return step_aside(staging, directory),
            Err(error) => return Err(Error::file(directory, "replace", error.into())),
        }
    }
    let renamed = fs::rename(staging.path(), directory);
    renamed.map_err(|e| Error::file(directory, "rename the finished engine to", e))
}

/// Replaces an older engine where two folders cannot be exchanged: it is moved aside, and removed when the new one is
/// at its place.
fn step_aside(staging: Temporary, directory: &Path) -> Result<()> {
    let aside = temporary(parent_of(directory))?;
    let old = aside.path().join("old");
    fs::rename(directory, &old).map_err(|e| Error::file(directory, "replace", e))?;
    fs::rename(staging.path(), directory).map_err(|error| {
        // Best effort: the earlier error is reported.
        let _ = fs::rename(&old, directory);
        Error::file(directory, "rename the finished engine to", error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// A finished folder with one file.
    fn finished(parent: &Path, text: &str) -> Temporary {
        let staging = temporary(parent).unwrap();
        fs::write(staging.path().join("file"), text).unwrap();
        staging
    }

    #[test]
    fn an_older_engine_is_replaced_whether_or_not_folders_can_be_exchanged() {
        let parent = tempfile::tempdir().unwrap();
        let engine = parent.path().join("engine");
        let replacements: [fn(Temporary, &Path) -> Result<()>; 3] = [put_in_place, put_in_place, step_aside];
        for (number, replace) in replacements.into_iter().enumerate() {
            replace(finished(parent.path(), &number.to_string()), &engine).unwrap();
            assert_eq!(fs::read_to_string(engine.join("file")).unwrap(), number.to_string());
            assert_eq!(names(parent.path()), ["engine"]);
        }
    }

    #[test]
    fn there_is_an_engine_at_every_moment_of_its_replacement() {
        let parent = tempfile::tempdir().unwrap();
        let engine = parent.path().join("engine");
        put_in_place(finished(parent.path(), "0"), &engine).unwrap();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let watch = scope.spawn(|| {
                let mut looks = 0;
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    assert!(engine.join("file").exists());
                    looks += 1;
                }
                looks
            });
            for number in 1..50 {
                put_in_place(finished(parent.path(), &number.to_string()), &engine).unwrap();
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(watch.join().unwrap() > 0);
        });
    }

    #[test]
    fn folders_of_dead_builds_go_and_those_in_use_stay() {
        let parent = tempfile::tempdir().unwrap();
        let in_use = finished(parent.path(), "x");
        let dead = parent.path().join(".building-dead");
        fs::create_dir_all(dead.join("folder")).unwrap();
        let other = temporary(parent.path()).unwrap();
        assert!(!dead.exists() && in_use.path().join("file").exists());
        drop((in_use, other));
        assert_eq!(names(parent.path()), [""; 0]);
    }
}
