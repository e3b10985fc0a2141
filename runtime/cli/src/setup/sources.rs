//! The sources of `--from`: wheels that pip has downloaded, and folders with libraries.

use std::env::consts::{ARCH, OS};
use std::fs::File;
use std::path::{Path, PathBuf};

use tileforge_files::Digests;

use super::binary;
use super::install::main_library;
use super::record::Files;
use super::table::{Part, Wheel};
use super::wheel::{digest, not_written, other_machine};

/// What was found at the places that the user named.
#[derive(Debug, Default)]
pub(super) struct Sources<'t> {
    /// Wheels with their files.
    pub(super) wheels: Vec<(&'t Wheel, PathBuf)>,
    /// Folders with libraries.
    pub(super) folders: Vec<PathBuf>,
    /// Whether the user named any place.
    pub(super) are_named: bool,
}

impl<'t> Sources<'t> {
    /// Looks for the wanted ones of the known wheels, and for libraries.
    ///
    /// # Errors
    /// A place has nothing usable, or a wheel is not the pinned one.
    pub(super) fn find(paths: &[PathBuf], known: &[&'t Wheel], wanted: &[&'t Wheel]) -> Result<Self, String> {
        let mut found = Self { are_named: !paths.is_empty(), ..Self::default() };
        for path in paths {
            let at = |reason: String| format!("{}: {reason}", path.display());
            let kind = path.metadata().map_err(|error| at(error.to_string()))?;
            if !kind.is_dir() {
                found.wheels.push((of_file(path, known, wanted).map_err(at)?, path.clone()));
                continue;
            }
            let names = names_in(path).map_err(at)?;
            let wheels: Vec<&String> = names.iter().filter(|name| name.ends_with(".whl")).collect();
            if !wheels.is_empty() {
                found.wheels.extend(in_folder(path, &wheels, wanted).map_err(at)?);
            } else if names.iter().any(|name| is_library(name, known)) {
                found.folders.push(path.clone());
            } else {
                return Err(at(format!("expected wheels or {} in this folder, found neither", main_library())));
            }
        }
        Ok(found)
    }
}

/// The wheel that a file is.
fn of_file<'t>(path: &Path, known: &[&'t Wheel], wanted: &[&'t Wheel]) -> Result<&'t Wheel, String> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let package = package_of(&name).ok_or("expected a wheel (.whl) or a folder")?;
    let of_package = |wheels: &[&'t Wheel]| wheels.iter().copied().find(|wheel| wheel.file_package() == package);
    if let Some(wheel) = of_package(wanted) {
        return Ok(wheel);
    }
    Err(match of_package(known) {
        Some(Wheel { part: Part::OpenVino, .. }) => "expected no OpenVINO with --without-openvino".into(),
        Some(Wheel { part: Part::Rtx, .. }) => "TensorRT for RTX is installed with --rtx or --gpu".into(),
        Some(Wheel { part: Part::Gpu | Part::Provider, package, .. }) => format!("{package} is installed with --gpu"),
        Some(wheel) => format!("with --gpu, onnxruntime-gpu takes the place of {}", wheel.package),
        None => {
            let names: Vec<String> = wanted.iter().map(|wheel| wheel.name()).collect();
            format!("expected one of {}", names.join(", "))
        }
    })
}

/// The wanted wheels of a folder. Wheels of other packages are ignored: pip may have downloaded them as well.
fn in_folder<'t>(folder: &Path, names: &[&String], wanted: &[&'t Wheel]) -> Result<Vec<(&'t Wheel, PathBuf)>, String> {
    let mut found = Vec::new();
    for wheel in wanted {
        let package = wheel.file_package();
        let named: Vec<&&String> = names.iter().filter(|name| package_of(name) == Some(package.as_str())).collect();
        let exact = named.iter().find(|name| ***name == &wheel.name());
        match (exact, named.first()) {
            (Some(name), _) => found.push((*wheel, folder.join(name))),
            (None, Some(other)) => return Err(other_release(wheel, other)),
            (None, None) => {}
        }
    }
    Ok(found)
}

/// The package of a wheel, as its name has it.
fn package_of(name: &str) -> Option<&str> {
    name.strip_suffix(".whl")?.split('-').next()
}

fn other_release(wheel: &Wheel, found: &str) -> String {
    format!("expected {}, found {found}: another release, or one for another system", wheel.name())
}

