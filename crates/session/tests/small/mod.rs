//! Engines of graphs that a test makes.

use std::path::Path;

use ndarray::ArrayD;
use serde_json::json;
use tileforge_contract::{Padding, ReceptiveField, Upscale};
use tileforge_engine::digest::sha256_file;
use tileforge_engine::exchange;
use tileforge_engine::{Engine, MANIFEST_FILE};
use tileforge_graph::{DataType, Model, Node, Opset, Port, TensorType, WeightStorage};
use tileforge_session::{Tensor, selftest};

/// A graph of operators one after the other, from a grey picture of `shape` to one of the same shape. Each has a name,
/// an operator, and the weights that it takes behind its input.
pub(crate) fn chain(shape: [usize; 4], operators: &[(&str, &str, &[&str])]) -> Model {
    let port = |name: &str| Port { name: name.into(), ty: TensorType::new(DataType::F32, shape) };
    let mut value = "input".to_owned();
    let mut nodes = Vec::new();
    for (place, (name, operator, weights)) in operators.iter().enumerate() {
        let inputs = std::iter::once(value).chain(weights.iter().map(|weight| (*weight).to_owned())).collect();
        value = if place + 1 == operators.len() { "output".into() } else { format!("{name}/output") };
        nodes.push(Node {
            name: (*name).into(),
            operator: (*operator).into(),
            domain: String::new(),
            inputs,
            outputs: vec![value.clone()],
            attributes: Default::default(),
        });
    }
    Model {
        name: "chain".into(),
        ir_version: 9,
        opsets: vec![Opset { domain: String::new(), version: 20 }],
        inputs: vec![port("input")],
        outputs: vec![port("output")],
        nodes,
        ..Model::default()
    }
}

/// Writes an engine of the graph with a self-test.
pub(crate) fn engine(
    folder: &Path,
    model: &Model,
    storage: WeightStorage,
    input: ArrayD<f32>,
    expected: ArrayD<f32>,
) -> Engine {
    tileforge_graph::save(model, &folder.join("model.onnx"), storage).unwrap();
    let shape = json!(input.shape());
    let test = folder.join("selftest.safetensors");
    selftest::write(&test, &[("input", &Tensor::from(input))], &[("output", &Tensor::from(expected))]).unwrap();
    let contract = Upscale {
        input: "input".into(),
        output: "output".into(),
        scale: 1,
        channels: 1,
        range: [0.0, 1.0],
        size_multiple: 1,
        size_minimum: 1,
        padding: Padding::Reflect,
        receptive_field: ReceptiveField::Radius(0),
        safe_precisions: vec![],
    };
    let manifest = json!({
        "schema": 2, "name": "chain", "producer": "a test",
        "model": {
            "architecture": "chain", "licence": null, "checkpoint_sha256": null,
            "graph_sha256": sha256_file(&folder.join("model.onnx")).unwrap().sha256, "parameters": 0,
        },
        "contract": contract.contract(),
        "precision": "fp32",
        "target": { "profile": "cpu", "provider": "cpu", "compute_capability": null },
        "built_with": { "onnxruntime": "1.31.1", "operating_system": "linux", "processor": "x86_64" },
        "graphs": [{
            "file": "model.onnx", "optimised": false, "inputs": { "input": shape }, "outputs": { "output": shape },
        }],
        "gates": [],
        "selftest": { "file": "selftest.safetensors", "graph": "model.onnx", "tolerance": 1e-3 },
        "files": exchange::files(folder).unwrap(),
    });
    std::fs::write(folder.join(MANIFEST_FILE), manifest.to_string()).unwrap();
    Engine::open(folder).unwrap()
}
