//! Engines by name: where names are searched for, and how they differ from paths.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use tileforge_files::is_plain;

use crate::error::{Error, Result};
use crate::manifest::MANIFEST_FILE;

/// The engines that a user can name: they are in some folders, as `FOLDER/PROFILE/NAME` or `FOLDER/NAME`.
#[derive(Clone, Debug)]
pub struct NamedEngines {
    folders: Vec<PathBuf>,
}

impl NamedEngines {
    /// The engines in these folders, which need not exist.
    pub fn in_folders(folders: Vec<PathBuf>) -> Self {
        Self { folders }
    }

    /// The directories that `engine` stands for. If `engine` exists as a path, it is always this path. Otherwise
    /// `NAME` stands for the engines of that name in the first folder that has any, one for each profile, and
    /// `PROFILE/NAME` for one of them. No file of an engine is read.
    ///
    /// A path that cannot be a name, such as `./NAME` or an absolute path, stands for itself, even if it does not
    /// exist.
    ///
    /// # Errors
    /// [`Error::NoSuchEngine`]: neither the path nor an engine of this name exists.
    pub fn find(&self, engine: &Path) -> Result<Vec<PathBuf>> {
        let Some(name) = Name::of(engine).filter(|_| engine.symlink_metadata().is_err()) else {
            return Ok(vec![engine.to_owned()]);
        };
        let of_name = |folder: &PathBuf| -> Vec<PathBuf> {
            let here = engines_in(folder).into_iter().filter(|found| name.is(found));
            // Through links, one engine may have several names in a folder.
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

    /// The engines for which `wanted` returns a value, each with that value, from the first folder that has any such
    /// engine. Engines outside of profiles' folders come first.
    pub fn first_with<T>(&self, wanted: impl Fn(&Path) -> Option<T>) -> Vec<(PathBuf, T)> {
        let of_folder = |folder: &PathBuf| -> Vec<(PathBuf, T)> {
            let directories = engines_in(folder).into_iter().map(|found| found.directory(folder));
            directories.filter_map(|directory| wanted(&directory).map(|made| (directory, made))).collect()
        };
        self.folders.iter().map(of_folder).find(|found| !found.is_empty()).unwrap_or_default()
    }

    /// All names, sorted: `PROFILE/NAME`, or `NAME` for an engine outside of profiles' folders.
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
    /// The name that a path can mean: one plain name, or two; `None` if it is only a path.
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

    /// Whether this name means the engine.
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

/// The engines in a folder and in its profiles' folders, sorted. A folder that cannot be read has none.
fn engines_in(folder: &Path) -> Vec<Name> {
    let mut found = Vec::new();
    for name in folders_in(folder) {
        let inner = folder.join(&name);
        if is_engine(&inner) {
            // The folders in an engine are its parts.
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

/// The plain names of the folders in a folder. Names that begin with a dot are left out: for example engines that are
/// being written.
fn folders_in(folder: &Path) -> Vec<String> {
    let entries = folder.read_dir().into_iter().flatten().flatten();
    let names = entries.filter(|entry| entry.path().is_dir()).filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| !name.starts_with('.') && is_plain(name)).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Folders with engines at these paths: an empty manifest is enough, because manifests are not read.
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
