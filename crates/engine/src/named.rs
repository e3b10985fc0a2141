//! Engines by name: where a name is looked for, and what a path is.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use tileforge_files::is_plain;

use crate::error::{Error, Result};
use crate::manifest::MANIFEST_FILE;

/// The engines that a user can name: those in some folders, as `FOLDER/PROFILE/NAME` or `FOLDER/NAME`.
#[derive(Clone, Debug)]
pub struct NamedEngines {
    folders: Vec<PathBuf>,
}

impl NamedEngines {
    /// The engines in these folders. A folder need not be there.
    pub fn in_folders(folders: Vec<PathBuf>) -> Self {
        Self { folders }
    }

    /// The directories that `engine` stands for. What is there under this path is always the path. Otherwise a name
    /// `NAME` stands for the engines of that name in the first folder that has any, one for each profile, and
    /// `PROFILE/NAME` for one of them. Nothing of an engine is read.
    ///
    /// A path that cannot be a name, such as `./NAME` or an absolute one, stands for itself, whether it is there or
    /// not.
    ///
    /// # Errors
    /// [`Error::NoSuchEngine`]: there is neither the path nor an engine of this name.
    pub fn find(&self, engine: &Path) -> Result<Vec<PathBuf>> {
        let Some(name) = Name::of(engine).filter(|_| engine.symlink_metadata().is_err()) else {
            return Ok(vec![engine.to_owned()]);
        };
        let of_name = |folder: &PathBuf| -> Vec<PathBuf> {
            let here = engines_in(folder).into_iter().filter(|found| name.is(found));
            // One engine may have several names there, through links.
            let mut seen = BTreeSet::new();
            here.map(|found| found.directory(folder))
                .filter(|directory| seen.insert(directory.canonicalize().unwrap_or_else(|_| directory.clone())))
                .collect()
        };
        let found = self.folders.iter().map(of_name).find(|found| !found.is_empty());
        found.ok_or_else(|| Error::NoSuchEngine {
            name: engine.to_string_lossy().into_owned(),
            folders: self.folders.clone(),
            known: self.names(),
        })
    }

    /// The engines of the first folder that has any that `wanted` gives something for, each with what that is; those that
    /// are in no profile's folder first.
    pub fn first_with<T>(&self, wanted: impl Fn(&Path) -> Option<T>) -> Vec<(PathBuf, T)> {
        let of_folder = |folder: &PathBuf| -> Vec<(PathBuf, T)> {
            let directories = engines_in(folder).into_iter().map(|found| found.directory(folder));
            directories.filter_map(|directory| wanted(&directory).map(|made| (directory, made))).collect()
        };
        self.folders.iter().map(of_folder).find(|found| !found.is_empty()).unwrap_or_default()
    }

    /// All names, sorted: `PROFILE/NAME`, or `NAME` of an engine that is in no profile's folder.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> =
            self.folders.iter().flat_map(|folder| engines_in(folder)).map(Name::text).collect();
        names.sort();
        names.dedup();
        names
    }
}

/// A name that an engine has, or that a user has typed.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Name {
    profile: Option<String>,
    name: String,
}

impl Name {
    /// The name that a path may be: one plain name, or two.
    fn of(path: &Path) -> Option<Self> {
        // `NAME/` is a path, as everywhere.
        let text = path.to_str().filter(|text| !text.ends_with('/'))?;
        let parts: Vec<Component<'_>> = path.components().collect();
        let plain = |part: &Component<'_>| match part {
            Component::Normal(part) => part.to_str().filter(|part| is_plain(part)).map(str::to_owned),
            _ => None,
        };
        match parts.as_slice() {
            [name] if *text != *"." => Some(Self { profile: None, name: plain(name)? }),
            [profile, name] => Some(Self { profile: Some(plain(profile)?), name: plain(name)? }),
            _ => None,
        }
    }

    /// Whether an engine is meant by this name.
    fn is(&self, engine: &Self) -> bool {
        self.name == engine.name && (self.profile.is_none() || self.profile == engine.profile)
    }

    fn directory(&self, folder: &Path) -> PathBuf {
        self.profile.as_ref().map_or_else(|| folder.to_owned(), |profile| folder.join(profile)).join(&self.name)
    }

    fn text(self) -> String {
        self.profile.map_or_else(|| self.name.clone(), |profile| format!("{profile}/{}", self.name))
    }
}

/// The engines in a folder and in the folders of profiles there, sorted. What cannot be read has none.
fn engines_in(folder: &Path) -> Vec<Name> {
    let mut found = Vec::new();
    for name in folders_in(folder) {
        let inner = folder.join(&name);
        if is_engine(&inner) {
            // The folders in it are its parts.
            found.push(Name { profile: None, name });
            continue;
        }
        let engines = folders_in(&inner).into_iter().filter(|engine| is_engine(&inner.join(engine)));
        found.extend(engines.map(|engine| Name { profile: Some(name.clone()), name: engine }));
    }
    found.sort();
    found
}

