//! The files that an output is made of.

use std::path::{Path, PathBuf};

use super::arguments::Arguments;
use super::companion::companions;

/// The picture, its depth map or its mask where there is one, and the noise that it is restored with.
pub(super) fn made_of(input: &Path, arguments: &Arguments) -> Vec<PathBuf> {
    let noise = arguments.restoration.noise.clone();
    [input.to_owned()].into_iter().chain(companions(input, arguments)).chain(noise).collect()
}
