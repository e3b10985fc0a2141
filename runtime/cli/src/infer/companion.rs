//! Finds the depth map and the mask of a picture.

use std::path::{Path, PathBuf};

use tileforge_runtime::{Error, Result};

use super::arguments::Arguments;

/// Endings of maps, in the order in which a folder is searched.
const MAP_ENDINGS: [&str; 5] = ["png", "tif", "tiff", "exr", "npy"];

/// Endings of masks, in the order in which a folder is searched.
const MASK_ENDINGS: [&str; 8] = ["png", "webp", "bmp", "tif", "tiff", "gif", "jpg", "jpeg"];

/// The files that are read with a picture: its map or its mask. A missing one is reported when the picture's turn
/// comes.
pub(super) fn companions(input: &Path, arguments: &Arguments) -> impl Iterator<Item = PathBuf> {
    let map = arguments.depth.depth.as_deref().and_then(|depth| map_of(depth, input).ok());
    let mask = arguments.inpaint.mask.as_deref().and_then(|masks| mask_of(masks, input).ok());
    map.into_iter().chain(mask)
}

/// The map of a picture.
pub(super) fn map_of(depth: &Path, picture: &Path) -> Result<PathBuf> {
    let refused = |path, problem| Error::DepthMap { path, problem };
    companion_of(depth, picture, ("depth map", &MAP_ENDINGS), refused)
}

/// The mask of a picture.
pub(super) fn mask_of(masks: &Path, picture: &Path) -> Result<PathBuf> {
    let refused = |path: PathBuf, problem: String| tileforge_image::Error::image(&path, problem).into();
    companion_of(masks, picture, ("mask", &MASK_ENDINGS), refused)
}

/// The given file itself, or in a given folder the file with the picture's name and another ending.
fn companion_of(
    given: &Path,
    picture: &Path,
    (what, endings): (&str, &[&str]),
    refused: impl Fn(PathBuf, String) -> Error,
) -> Result<PathBuf> {
    if !given.is_dir() {
        return Ok(given.to_owned());
    }
    let stem = Path::new(picture.file_stem().unwrap_or_default());
    let named = |ending: &str| {
        let mut name = stem.as_os_str().to_owned();
        name.push(".");
        name.push(ending);
        given.join(name)
    };
    let candidates: Vec<PathBuf> = endings.iter().map(|ending| named(ending)).collect();
    match candidates.iter().filter(|path| path.is_file()).collect::<Vec<_>>().as_slice() {
        [only] => Ok((*only).clone()),
        [] => {
            let problem = format!("expected a {what} for {}, found none of this name", picture.display());
            Err(refused(given.join(stem), problem))
        }
        [one, other, ..] => {
            let problem = format!("two {what}s for {}: also {}", picture.display(), other.display());
            Err(refused((*one).clone(), problem))
        }
    }
}
