//! Self-tests of a whole engine, on ONNX Runtime.
#![allow(clippy::unwrap_used)] // a test's way to fail

use std::path::Path;

use ndarray::{ArrayD, IxDyn};
use serde_json::json;
use tileforge_contract::{Padding, ReceptiveField, Upscale};
use tileforge_engine::digest::sha256_file;
use tileforge_engine::{Engine, MANIFEST_FILE};
use tileforge_graph::{DataType, Model, Node, Opset, Port, TensorType, WeightStorage};
use tileforge_session::onnxruntime::{self, Search};
use tileforge_session::{Environment, Ladder, Placement, Tensor, selftest};

/// An engine that gives the logarithm of a grey picture of 1 × 2 pixels.
fn engine(folder: &Path, input: [f32; 2], expected: [f32; 2]) -> Engine {
    let port = |name: &str| Port { name: name.into(), ty: TensorType::new(DataType::F32, [1, 1, 1, 2]) };
    let model = Model {
        name: "logarithm".into(),
        ir_version: 9,
        opsets: vec![Opset { domain: String::new(), version: 20 }],
        inputs: vec![port("input")],
        outputs: vec![port("output")],
        nodes: vec![Node {
            name: "log".into(),
            operator: "Log".into(),
            domain: String::new(),
            inputs: vec!["input".into()],
            outputs: vec!["output".into()],
            attributes: Default::default(),
        }],
        ..Model::default()
    };
    tileforge_graph::save(&model, &folder.join("model.onnx"), WeightStorage::Inline).unwrap();
    let tensor = |values: [f32; 2]| Tensor::from(ArrayD::from_shape_vec(IxDyn(&[1, 1, 1, 2]), values.into()).unwrap());
    let test = folder.join("selftest.safetensors");
    selftest::write(&test, &[("input", &tensor(input))], &[("output", &tensor(expected))]).unwrap();
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
    let digest = |name: &str| sha256_file(&folder.join(name)).unwrap();
    let shape = json!([1, 1, 1, 2]);
    let manifest = json!({
        "schema": 2, "name": "logarithm", "producer": "a test",
        "model": {
            "architecture": "logarithm", "licence": null, "checkpoint_sha256": null,
            "graph_sha256": digest("model.onnx").sha256, "parameters": 0,
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
        "files": {
            "model.onnx": digest("model.onnx"), "selftest.safetensors": digest("selftest.safetensors"),
        },
    });
    std::fs::write(folder.join(MANIFEST_FILE), manifest.to_string()).unwrap();
    Engine::open(folder).unwrap()
}

fn verify(input: [f32; 2], expected: [f32; 2]) -> selftest::Report {
    let folder = tempfile::tempdir().unwrap();
    let engine = engine(folder.path(), input, expected);
    let environment = Environment::new(onnxruntime::load(&Search::AroundExecutable).unwrap());
    let ladder = Ladder::new(&environment, &engine, Placement::default()).unwrap();
    let mut session = ladder.session(&engine.manifest().graphs[0], 0).unwrap();
    selftest::verify(&engine, &mut session).unwrap()
}

#[test]
fn nan_and_infinity_are_named() {
    let nan = verify([-1.0, 1.0], [0.0, 0.0]);
    assert!(!nan.passed && !nan.finite && nan.maximum_error.is_nan());
    assert_eq!((nan.nan, nan.infinite, nan.found()), (1, 0, "1 of 2 values are NaN".into()));
    let infinite = verify([0.0, 1.0], [0.0, 0.0]);
    assert!(!infinite.passed && !infinite.finite);
    assert_eq!(infinite.found(), "1 of 2 values are infinite");
    let both = verify([0.0, -1.0], [0.0, 0.0]);
    assert_eq!(both.found(), "1 of 2 values are NaN and 1 infinite");
    // An expected NaN hides nothing.
    let expected = verify([-1.0, 1.0], [f32::NAN, 0.0]);
    assert!(!expected.passed, "{expected:?}");
}

#[test]
fn what_is_expected_passes_and_what_is_not_says_how_far_it_is_off() {
    let same = verify([1.0, std::f32::consts::E], [0.0, 1.0]);
    assert!(same.passed, "{same:?}");
    let off = verify([1.0, std::f32::consts::E], [0.0, 2.0]);
    assert!(!off.passed);
    assert_eq!(off.found(), "a largest error of 5.00e-1");
}
