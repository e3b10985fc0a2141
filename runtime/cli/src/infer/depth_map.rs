//! Which depth map belongs to a picture.

use std::path::{Path, PathBuf};

use tileforge_runtime::{Error, Result};

use super::arguments::Arguments;

/// Endings of the files that maps come in, in the order in which a folder is searched.
const MAP_ENDINGS: [&str; 5] = ["png", "tif", "tiff", "exr", "npy"];

/// The map that is read for a picture.
pub(super) fn map_for(input: &Path, arguments: &Arguments) -> Option<PathBuf> {
    map_of(arguments.depth.depth.as_deref()?, input).ok()
}

/// The map of a picture.
pub(super) fn map_of(depth: &Path, picture: &Path) -> Result<PathBuf> {
    if !depth.is_dir() {
        return Ok(depth.to_owned());
    }
    let stem = Path::new(picture.file_stem().unwrap_or_default());
    let named = |ending: &str| {
        let mut name = stem.as_os_str().to_owned();
        name.push(".");
        name.push(ending);
        depth.join(name)
    };
    let candidates: Vec<PathBuf> = MAP_ENDINGS.iter().map(|ending| named(ending)).collect();
    match candidates.iter().filter(|path| path.is_file()).collect::<Vec<_>>().as_slice() {
        [only] => Ok((*only).clone()),
        [] => {
            let problem = format!("expected a depth map for {}, found none of this name", picture.display());
            Err(Error::DepthMap { path: depth.join(stem), problem })
        }
        [one, other, ..] => {
            let problem = format!("two depth maps for {}: also {}", picture.display(), other.display());
            Err(Error::DepthMap { path: (*one).clone(), problem })
        }
    }
}
