//! Tensors of any type through ONNX Runtime: whole, in buffers, and carried from run to run.
#![allow(clippy::unwrap_used)] // a test's way to fail

use std::path::{Path, PathBuf};

use ndarray::{ArrayD, IxDyn};
use tempfile::TempDir;
use tileforge_contract::{Axis, Contract, DataType, Meaning, Provider, ReceptiveField, Task, TensorSpec};
use tileforge_graph::{Model, Node, Opset, Port, TensorType, WeightStorage};
use tileforge_session::onnxruntime::{self, Search};
use tileforge_session::{Cancel, Environment, Error, Session, SessionOptions, Tensor};

fn environment() -> Environment {
    Environment::new(onnxruntime::load(&Search::AroundExecutable).unwrap())
}

/// A graph of these nodes: operator, inputs, output.
fn model(data_type: DataType, inputs: &[&str], nodes: &[(&str, &[&str], &str)], outputs: &[&str]) -> Model {
    let port = |name: &&str| Port { name: (*name).into(), ty: TensorType::new(data_type, [1, 3]) };
    let node = |(operator, inputs, output): &(&str, &[&str], &str)| Node {
        name: format!("make {output}"),
        operator: (*operator).into(),
        domain: String::new(),
        inputs: inputs.iter().map(|input| (*input).into()).collect(),
        outputs: vec![(*output).into()],
        attributes: Default::default(),
    };
    Model {
        name: "test".into(),
        ir_version: 9,
        opsets: vec![Opset { domain: String::new(), version: 20 }],
        inputs: inputs.iter().map(port).collect(),
        outputs: outputs.iter().map(port).collect(),
        nodes: nodes.iter().map(node).collect(),
        ..Model::default()
    }
}

fn saved(folder: &TempDir, model: &Model) -> PathBuf {
    let path = folder.path().join("model.onnx");
    tileforge_graph::save(model, &path, WeightStorage::Inline).unwrap();
    path
}

fn open(environment: &Environment, path: &Path) -> Session {
    Session::open(environment, path, &SessionOptions::default()).unwrap()
}

/// `sum = x + y` of int64.
fn tokens(folder: &TempDir) -> PathBuf {
    saved(folder, &model(DataType::I64, &["x", "y"], &[("Add", &["x", "y"], "sum")], &["sum"]))
}

/// `y = x + state`, `next_state = y`.
fn running_sum(folder: &TempDir) -> PathBuf {
    let nodes: [(&str, &[&str], &str); 2] = [("Add", &["x", "state"], "y"), ("Identity", &["y"], "next_state")];
    saved(folder, &model(DataType::F32, &["x", "state"], &nodes, &["y", "next_state"]))
}

fn i64s(values: [i64; 3]) -> Tensor {
    Tensor::from(ArrayD::from_shape_vec(IxDyn(&[1, 3]), values.into()).unwrap())
}

#[test]
fn int64_stays_int64() {
    let folder = tempfile::tempdir().unwrap();
    let mut session = open(&environment(), &tokens(&folder));
    // A 64-bit float cannot represent these integers.
    let (x, y) = (i64s([(1 << 53) + 1, -7, i64::MAX - 1]), i64s([0, 0, 1]));
    let outputs = session.run(&[("x", &x), ("y", &y)], &Cancel::new()).unwrap();
    assert_eq!(outputs, [("sum".to_owned(), i64s([(1 << 53) + 1, -7, i64::MAX]))]);

    let floats = Tensor::from(ArrayD::<f32>::zeros(IxDyn(&[1, 3])));
    let error = session.run(&[("x", &floats), ("y", &y)], &Cancel::new()).unwrap_err();
    assert!(matches!(&error, Error::Tensor { tensor, .. } if tensor == "x"), "{error}");
    assert!(error.to_string().contains("expected i64 [1, 3], found f32 [1, 3]"), "{error}");
    let error = session.run(&[("z", &y)], &Cancel::new()).unwrap_err().to_string();
    assert!(error.contains("expected one of the inputs x, y, found no such input"), "{error}");
}

#[test]
fn runs_go_from_buffers_into_buffers() {
    let folder = tempfile::tempdir().unwrap();
    let mut session = open(&environment(), &tokens(&folder));
    let buffers = session.buffers().unwrap();
    let make = || buffers.zeros(DataType::I64, &[1, 3]).unwrap();
    let (mut x, mut y, mut sum) = (make(), make(), make());
    for round in 1..4 {
        x.as_mut_slice::<i64>().unwrap().copy_from_slice(&[round, 2, 3]);
        y.as_mut_slice::<i64>().unwrap().copy_from_slice(&[10, 20, i64::MAX - 3]);
        session.run_into(&[("x", &x), ("y", &y)], &mut [("sum", &mut sum)], &Cancel::new()).unwrap();
        assert_eq!(sum.as_slice::<i64>().unwrap(), [10 + round, 22, i64::MAX]);
    }
    assert!(matches!(sum.as_slice::<f32>(), Err(Error::ElementType { .. })));
    let short = buffers.zeros(DataType::I64, &[1, 2]).unwrap();
    assert!(matches!(
        session.run_into(&[("x", &short), ("y", &y)], &mut [("sum", &mut sum)], &Cancel::new()),
        Err(Error::Tensor { .. })
    ));
}

