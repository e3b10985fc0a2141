//! Models and engines that the user names. An existing path always takes precedence over a name.

use super::failure::Failure;
use super::models::model_folders;
use std::path::{Path, PathBuf};
use tileforge_engine::NamedEngines;
use tileforge_engine_builder::{Error, ModelFile};
use tileforge_terminal::engine_folders;

/// The model of a build: the path itself if it exists or cannot be a name, else the file of the model of this name.
pub(super) fn model(model: &Path) -> Result<PathBuf, Failure> {
    let is_name = model.extension().is_none() && model.to_str().is_some_and(tileforge_files::is_plain);
    if !is_name || model.symlink_metadata().is_ok() {
        return Ok(model.to_owned());
    }
    Ok(ModelFile::path_of(model, &model_folders())?)
}

/// The directory of an engine, given by its path or its name.
pub(super) fn engine(engine: &Path) -> Result<PathBuf, Failure> {
    let mut found = engines_of(engine)?;
    if found.len() == 1 {
        return Ok(found.remove(0));
    }
    let all = found.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
    let problem = format!("{}: several engines have this name: {all}; give one of these", engine.display());
    Err(Failure::Usage(problem))
}

/// The directories of engines. A name stands for the engines of all profiles.
pub(super) fn engines(engines: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let found = engines.iter().map(|engine| engines_of(engine)).collect::<Result<Vec<_>, _>>()?;
    Ok(found.into_iter().flatten().collect())
}

fn engines_of(engine: &Path) -> Result<Vec<PathBuf>, Failure> {
    Ok(NamedEngines::in_folders(engine_folders()).find(engine).map_err(Error::from)?)
}
