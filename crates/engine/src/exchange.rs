//! Moving a finished engine directory to its place.

use crate::bundle_manifest::BundleManifest;
use crate::error::{Error, Result};
use crate::folder::{entries, names};
use crate::listing::Listing;
use crate::manifest::MANIFEST_FILE;
use serde::Serialize;
use std::fs;
use std::io;
use std::path::Path;
use tileforge_files::{UsualPermissions, unfinished};

/// An unfinished engine: a folder that is removed unless it is put at its place.
pub use tileforge_files::unfinished::Folder as Temporary;

/// Writes the manifest of an engine of either kind into the folder of an unfinished engine.
///
/// # Errors
/// It breaks a rule of [`BundleManifest::parse`], which could then not read it; or it cannot be written.
pub fn write_manifest(manifest: &impl Serialize, folder: &Path) -> Result<()> {
    let path = folder.join(MANIFEST_FILE);
    let fail = |source: io::Error| Error::file(&path, "write", source);
    let text = serde_json::to_string_pretty(manifest).map_err(|error| fail(error.into()))?;
    BundleManifest::parse(text.as_bytes())?;
    fs::write(&path, text + "\n").map_err(fail)
}

/// Gives the folder and its files the usual permissions of new ones, because temporary files are private to their
/// owner.
fn make_readable(folder: &Path) -> Result<()> {
    let fail = |e| Error::file(folder, "set the permissions", e);
    let usual = UsualPermissions::in_folder(folder).map_err(fail)?;
    for (path, is_folder) in entries(folder)? {
        if is_folder {
            make_readable(&path)?;
        } else {
            usual.give_to_file(&path).map_err(fail)?;
        }
    }
    usual.give_to_folder(folder).map_err(fail)
}