fn is_engine(directory: &Path) -> bool {
    directory.join(MANIFEST_FILE).is_file()
}

/// The plain names of folders in a folder. What begins with a point is hidden: engines that are being written.
fn folders_in(folder: &Path) -> Vec<String> {
    let entries = folder.read_dir().into_iter().flatten().flatten();
    let names = entries.filter(|entry| entry.path().is_dir()).filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| !name.starts_with('.') && is_plain(name)).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Folders with engines of these paths: an empty manifest is enough, because nothing is read.
    fn folders(engines: &[&str]) -> (tempfile::TempDir, NamedEngines) {
        let work = tempfile::tempdir().unwrap();
        for engine in engines {
            let directory = work.path().join(engine);
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join(MANIFEST_FILE), "").unwrap();
        }
        let places = ["near", "far"].map(|folder| work.path().join(folder)).to_vec();
        (work, NamedEngines::in_folders(places))
    }

    #[test]
    fn a_name_stands_for_the_engines_of_all_profiles_in_the_nearest_folder() {
        let (work, named) = folders(&["near/cpu/x4", "near/rtx/x4", "far/x4", "far/cpu/depth", "near/plain"]);
        let found = |name: &str| {
            let shown = |path: PathBuf| path.strip_prefix(work.path()).unwrap().display().to_string();
            let relative = |path: PathBuf| tileforge_files::with_slashes(&shown(path)).into_owned();
            named.find(Path::new(name)).unwrap().into_iter().map(relative).collect::<Vec<_>>()
        };
        assert_eq!(found("x4"), ["near/cpu/x4", "near/rtx/x4"]);
        assert_eq!(found("rtx/x4"), ["near/rtx/x4"]);
        assert_eq!((found("plain"), found("depth")), (vec!["near/plain".into()], vec!["far/cpu/depth".into()]));
        assert_eq!(named.names(), ["cpu/depth", "cpu/x4", "plain", "rtx/x4", "x4"]);
    }

    #[test]
    fn the_first_folder_with_what_is_wanted_counts() {
        let (work, named) = folders(&["near/cpu/sd15", "far/x4", "far/cpu/x4", "far/sd15"]);
        let of = |name: &'static str| named.first_with(move |directory| directory.ends_with(name).then_some(name));
        let far = work.path().join("far");
        assert_eq!(of("x4"), [(far.join("x4"), "x4"), (far.join("cpu/x4"), "x4")]);
        assert_eq!(of("sd15"), [(work.path().join("near/cpu/sd15"), "sd15")]);
        assert_eq!(of("depth"), []);
    }

    #[test]
    fn a_path_that_is_there_wins() {
        let (work, named) = folders(&["near/x4"]);
        for path in
            [work.path().join("near"), work.path().join("nowhere/x4"), "./x4".into(), "../x4".into(), "x4/".into()]
        {
            assert_eq!(named.find(&path).unwrap(), [path]);
        }
        // Tests run in the crate's folder, which has this file.
        let named = NamedEngines::in_folders(vec![work.path().join("near")]);
        assert_eq!(named.find(Path::new("Cargo.toml")).unwrap(), [PathBuf::from("Cargo.toml")]);
    }

    #[test]
    fn parts_hidden_folders_and_folders_without_a_manifest_are_no_engines() {
        let (work, named) = folders(&["near/sd15", "near/sd15/unet", "near/.tileforge-x.partial", "near/.x/hidden"]);
        fs::create_dir_all(work.path().join("near/empty")).unwrap();
        fs::create_dir_all(work.path().join("near/odd").join(MANIFEST_FILE)).unwrap();
        fs::write(work.path().join("near/file"), "").unwrap();
        assert_eq!(named.names(), ["sd15"]);
        for name in ["unet", "sd15/unet", "hidden", "empty", "odd", "", ".", "..", "a/b/c", "a\nb", "Größe"] {
            match named.find(Path::new(name)) {
                Ok(found) => assert_eq!(found, [PathBuf::from(name)], "{name:?}"),
                Err(error) => assert!(error.to_string().contains("known are sd15"), "{name:?}: {error}"),
            }
        }
        let error = named.find(Path::new("unet")).unwrap_err().to_string();
        let near = work.path().join("near");
        assert!(error.starts_with("unet: no such engine in ") && error.contains(near.to_str().unwrap()), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn links_to_engines_have_names_and_loops_end() {
        let (work, named) = folders(&["elsewhere/x4"]);
        let near = work.path().join("near");
        fs::create_dir(&near).unwrap();
        std::os::unix::fs::symlink(work.path().join("elsewhere/x4"), near.join("linked")).unwrap();
        std::os::unix::fs::symlink(&near, near.join("loop")).unwrap();
        assert_eq!(named.find(Path::new("linked")).unwrap(), [near.join("linked")]);
        assert_eq!(named.names(), ["linked", "loop/linked"]);
    }
}
