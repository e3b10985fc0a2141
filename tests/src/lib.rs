//! What the end-to-end tests share: the programs, golden data, and working folders.
//!
//! If something is missing, a test fails and states what to do. No test is skipped.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test's way to fail

mod certificates;
mod golden;
mod golden_pipelines;
mod graph;
mod inpainting_engines;
pub mod model_package;
mod programs;
mod registries;
mod restoration_engines;
mod servers;
mod small_engines;
mod tokens;
mod weights;

pub use certificates::{Authority, Certificate};
pub use golden::{
    Golden, GoldenComponent, error_over_range, golden_cases, golden_components, golden_retouches, golden_systems,
    golden_video_autoencoders, golden_video_transformers,
};
pub use golden_pipelines::{GoldenPipelines, GoldenRun, list_again, with_manifest};
pub use graph::{Graph, PROCESSOR, environment};
pub use inpainting_engines::inpainting_engine;
pub use programs::{
    Outcome, assert_verified, binaries, build_engine, command, copied_engine, copy_of, demo_engine, edit_manifest,
    engine_of, manifest_in, new_key, on_cores, run, run_with_cache_in, words,
};
pub use registries::{CuttingServer, LocalRegistry, RegistrySettings};
pub use restoration_engines::{restoration_engine, restoration_model};
pub use servers::{Answer, Asked, ExpiringServer, ScriptedServer};
pub use small_engines::small_engine;
pub use tokens::TokenServer;
pub use weights::{Weight, copy_weights};

use std::path::{Path, PathBuf};

/// The numbers of threads of a session in tests that require equal bytes, the same on every machine. ONNX Runtime
/// divides an operator's work by this number, and some of its kernels round differently at the ends of the parts.
pub const THREADS: [usize; 4] = [1, 2, 4, 8];

/// A path in the repository.
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// Copies a folder with its content.
pub fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in from.read_dir().unwrap() {
        let entry = entry.unwrap();
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy_folder(&from, &to);
        } else {
            std::fs::copy(&from, &to).unwrap();
        }
    }
}

/// Adds every Rust file below `folder`.
pub fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in folder.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            files.push(path);
        }
    }
}

/// The names in a folder, sorted. A failed command must not have added any.
pub fn names_in(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    // The record of the inputs of the folder's outputs.
    names.retain(|name| name != ".tileforge-outputs.jsonl");
    names.sort();
    names
}
