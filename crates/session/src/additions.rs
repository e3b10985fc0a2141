//! What this machine's GPUs have added to an engine: graphs that TensorRT compiled, and the runtime caches of plans
//! for RTX GPUs. Both are in the environment's cache, and an engine can ship them to machines of the same kind.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tileforge_engine::Engine;
use tileforge_files::unfinished;

use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::{compiled, plans};

/// The files that GPUs of this machine have added, by their names in an engine, without files that the engine already
/// holds.
///
/// # Errors
/// [`Error::NothingAdded`]: there is no such file; or the cache cannot be read.
pub fn of(environment: &Environment, engine: &Engine, devices: &[u32]) -> Result<BTreeMap<String, PathBuf>> {
    let manifest = engine.manifest();
    let mut added = BTreeMap::new();
    for (graph, &device) in manifest.graphs.iter().flat_map(|graph| devices.iter().map(move |device| (graph, device))) {
        let of_plan = graph.plan.as_ref().and_then(|plan| plans::runtime_cache(environment, engine, plan, device));
        let by_tensorrt = || compiled::folder(environment, engine, graph, &manifest.target.tensorrt, device);
        let place = of_plan.map(|cache| (cache.name, cache.folder)).or_else(by_tensorrt);
        let Some((name, folder)) = place.filter(|(_, folder)| folder.is_dir()) else { continue };
        for file in files_in(&folder)? {
            let plain = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            added.insert(format!("{name}/{plain}"), file);
        }
    }
    added.retain(|name, _| engine.file(name).is_err());
    if added.is_empty() { Err(Error::NothingAdded { engine: manifest.name.clone() }) } else { Ok(added) }
}

/// The files in a folder, without unfinished ones that other programs are writing.
fn files_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let failed = |source| Error::file(folder, "list", source);
    let entries = folder.read_dir().map_err(failed)?.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    Ok(entries
        .into_iter()
        .map(|entry| entry.path())
        .filter(|path| path.is_file() && !unfinished::is_unfinished(path))
        .collect())
}
