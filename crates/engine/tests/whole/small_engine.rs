//! Small engines that hold everything but graphs that run.

use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use tileforge_contract::{Padding, Precision, ReceptiveField, Upscale};
use tileforge_engine::digest::sha256;
use tileforge_engine::manifest::SCHEMA;
use tileforge_engine::{MANIFEST_FILE, WEIGHTS_FILE};

/// The names of an engine's files, without the manifest, in their order.
pub(crate) const FILES: [&str; 4] = ["16x16.onnx", "32x16.onnx", WEIGHTS_FILE, "selftest.safetensors"];

/// The content of one of [`FILES`].
pub(crate) fn content(name: &str) -> Vec<u8> {
    name.bytes().cycle().take(1000 + name.len()).collect()
}

/// A manifest for [`FILES`].
pub(crate) fn manifest(name: &str) -> Value {
    let contract = Upscale {
        input: "input".into(),
        output: "output".into(),
        scale: 2,
        channels: 3,
        range: [0.0, 1.0],
        size_multiple: 1,
        size_minimum: 1,
        padding: Padding::Reflect,
        receptive_field: ReceptiveField::Radius(4),
        safe_precisions: vec![Precision::Fp32],
    }
    .contract();
    let graph = |file: &str, width: usize| {
        json!({
            "file": file, "optimised": false,
            "inputs": { "input": [1, 3, 16, width] }, "outputs": { "output": [1, 3, 32, 2 * width] },
        })
    };
    let digest = |name: &str| json!({ "bytes": content(name).len(), "sha256": sha256(&content(name)) });
    json!({
        "schema": SCHEMA, "name": name, "producer": "engine-builder 0.1.0",
        "model": {
            "architecture": "compact", "licence": null, "checkpoint_sha256": null,
            "graph_sha256": "0".repeat(64), "parameters": 1,
        },
        "contract": contract,
        "precision": "fp32",
        "target": { "profile": "cpu", "provider": "cpu", "compute_capability": null },
        "built_with": { "onnxruntime": "1.31.1", "operating_system": "linux", "processor": "x86_64" },
        "graphs": [graph(FILES[0], 16), graph(FILES[1], 32)],
        "gates": [],
        "selftest": { "file": "selftest.safetensors", "graph": FILES[0], "tolerance": 1e-3 },
        "files": FILES.map(|name| (name.to_owned(), digest(name))).into_iter().collect::<serde_json::Map<_, _>>(),
    })
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
