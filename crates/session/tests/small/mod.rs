//! Engines of graphs that a test makes.

use std::path::Path;

use ndarray::ArrayD;
use serde_json::json;
use tileforge_engine::digest::sha256_file;
use tileforge_engine::{Engine, MANIFEST_FILE, folder as engine_folder, testing};
use tileforge_graph::{DataType, Model, Node, Opset, Port, TensorType, WeightStorage};
use tileforge_session::{Tensor, selftest};

/// A graph of operators in sequence, from a grey picture of `shape` to one of the same shape. Each node has a name, an
/// operator, and the weights that follow its input.
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

/// Writes an engine of graphs in files of these names, with a self-test of the first.
pub(crate) fn engine(
    folder: &Path,
    models: &[(&str, &Model)],
    storage: WeightStorage,
    input: ArrayD<f32>,
    expected: ArrayD<f32>,
) -> Engine {
    let test = folder.join("selftest.safetensors");
    selftest::write(&test, &[("input", &Tensor::from(input))], &[("output", &Tensor::from(expected))]).unwrap();
    let graphs = models.iter().map(|(file, model)| {
        tileforge_graph::save(model, &folder.join(file), storage).unwrap();
        let shape = model.inputs[0].ty.fixed_dims().unwrap();
        testing::graph(file, &shape, &shape)
    });
    let graphs = graphs.collect();
    let files = engine_folder::files(folder).unwrap();
    let mut manifest = testing::manifest("chain", &testing::upscale(1, 1).contract(), graphs, files);
    manifest["model"]["graph_sha256"] = json!(sha256_file(&folder.join("model.onnx")).unwrap().sha256);
    std::fs::write(folder.join(MANIFEST_FILE), manifest.to_string()).unwrap();
    Engine::open(folder).unwrap()
}
