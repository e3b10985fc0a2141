//! A caller can end a run. The graph in these tests never ends by itself.
#![allow(clippy::unwrap_used)] // a test's way to fail

use std::path::PathBuf;
use std::thread;

use ndarray::{ArrayD, IxDyn};
use tempfile::TempDir;
use tileforge_contract::{DataType, Provider};
use tileforge_graph::proto::attribute_proto::AttributeType;
use tileforge_graph::proto::{
    AttributeProto, GraphProto, NodeProto, TensorShapeProto, TypeProto, ValueInfoProto, tensor_proto, type_proto,
};
use tileforge_graph::{Attribute, Model, Node, Opset, Port, TensorType, WeightStorage};
use tileforge_session::onnxruntime::{self, Search};
use tileforge_session::{Cancel, Environment, Error, Session, SessionOptions, Tensor};

/// A tensor's declaration in a graph within a graph.
fn declared(name: &str, element: tensor_proto::DataType) -> ValueInfoProto {
    let tensor = type_proto::Tensor { elem_type: Some(element as i32), shape: Some(TensorShapeProto::default()) };
    let kind = TypeProto { value: Some(type_proto::Value::TensorType(tensor)), ..Default::default() };
    ValueInfoProto { name: Some(name.into()), r#type: Some(kind), ..Default::default() }
}

fn node(operator: &str, inputs: &[&str], output: &str) -> NodeProto {
    NodeProto {
        op_type: Some(operator.into()),
        input: inputs.iter().map(|input| (*input).into()).collect(),
        output: vec![output.into()],
        ..Default::default()
    }
}

/// `Loop` without a count and without a condition: <https://onnx.ai/onnx/operators/onnx__Loop.html>, "infinite loop".
fn endless(folder: &TempDir) -> PathBuf {
    use tensor_proto::DataType::{Bool, Float, Int64};
    let body = GraphProto {
        name: Some("body".into()),
        node: vec![node("Identity", &["go_on"], "goes_on"), node("Add", &["state", "state"], "next_state")],
        input: vec![declared("number", Int64), declared("go_on", Bool), declared("state", Float)],
        output: vec![declared("goes_on", Bool), declared("next_state", Float)],
        ..Default::default()
    };
    let body = AttributeProto {
        name: Some("body".into()),
        r#type: Some(AttributeType::Graph as i32),
        g: Some(body),
        ..Default::default()
    };
    let port = |name: &str| Port { name: name.into(), ty: TensorType::new(DataType::F32, Vec::<usize>::new()) };
    let model = Model {
        name: "endless".into(),
        ir_version: 9,
        opsets: vec![Opset { domain: String::new(), version: 20 }],
        inputs: vec![port("x")],
        outputs: vec![port("y")],
        nodes: vec![Node {
            name: "loop".into(),
            operator: "Loop".into(),
            domain: String::new(),
            inputs: vec![String::new(), String::new(), "x".into()],
            outputs: vec!["y".into()],
            attributes: [("body".to_owned(), Attribute::Other(Box::new(body)))].into_iter().collect(),
        }],
        ..Model::default()
    };
    let path = folder.path().join("endless.onnx");
    tileforge_graph::save(&model, &path, WeightStorage::Inline).unwrap();
    path
}

fn open(folder: &TempDir) -> Session {
    let environment = Environment::new(onnxruntime::load(&Search::AroundExecutable).unwrap());
    Session::open(&environment, &endless(folder), &SessionOptions::default()).unwrap()
}

/// Runs work that ends only because its flag, or its parent's flag, is set meanwhile.
fn cancelled<R>(run: impl FnOnce(&Cancel) -> Result<R, Error>) {
    let all = Cancel::new();
    let own = all.child();
    let result = thread::scope(|scope| {
        scope.spawn(|| all.cancel());
        run(&own)
    });
    assert!(matches!(result, Err(Error::Cancelled)));
}

#[test]
fn a_run_of_values_ends() {
    let folder = tempfile::tempdir().unwrap();
    let mut session = open(&folder);
    let x = Tensor::from(ArrayD::<f32>::zeros(IxDyn(&[])));
    // Again and again, so that the flag is set before a run, at its begin and within it.
    for _ in 0..20 {
        cancelled(|cancel| session.run(&[("x", &x)], cancel));
    }
}

#[test]
fn a_run_of_buffers_ends() {
    let folder = tempfile::tempdir().unwrap();
    let mut session = open(&folder);
    let buffers = session.buffers().unwrap();
    let [x, mut y] = [(); 2].map(|()| buffers.zeros(DataType::F32, &[]).unwrap());
    for _ in 0..20 {
        cancelled(|cancel| session.run_into(&[("x", &x)], &mut [("y", &mut y)], cancel));
    }
}

#[test]
fn a_run_of_bound_tensors_ends_without_its_session() {
    let folder = tempfile::tempdir().unwrap();
    let session = open(&folder);
    let mut bound = session.bind(&[("x", "y")]).unwrap();
    drop(session);
    for _ in 0..20 {
        cancelled(|cancel| bound.run(cancel));
    }
}

/// OpenVINO ends a run after the node that it computes, and computes a `Loop` as one node.
#[test]
fn a_run_of_openvino_ends_after_a_node() {
    const SIDE: usize = 256;
    const NODES: usize = 4000;
    let folder = tempfile::tempdir().unwrap();
    let port = |name: &str| Port { name: name.into(), ty: TensorType::new(DataType::F32, [SIDE, SIDE]) };
    let value = |number: usize| if number == 0 { "x".to_owned() } else { format!("x{number}") };
    let product = |number: usize| Node {
        name: format!("product {number}"),
        operator: "MatMul".into(),
        domain: String::new(),
        inputs: vec![value(number), "x".into()],
        outputs: vec![value(number + 1)],
        attributes: Default::default(),
    };
    let model = Model {
        name: "long".into(),
        ir_version: 9,
        opsets: vec![Opset { domain: String::new(), version: 20 }],
        inputs: vec![port("x")],
        outputs: vec![port(&value(NODES))],
        nodes: (0..NODES).map(product).collect(),
        ..Model::default()
    };
    let path = folder.path().join("long.onnx");
    tileforge_graph::save(&model, &path, WeightStorage::Inline).unwrap();
    let environment = Environment::new(onnxruntime::load(&Search::AroundExecutable).unwrap());
    let options = SessionOptions { provider: Provider::OpenVino, ..SessionOptions::default() };
    let mut session = Session::open(&environment, &path, &options).unwrap();
    let x = Tensor::from(ArrayD::<f32>::zeros(IxDyn(&[SIDE, SIDE])));
    for _ in 0..3 {
        cancelled(|cancel| session.run(&[("x", &x)], cancel));
    }
    // An ended run leaves the session as it was.
    let outputs = session.run(&[("x", &x)], &Cancel::new()).unwrap();
    assert_eq!(outputs[0].1.shape(), [SIDE, SIDE]);
}