#[test]
fn a_carried_output_is_the_input_of_the_next_run() {
    for provider in [Provider::Cpu, Provider::OpenVino] {
        carries(provider);
    }
}

fn carries(provider: Provider) {
    let folder = tempfile::tempdir().unwrap();
    let options = SessionOptions { provider, ..SessionOptions::default() };
    let session = Session::open(&environment(), &running_sum(&folder), &options).unwrap();
    let axes = || [Axis::Batch, Axis::Channels(3)];
    let contract = Contract {
        task: Task::Upscale,
        inputs: vec![
            TensorSpec::new("x", axes(), Meaning::Prediction),
            TensorSpec::new("state", axes(), Meaning::Carried { from: "next_state".into() }),
        ],
        outputs: vec![
            TensorSpec::new("y", axes(), Meaning::Prediction),
            TensorSpec::new("next_state", axes(), Meaning::Cache),
        ],
        receptive_field: ReceptiveField::Unbounded,
        safe_precisions: vec![],
    };
    let buffers = session.buffers().unwrap();
    let make = || buffers.zeros(DataType::F32, &[1, 3]).unwrap();
    let (mut x, mut read) = (make(), make());
    // Two sequences at once, each with a state of its own, which is zero at first.
    let (mut one, mut other) = (session.bind_contract(&contract).unwrap(), session.bind_contract(&contract).unwrap());
    for round in 1..5 {
        x.as_mut_slice::<f32>().unwrap().copy_from_slice(&[1.0, 10.0, -1.0]);
        one.write("x", &x).unwrap();
        one.run(&Cancel::new()).unwrap();
        x.as_mut_slice::<f32>().unwrap().fill(0.5);
        other.write("x", &x).unwrap();
        other.run(&Cancel::new()).unwrap();
        for output in ["y", "next_state"] {
            let sum = round as f32;
            one.read(output, &mut read).unwrap();
            assert_eq!(read.as_slice::<f32>().unwrap(), [sum, 10.0 * sum, -sum], "{output}");
            other.read(output, &mut read).unwrap();
            assert_eq!(read.as_slice::<f32>().unwrap(), [0.5 * sum; 3], "{output}");
        }
    }
    // A state can be set, as for a new sequence.
    let zeros = make();
    one.write("state", &zeros).unwrap();
    one.run(&Cancel::new()).unwrap();
    one.read("y", &mut read).unwrap();
    assert_eq!(read.as_slice::<f32>().unwrap(), [1.0, 10.0, -1.0]);

    let error = session.bind(&[("state", "none")]).unwrap_err().to_string();
    assert!(error.contains("state: expected an output `none`"), "{error}");
    let error = one.read("x", &mut read).unwrap_err().to_string();
    assert!(error.contains("expected one of the outputs next_state, y, found no such"), "{error}");
    let error = one.write("x", &buffers.zeros(DataType::I64, &[1, 3]).unwrap()).unwrap_err().to_string();
    assert!(error.contains("x: expected f32 [1, 3], found i64 [1, 3]"), "{error}");
}

#[test]
fn two_environments_live_in_one_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = tokens(&folder);
    let (one, other) = (environment().with_cache(folder.path().join("one")), environment());
    assert_eq!((one.cache(), other.cache()), (Some(folder.path().join("one").as_path()), None));
    assert!(std::ptr::eq(one.library(), other.library()));
    // The second environment has devices of its own.
    let mut probe = one.probe().clone();
    probe.driver_problem = Some("unplugged".into());
    let other = other.with_probe(probe.clone());
    assert_eq!(other.probe().driver_problem.as_deref(), Some("unplugged"));
    assert_ne!(one.probe().driver_problem.as_deref(), Some("unplugged"));
    let tensors = (i64s([1, 2, 3]), i64s([4, 5, 6]));
    let mut sessions = [open(&one, &path), open(&other, &path)];
    for session in &mut sessions {
        let outputs = session.run(&[("x", &tensors.0), ("y", &tensors.1)], &Cancel::new()).unwrap();
        assert_eq!(outputs[0].1, i64s([5, 7, 9]));
    }
    assert!(!folder.path().join("one").exists(), "what runs on the CPU leaves nothing behind");
}
