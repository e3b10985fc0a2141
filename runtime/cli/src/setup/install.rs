//! Moves new files into a folder that may be in use.

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tileforge_files::{link_or_copy, not_replaced, unfinished};

/// The file name under which programs look for ONNX Runtime's library.
pub(super) fn main_library() -> String {
    format!("{DLL_PREFIX}onnxruntime{DLL_SUFFIX}")
}

/// Moves files from `staging` into `destination`, where older ones of their names are replaced.
///
/// Each file is complete or absent, even after the process has been killed. ONNX Runtime's library comes last, after
/// those that it loads. Files that a running program has loaded stay unchanged, without a name.
///
/// # Errors
/// The file that cannot be placed, with the system's reason. All changes are then undone.
pub(super) fn place(staging: &Path, destination: &Path, files: &[&str]) -> Result<(), (PathBuf, io::Error)> {
    let _finishing = unfinished::finishing();
    let main = main_library();
    let mut files = files.to_vec();
    files.sort_by_key(|path| (path.starts_with(&main), *path == main, !path.contains('/'), *path));
    let previous = staging.join("previous");
    let mut placed = Vec::new();
    for path in files {
        match place_one(staging, &previous, destination, path) {
            Ok(replaced) => placed.push((path, replaced)),
            Err(error) => {
                for (path, replaced) in placed.into_iter().rev() {
                    let target = destination.join(path);
                    // Errors here are ignored: the first error is the one to report.
                    let _ = if replaced { fs::rename(previous.join(path), target) } else { fs::remove_file(target) };
                }
                return Err((destination.join(path), not_replaced(error)));
            }
        }
    }
    Ok(())
}

/// Returns whether an older file was replaced. It is kept in `previous`.
fn place_one(staging: &Path, previous: &Path, destination: &Path, path: &str) -> io::Result<bool> {
    let (new, older, target) = (staging.join(path), previous.join(path), destination.join(path));
    for folder in [older.parent(), target.parent()].into_iter().flatten() {
        fs::create_dir_all(folder)?;
    }
    let replaced = match target.symlink_metadata() {
        Ok(_) => true,
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => return Err(error),
    };
    if replaced {
        link_or_copy(&target, &older)?;
    }
    let Err(error) = fs::rename(&new, &target) else { return Ok(replaced) };
    if !replaced {
        return Err(error);
    }
    // Windows does not replace a library that a program has loaded, and lets it be renamed.
    let aside = previous.join(format!("{path}.in-use"));
    if fs::rename(&target, &aside).is_err() {
        return Err(error);
    }
    fs::rename(&new, &target).map(|()| true).map_err(|_| {
        let _ = fs::rename(&aside, &target);
        error
    })
}

/// Removes files that are no longer part of the installation. One that cannot be removed, because a program has it
/// open, does no harm.
pub(super) fn remove<'p>(destination: &Path, files: impl Iterator<Item = &'p str>) {
    for path in files {
        let place = destination.join(path);
        if fs::remove_file(&place).is_ok() {
            // Only empty folders are removed.
            let _ = place.parent().filter(|folder| *folder != destination).map(fs::remove_dir);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder_with(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let place = folder.path().join(path);
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            fs::write(place, content).unwrap();
        }
        folder
    }

    fn read(folder: &Path, path: &str) -> String {
        fs::read_to_string(folder.join(path)).unwrap_or_default()
    }

    #[test]
    fn new_files_take_the_places_of_older_ones_and_others_stay() {
        let main = main_library();
        let new = folder_with(&[(&main, "new"), ("other", "new"), ("licences/p/LICENSE", "new")]);
        let there = folder_with(&[(&main, "old"), ("theirs", "theirs")]);
        place(new.path(), there.path(), &[&main, "other", "licences/p/LICENSE"]).unwrap();
        for path in [main.as_str(), "other", "licences/p/LICENSE"] {
            assert_eq!(read(there.path(), path), "new", "{path}");
        }
        assert_eq!(read(there.path(), "theirs"), "theirs");
        remove(there.path(), ["other", "licences/p/LICENSE", "missing"].into_iter());
        assert!(!there.path().join("other").exists() && !there.path().join("licences/p").exists());
        assert!(there.path().join("licences").exists());
    }

    #[test]
    fn what_cannot_be_replaced_leaves_everything_as_it_was() {
        let main = main_library();
        let new = folder_with(&[(&main, "new"), ("a", "new"), ("b", "new"), ("c", "new")]);
        // The folder `c` has the place of a file.
        let there = folder_with(&[(&main, "old"), ("a", "old"), ("c/theirs", "theirs")]);
        let (path, _) = place(new.path(), there.path(), &[&main, "a", "b", "c"]).unwrap_err();
        assert_eq!(path, there.path().join("c"));
        for (path, content) in [(main.as_str(), "old"), ("a", "old"), ("b", ""), ("c/theirs", "theirs")] {
            assert_eq!(read(there.path(), path), content, "{path}");
        }
        assert!(!there.path().join("b").exists());
    }

    #[test]
    fn what_a_program_has_open_stays_whole() {
        use std::io::Read;
        let main = main_library();
        let new = folder_with(&[(&main, "new")]);
        let there = folder_with(&[(&main, "old content")]);
        let mut open = fs::File::open(there.path().join(&main)).unwrap();
        place(new.path(), there.path(), &[&main]).unwrap();
        let mut content = String::new();
        open.read_to_string(&mut content).unwrap();
        assert_eq!((content.as_str(), read(there.path(), &main).as_str()), ("old content", "new"));
    }
}