/// The folder that contains `directory`.
pub fn parent_of(directory: &Path) -> &Path {
    directory.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes the parent folder of an engine's `directory`, and returns it. Checks that `directory` is free or holds an
/// older engine.
pub fn place_for(directory: &Path) -> Result<&Path> {
    refuse_to_replace_anything_but_an_engine(directory)?;
    let parent = parent_of(directory);
    fs::create_dir_all(parent).map_err(|e| Error::file(parent, "create the folder", e))?;
    Ok(parent)
}

/// Checks that a folder is empty or holds an engine and nothing else, because it will be removed. Many programs have a
/// `manifest.json`, and users put files into folders.
fn refuse_to_replace_anything_but_an_engine(directory: &Path) -> Result<()> {
    let refused = |problem: String| Err(Error::Place { path: directory.to_owned(), problem });
    if !directory.is_dir() {
        return match directory.symlink_metadata() {
            Ok(_) => refused("expected a folder or nothing, found a file".into()),
            Err(_) => Ok(()),
        };
    }
    let names = names(directory)?;
    if names.is_empty() {
        return Ok(());
    }
    if !names.iter().any(|name| name == MANIFEST_FILE) {
        return refused("the folder is not empty and holds no engine; give another folder, or empty it".into());
    }
    let listing = match Listing::read(directory) {
        Ok(listing) => listing,
        Err(Error::Invalid { source, .. }) => {
            return refused(format!(
                "its {MANIFEST_FILE} is not the manifest of an engine that can be replaced ({source}); give another \
                 folder, or remove this one"
            ));
        }
        Err(error) => return Err(error),
    };
    match names.iter().find(|name| !listing.has(name)) {
        None => Ok(()),
        Some(name) => refused(format!(
            "beside an engine, the folder holds `{}`, which the engine's manifest does not list; give another folder, \
             or move that file away",
            name.escape_debug()
        )),
    }
}

/// Makes a new temporary folder in `parent`, and removes temporary folders that killed builds have left there.
pub fn temporary(parent: &Path) -> Result<Temporary> {
    unfinished::folder_in(parent).map_err(|e| Error::file(parent, "create a folder in", e))
}

/// Puts a finished engine at its place. An older engine there is replaced, in one step if the file system can exchange
/// two folders.
pub fn put_in_place(staging: Temporary, directory: &Path) -> Result<()> {
    make_readable(staging.path()).map_err(|error| error.relocated(staging.path(), directory))?;
    // Check again: the directory may have changed since the place was chosen.
    refuse_to_replace_anything_but_an_engine(directory)?;
    // A program that a signal stops removes the temporary folder, but must not do so during this step.
    let finishing = unfinished::finishing();
    if directory.exists() {
        match tileforge_files::exchange(staging.path(), directory) {
            // The temporary folder now holds the older engine, and is removed with it.
            Ok(true) => return Ok(()),
            Ok(false) => {
                drop(finishing);
                return step_aside(staging, directory);
            }
            Err(error) => return Err(Error::file(directory, "replace", error)),
        }
    }
    let renamed = fs::rename(staging.path(), directory);
    renamed.map_err(|e| Error::file(directory, "rename the finished engine to", e))
}

/// Replaces an older engine where two folders cannot be exchanged: the older engine is moved aside, and removed when
/// the new engine is at its place.
fn step_aside(staging: Temporary, directory: &Path) -> Result<()> {
    let aside = temporary(parent_of(directory))?;
    let old = aside.path().join("old");
    let _finishing = unfinished::finishing();
    let replaced = fs::rename(directory, &old).map_err(tileforge_files::not_replaced);
    replaced.map_err(|e| Error::file(directory, "replace", e))?;
    fs::rename(staging.path(), directory).map_err(|error| {
        // Best effort: the earlier error is reported.
        let _ = fs::rename(&old, directory);
        Error::file(directory, "rename the finished engine to", error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(unix)]
    use std::fs::Permissions;
    #[cfg(unix)]
    use std::os::unix::fs::PermissionsExt;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// A finished engine whose self-test is this text.
    fn finished(parent: &Path, text: &str) -> Temporary {
        let staging = temporary(parent).unwrap();
        let manifest = serde_json::to_vec(&crate::validate::tests::manifest(&[(64, 64)])).unwrap();
        fs::write(staging.path().join(MANIFEST_FILE), manifest).unwrap();
        fs::write(staging.path().join("selftest.safetensors"), text).unwrap();
        staging
    }

    #[test]
    fn only_an_engine_and_nothing_else_is_replaced() {
        let parent = tempfile::tempdir().unwrap();
        let place = parent.path().join("app");
        let refused = |expected: &str| {
            let before = names(&place);
            for outcome in [place_for(&place).map(drop), put_in_place(finished(parent.path(), "new"), &place)] {
                let error = outcome.unwrap_err().to_string();
                assert!(error.contains(expected), "{error}");
            }
            assert_eq!((names(&place), names(parent.path())), (before, vec!["app".to_owned()]));
        };
        fs::create_dir(&place).unwrap();
        fs::write(place.join(MANIFEST_FILE), r#"{"name": "my web app"}"#).unwrap();
        fs::write(place.join("index.html"), "x").unwrap();
        refused("is not the manifest of an engine");
        fs::remove_file(place.join(MANIFEST_FILE)).unwrap();
        refused("the folder is not empty and holds no engine");
        fs::remove_dir_all(&place).unwrap();

        put_in_place(finished(parent.path(), "0"), &place).unwrap();
        fs::create_dir(place.join("mine")).unwrap();
        fs::write(place.join("mine/thesis.txt"), "x").unwrap();
        refused("`mine/thesis.txt`, which the engine's manifest does not list");
        fs::remove_dir_all(place.join("mine")).unwrap();

        // A signature belongs to an engine, and an engine with a missing file may be replaced, too.
        fs::write(place.join("manifest.sig"), "x").unwrap();
        fs::remove_file(place.join("selftest.safetensors")).unwrap();
        put_in_place(finished(parent.path(), "1"), &place).unwrap();
        assert_eq!(names(&place), [MANIFEST_FILE, "selftest.safetensors"]);
    }

    #[test]
    fn a_name_alone_lies_in_the_current_folder() {
        assert_eq!(parent_of(Path::new("engine")), Path::new("."));
        assert_eq!(parent_of(Path::new("engines/engine")), Path::new("engines"));
    }

    #[test]
    fn a_manifest_that_nobody_could_read_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let manifest = crate::validate::tests::manifest(&[(64, 64)]);
        let broken = crate::manifest::Manifest { name: "../up".into(), ..manifest.clone() };
        assert!(matches!(write_manifest(&broken, folder.path()), Err(Error::Manifest { .. })));
        assert_eq!(names(folder.path()), [""; 0]);
        write_manifest(&manifest, folder.path()).unwrap();
        let read = Listing::read(folder.path()).unwrap();
        assert!(read.has("selftest.safetensors") && !read.has("other"));
    }

    #[cfg(unix)]
    #[test]
    fn whoever_may_read_new_files_may_read_an_engine() {
        let parent = tempfile::tempdir().unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        let (file, folder) = (parent.path().join("file"), parent.path().join("folder"));
        fs::write(&file, "x").unwrap();
        fs::create_dir(&folder).unwrap();
        let staging = finished(parent.path(), "0");
        fs::create_dir(staging.path().join("tokenizer")).unwrap();
        for private in [staging.path().to_owned(), staging.path().join("tokenizer")] {
            fs::set_permissions(private, Permissions::from_mode(0o700)).unwrap();
        }
        fs::set_permissions(staging.path().join("selftest.safetensors"), Permissions::from_mode(0o600)).unwrap();
        let engine = parent.path().join("engine");
        put_in_place(staging, &engine).unwrap();
        assert_eq!(mode(&engine.join("selftest.safetensors")), mode(&file));
        assert_eq!([mode(&engine), mode(&engine.join("tokenizer"))], [mode(&folder); 2]);
    }

    #[test]
    fn an_older_engine_is_replaced_whether_or_not_folders_can_be_exchanged() {
        let parent = tempfile::tempdir().unwrap();
        let engine = parent.path().join("engine");
        let replacements: [fn(Temporary, &Path) -> Result<()>; 3] = [put_in_place, put_in_place, step_aside];
        for (number, replace) in replacements.into_iter().enumerate() {
            replace(finished(parent.path(), &number.to_string()), &engine).unwrap();
            assert_eq!(fs::read_to_string(engine.join("selftest.safetensors")).unwrap(), number.to_string());
            assert_eq!(names(parent.path()), ["engine"]);
        }
    }

    /// Windows replaces a folder in two steps.
    #[cfg(unix)]
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
                    assert!(engine.join("selftest.safetensors").exists());
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
}
