//! The engine that is used where none is named: what `infer photo.jpg` needs.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use tileforge_contract::Task;
use tileforge_engine::{BundleManifest, MANIFEST_FILE, MANIFEST_MAXIMUM_BYTES, Manifest, Requirements};
use tileforge_runtime::Result;
use tileforge_session::choice;
use tileforge_session::{Environment, Placement};
use tileforge_terminal as terminal;

use super::failure::Failure;

/// The variable that names the engine to use.
pub(crate) const VARIABLE: &str = "TILEFORGE_ENGINE";

/// Engines stand in `engines/NAME` or `engines/PROFILE/NAME`.
const LEVELS: usize = 2;

/// More folders than anybody keeps engines in.
const FOLDERS_MAXIMUM: usize = 10_000;

/// The engine to use for pictures: that of the variable; else the only one there is; else that for this machine's best
/// provider. Says which one it is if there are several.
///
/// # Errors
/// There is none, or none of several fits this machine.
pub(crate) fn default_engine(environment: impl Fn() -> Result<Environment>) -> Result<PathBuf, Failure> {
    if let Some(named) = env::var_os(VARIABLE).filter(|named| !named.is_empty()) {
        return Ok(named.into());
    }
    let places = terminal::engine_folders();
    for place in &places {
        let engines = engines_in(place);
        if !engines.is_empty() {
            return chosen(engines, environment);
        }
    }
    let places: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
    Err(Failure::Usage(format!(
        "no engine is given, and none for pictures is in {}; give one with --engine or {VARIABLE}, or build one: \
         engine-builder build compact-x4",
        places.join(" or ")
    )))
}

struct Found {
    directory: PathBuf,
    manifest: Manifest,
}

fn chosen(engines: Vec<Found>, environment: impl Fn() -> Result<Environment>) -> Result<PathBuf, Failure> {
    // Enlarging is what pictures are sent through an engine for, unless there is no such engine.
    let (upscalers, others): (Vec<_>, Vec<_>) =
        engines.into_iter().partition(|found| found.manifest.contract.task == Task::Upscale);
    let mut engines = if upscalers.is_empty() { others } else { upscalers };
    if engines.len() == 1 {
        return Ok(engines.remove(0).directory);
    }
    let requirements: Vec<Requirements> = engines.iter().map(|found| Requirements::of(&found.manifest)).collect();
    let ranked = choice::ranked(&requirements, &environment()?, &Placement::default());
    let candidate = choice::best(&ranked, false)?;
    let chosen = engines.swap_remove(candidate.index);
    let others = engines.len();
    let one = if others == 1 { "another one is there" } else { "others are there" };
    terminal::report(&format!("{}: chosen for this machine; {one}, for --engine to name", chosen.directory.display()));
    Ok(chosen.directory)
}

/// The engines for pictures in a folder, sorted by their paths. What cannot be read is none.
fn engines_in(folder: &Path) -> Vec<Found> {
    let (mut found, mut open, mut seen) = (Vec::new(), vec![(folder.to_owned(), 0)], 0);
    while let Some((folder, level)) = open.pop() {
        seen += 1;
        if seen > FOLDERS_MAXIMUM {
            break;
        }
        if level > 0
            && let Some(manifest) = manifest_in(&folder)
        {
            found.push(Found { directory: folder, manifest });
        } else if level < LEVELS {
            let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
            // A hidden folder is one that is being built.
            let shown = entries.filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."));
            open.extend(shown.map(|entry| entry.path()).filter(|path| path.is_dir()).map(|path| (path, level + 1)));
        }
    }
    found.sort_by(|one, other| one.directory.cmp(&other.directory));
    found
}

/// The manifest of an engine of one network that takes pictures.
fn manifest_in(folder: &Path) -> Option<Manifest> {
    let bytes = tileforge_files::read(&folder.join(MANIFEST_FILE), MANIFEST_MAXIMUM_BYTES).ok()?;
    match BundleManifest::parse(&bytes).ok()? {
        BundleManifest::Engine(manifest) => {
            let contract = &manifest.contract;
            let takes_pictures = contract.task == Task::Upscale
                || tileforge_runtime::depth::is_depth(contract)
                || tileforge_runtime::realtime::is_realtime(contract);
            takes_pictures.then_some(*manifest)
        }
        BundleManifest::Pipeline(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_without_an_engine_have_none() {
        let folder = tempfile::tempdir().unwrap();
        assert!(engines_in(folder.path()).is_empty() && engines_in(&folder.path().join("missing")).is_empty());
        let deep = folder.path().join("a/b/c");
        fs::create_dir_all(&deep).unwrap();
        fs::write(folder.path().join("a").join(MANIFEST_FILE), "{}").unwrap();
        fs::write(deep.join(MANIFEST_FILE), "no manifest").unwrap();
        // A folder that holds itself.
        std::os::unix::fs::symlink(folder.path(), folder.path().join("a/around")).unwrap();
        assert!(engines_in(folder.path()).is_empty());
    }
}