/// Opens a wheel, whose SHA-256 has to be the pinned one.
pub(super) fn open_pinned(wheel: &Wheel, path: &Path, digests: &Digests) -> Result<File, String> {
    let at = |reason: String| format!("{}: {reason}", path.display());
    let file = tileforge_files::open(path).map_err(|error| at(error.to_string()))?;
    let found = digests.of_opened(&file, path).map_err(|error| at(error.to_string()))?;
    if found.sha256 == wheel.sha256 {
        return Ok(file);
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if name != wheel.name() {
        return Err(at(other_release(wheel, &name)));
    }
    Err(at(format!("expected SHA-256 {}, found {}; download it again", wheel.sha256, found.sha256)))
}

/// Copies the libraries of a folder into `staging`. Returns them by their names.
pub(super) fn copy_libraries(folder: &Path, known: &[&Wheel], staging: &Path) -> Result<Files, String> {
    let at = |reason: String| format!("{}: {reason}", folder.display());
    let mut files = Files::new();
    for name in names_in(folder).map_err(at)?.into_iter().filter(|name| is_library(name, known)) {
        let path = folder.join(&name);
        // Links beside a library are its other names; they are recreated below.
        if path.symlink_metadata().is_ok_and(|found| found.is_symlink()) {
            continue;
        }
        let mut source = tileforge_files::open(&path).map_err(|error| at(format!("{name}: {error}")))?;
        match binary::made_for(&mut source).map_err(|error| at(format!("{name}: {error}")))? {
            Some(found) if found == (OS, ARCH) => {}
            found => return Err(at(other_machine(&name, found, OS, ARCH))),
        }
        let target = staging.join(&name);
        let mut made = File::create_new(&target).map_err(|error| at(not_written(&name, &error)))?;
        std::io::copy(&mut source, &mut made).map_err(|error| at(not_written(&name, &error)))?;
        files.insert(name.clone(), digest(&target, &name)?);
    }
    let main = main_library();
    let numbered = |name: &&String| name.strip_prefix(&main).is_some_and(|rest| rest.starts_with('.'));
    let plain = files.keys().find(numbered).map(|name| (name.clone(), main.clone()));
    let seconds =
        known.iter().flat_map(|wheel| &wheel.second_names).map(|(name, second)| (name.clone(), second.clone()));
    for (name, second) in plain.into_iter().chain(seconds) {
        let Some(sha256) = files.get(&name).cloned().filter(|_| !files.contains_key(&second)) else { continue };
        tileforge_files::link_or_copy(&staging.join(&name), &staging.join(&second))
            .map_err(|error| at(not_written(&second, &error)))?;
        files.insert(second, sha256);
    }
    Ok(files)
}

/// Whether a name is one of the libraries that wheels have.
pub(super) fn is_library(name: &str, known: &[&Wheel]) -> bool {
    name == main_library() || known.iter().any(|wheel| wheel.has_library(name))
}

fn names_in(folder: &Path) -> Result<Vec<String>, String> {
    let entries = folder.read_dir().map_err(|error| error.to_string())?;
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry.map_err(|error| error.to_string())?.file_name().into_string().ok());
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::super::binary::tests::library;
    use super::super::table::Table;
    use super::super::wheel::tests::{table, wheel};
    use super::*;

    const NAME: &str = "onnxruntime-1.31.1-cp311-cp311-manylinux_2_28_x86_64.whl";

    #[test]
    fn the_pinned_wheel_is_taken_and_another_release_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(NAME);
        wheel(&path, &[("onnxruntime/capi/libonnxruntime.so.1.31.1", &library("linux", "x86_64"))]);
        let digests = Digests::default();
        let table = table(&digests.of(&path).unwrap().sha256, 1000);
        let known: Vec<&Wheel> = table.wheels.iter().collect();
        let find = |paths: &[PathBuf]| Sources::find(paths, &known, &known);
        for place in [path.clone(), folder.path().to_owned()] {
            let found = find(std::slice::from_ref(&place)).unwrap();
            assert_eq!(found.wheels.len(), 1);
            open_pinned(found.wheels[0].0, &found.wheels[0].1, &digests).unwrap();
        }
        // Other wheels that pip downloaded are ignored.
        std::fs::write(folder.path().join("numpy-2.0.0-cp311-cp311-manylinux_2_28_x86_64.whl"), "x").unwrap();
        assert_eq!(find(&[folder.path().to_owned()]).unwrap().wheels.len(), 1);
        let numpy = find(&[folder.path().join("numpy-2.0.0-cp311-cp311-manylinux_2_28_x86_64.whl")]).unwrap_err();
        assert!(numpy.contains(&format!("expected one of {NAME}")), "{numpy}");

        // Other bytes under the same name.
        std::fs::write(&path, "other").unwrap();
        let refused = open_pinned(known[0], &path, &digests).unwrap_err();
        assert!(refused.contains("expected SHA-256") && refused.contains("download it again"), "{refused}");
        // Another release.
        let other = folder.path().join(NAME.replace("1.31.1", "1.32.0"));
        std::fs::rename(&path, &other).unwrap();
        let refused = find(&[folder.path().to_owned()]).unwrap_err();
        assert!(refused.contains(&format!("expected {NAME}, found onnxruntime-1.32.0")), "{refused}");
        let refused = open_pinned(known[0], &other, &digests).unwrap_err();
        assert!(refused.contains(&format!("expected {NAME}, found onnxruntime-1.32.0")), "{refused}");
    }

    #[test]
    fn what_is_neither_a_wheel_nor_a_folder_with_libraries_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let table = Table::built_in().unwrap();
        let known = table.wheels_for(OS, ARCH);
        let refused = |path: &Path, words: &str| {
            let error = Sources::find(&[path.to_owned()], &known, &known[..1]).unwrap_err();
            assert!(error.contains(words), "expected `{words}` in: {error}");
        };
        refused(&folder.path().join("missing"), "missing");
        refused(folder.path(), "found neither");
        std::fs::write(folder.path().join("a.zip"), "x").unwrap();
        refused(&folder.path().join("a.zip"), "expected a wheel (.whl) or a folder");
        let other = known.iter().find(|wheel| wheel.part == Part::OpenVino).unwrap().name();
        std::fs::write(folder.path().join(&other), "x").unwrap();
        refused(&folder.path().join(&other), "--without-openvino");
    }
}
