//! Small engines whose graphs cannot run; everything else is valid.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use tileforge_contract::{Precision, ReceptiveField, Upscale};
use tileforge_engine::digest::sha256;
use tileforge_engine::{MANIFEST_FILE, WEIGHTS_FILE, testing};

/// The names of an engine's files, without the manifest, in their order.
pub(crate) const FILES: [&str; 4] = ["16x16.onnx", "32x16.onnx", WEIGHTS_FILE, "selftest.safetensors"];

/// The content of one of [`FILES`].
pub(crate) fn content(name: &str) -> Vec<u8> {
    name.bytes().cycle().take(1000 + name.len()).collect()
}

/// A manifest for [`FILES`].
pub(crate) fn manifest(name: &str) -> Value {
    let contract = Upscale {
        receptive_field: ReceptiveField::Radius(4),
        safe_precisions: vec![Precision::Fp32],
        ..testing::upscale(2, 3)
    };
    let graph = |file: &str, width: usize| testing::graph(file, &[1, 3, 16, width], &[1, 3, 32, 2 * width]);
    let graphs = vec![graph(FILES[0], 16), graph(FILES[1], 32)];
    let digest = |name: &str| json!({ "bytes": content(name).len(), "sha256": sha256(&content(name)) });
    let files = FILES.map(|name| (name, digest(name)));
    testing::manifest(name, &contract.contract(), graphs, BTreeMap::from(files))
}

/// Writes an engine with this manifest to `parent`, and returns its directory.
pub(crate) fn write(parent: &Path, manifest: &Value) -> PathBuf {
    let directory = parent.join(manifest["name"].as_str().unwrap());
    fs::create_dir_all(&directory).unwrap();
    for name in FILES {
        fs::write(directory.join(name), content(name)).unwrap();
    }
    fs::write(directory.join(MANIFEST_FILE), serde_json::to_vec(manifest).unwrap()).unwrap();
    directory
}

/// The text of an error with the texts of its causes.
pub(crate) fn text(error: impl std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
