//! What the end-to-end tests share: the programs, golden data, and working folders.
//!
//! If something is missing, a test fails and says what to do. No test is skipped.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test's way to fail

mod golden;
mod graph;
mod programs;
mod small_engines;

pub use golden::{
    Golden, GoldenComponent, error_over_range, golden_cases, golden_components, golden_systems,
    golden_video_autoencoders,
};
pub use graph::{Graph, environment};
pub use programs::{
    Outcome, assert_verified, build_engine, command, copied_engine, copy_of, demo_engine, engine_of, manifest_in, run,
    run_with_cache_in, words,
};
pub use small_engines::small_engine;

use std::path::{Path, PathBuf};

/// A path in the repository.
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// The names in a folder, sorted. A failed command must not have added any.
pub fn names_in(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
