//! The files that an output is made of.

use std::path::{Path, PathBuf};

use super::arguments::Arguments;
use super::depth_map::map_for;

/// The picture, and its depth map where there is one.
pub(super) fn made_of(input: &Path, arguments: &Arguments) -> Vec<PathBuf> {
    [input.to_owned()].into_iter().chain(map_for(input, arguments)).collect()
}
