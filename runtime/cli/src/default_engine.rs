//! Finds the engine to use if none is named, as in `infer photo.jpg`.

use std::env;
use std::path::{Path, PathBuf};

use tileforge_contract::{Task, Upscale};
use tileforge_engine::{BundleManifest, MANIFEST_FILE, MANIFEST_MAXIMUM_BYTES, Manifest, NamedEngines, Requirements};
use tileforge_runtime::Result;
use tileforge_session::choice;
use tileforge_session::{Environment, Placement};
use tileforge_terminal as terminal;

use super::failure::Failure;

/// The variable that names the engine to use.
pub(crate) const VARIABLE: &str = "TILEFORGE_ENGINE";

/// The engine to use for pictures: the variable's; else the only engine; else the one for this machine's best
/// provider. Prints which one it is if there are several.
///
/// # Errors
/// There is none, or none of several fits this machine.
pub(crate) fn default_engine(environment: impl Fn() -> Result<Environment>) -> Result<PathBuf, Failure> {
    if let Some(named) = env::var_os(VARIABLE).filter(|named| !named.is_empty()) {
        return Ok(named.into());
    }
    let places = terminal::engine_folders();
    let engines = NamedEngines::in_folders(places.clone()).first_with(manifest_in);
    if !engines.is_empty() {
        return chosen(engines, environment);
    }
    let places: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
    Err(Failure::Usage(format!(
        "no engine is given, and none for pictures is in {}; give one with --engine or {VARIABLE}, or build one: \
         engine-builder build compact-x4",
        places.join(" or ")
    )))
}

fn chosen(
    engines: Vec<(PathBuf, Manifest)>,
    environment: impl Fn() -> Result<Environment>,
) -> Result<PathBuf, Failure> {
    // Upscalers are preferred; other engines count only if there are no upscalers.
    let (upscalers, others): (Vec<_>, Vec<_>) =
        engines.into_iter().partition(|(_, manifest)| manifest.contract.task == Task::Upscale);
    let mut engines = if upscalers.is_empty() { others } else { upscalers };
    if engines.len() == 1 {
        return Ok(engines.remove(0).0);
    }
    let requirements: Vec<Requirements> = engines.iter().map(|(_, manifest)| Requirements::of(manifest)).collect();
    let ranked = choice::ranked(&requirements, &environment()?, &Placement::default());
    let candidate = choice::best(&ranked, false)?;
    let (chosen, _) = engines.swap_remove(candidate.index);
    let others = engines.len();
    let one = if others == 1 { "another one is there" } else { "others are there" };
    terminal::report(&format!("{}: chosen for this machine; {one}, for --engine to name", chosen.display()));
    Ok(chosen)
}

/// The manifest of an engine of one network that takes pictures.
fn manifest_in(folder: &Path) -> Option<Manifest> {
    let bytes = tileforge_files::read(&folder.join(MANIFEST_FILE), MANIFEST_MAXIMUM_BYTES).ok()?;
    match BundleManifest::parse(&bytes).ok()? {
        BundleManifest::Engine(manifest) => {
            let contract = &manifest.contract;
            // An engine for pictures of only one size must be chosen by name.
            let takes_any = Upscale::of(contract).is_ok_and(|upscale| upscale.only_size.is_none());
            let takes_pictures = takes_any
                || tileforge_runtime::depth::is_depth(contract)
                || tileforge_runtime::realtime::is_realtime(contract);
            takes_pictures.then_some(*manifest)
        }
        BundleManifest::Pipeline(_) => None,
    }
}
