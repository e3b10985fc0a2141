//! The smallest valid manifests, for tests of this crate and of others. A test gives the values that it is about, and
//! changes the rest if it must.

use serde::Serialize;
use serde_json::{Value, json};
use tileforge_contract::{Contract, Padding, ReceptiveField, Upscale};

use crate::manifest::SCHEMA;

/// An upscaler from `input` to `output`, for pictures of any size with samples of 0–1, with a receptive field of one
/// pixel.
pub fn upscale(scale: usize, channels: usize) -> Upscale {
    Upscale {
        input: "input".into(),
        output: "output".into(),
        scale,
        channels,
        range: [0.0, 1.0],
        size_multiple: 1,
        size_minimum: 1,
        only_size: None,
        padding: Padding::Reflect,
        receptive_field: ReceptiveField::Radius(0),
        safe_precisions: vec![],
    }
}

/// A graph from `input` to `output` of these shapes.
pub fn graph(file: &str, input: &[usize], output: &[usize]) -> Value {
    json!({ "file": file, "optimised": false, "inputs": { "input": input }, "outputs": { "output": output } })
}

/// An engine in FP32 for CPUs, without gates. Its self-test is `selftest.safetensors`, of the first graph.
pub fn manifest(name: &str, contract: &Contract, graphs: Vec<Value>, files: impl Serialize) -> Value {
    json!({
        "schema": SCHEMA, "name": name, "producer": "engine-builder 0.1.0",
        "model": {
            "architecture": "compact", "licence": null, "checkpoint_sha256": null, "graph_sha256": "0".repeat(64),
            "parameters": 1,
        },
        "contract": contract,
        "precision": "fp32",
        "target": { "profile": "cpu", "provider": "cpu", "compute_capability": null },
        "built_with": { "onnxruntime": "1.31.1", "operating_system": "linux", "processor": "x86_64" },
        "selftest": { "file": "selftest.safetensors", "graph": graphs[0]["file"], "tolerance": 1e-3 },
        "graphs": graphs,
        "gates": [],
        "files": files,
    })
}
