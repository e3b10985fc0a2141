//! The form of a graph for the CUDA provider computes what the graph computes. No GPU is needed: both run on the CPU.
#![allow(clippy::unwrap_used, clippy::panic)] // a test's way to fail

mod nodes;

use ndarray::{ArrayD, IxDyn};
use tileforge_contract::DataType;
use tileforge_graph::{Attribute, Model, Node, Opset, Port, TensorType, Weight, WeightStorage};
use tileforge_session::onnxruntime::{self, Search};
use tileforge_session::{Cancel, Environment, Session, SessionOptions, Tensor};

use nodes::{of, weight};

const CHANNELS: usize = 3;

fn integers(values: &[i64]) -> Weight {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    Weight::from_bytes(DataType::I64, vec![values.len()], bytes).unwrap()
}

fn node(operator: &str, inputs: &[&str], output: &str, attributes: &[(&str, Attribute)]) -> Node {
    of("", operator, inputs, output, attributes)
}

/// A padding of two axes, a maximum, a normalisation, and a transposed convolution with these paddings.
fn model(opset: i64, pads: [i64; 4]) -> Model {
    let port = |name: &str, dims: [usize; 4]| Port { name: name.into(), ty: TensorType::new(DataType::F32, dims) };
    let [above, left, below, right] = pads.map(|pad| pad as usize);
    Model {
        name: "test".into(),
        ir_version: 10,
        opsets: vec![Opset { domain: String::new(), version: opset }],
        inputs: vec![port("x", [2, CHANNELS, 6, 8])],
        outputs: vec![port("y", [2, CHANNELS, 2 * 3 + 3 - above - below, 2 * 4 + 3 - left - right])],
        nodes: vec![
            node("Pad", &["x", "around", "", "axes"], "padded", &[("mode", Attribute::Text("reflect".into()))]),
            node(
                "MaxPool",
                &["padded"],
                "pooled",
                &[("kernel_shape", Attribute::Ints(vec![2, 2])), ("strides", Attribute::Ints(vec![2, 2]))],
            ),
            node("InstanceNormalization", &["pooled", "scale", "bias"], "even", &[("epsilon", Attribute::Float(1e-3))]),
            node(
                "ConvTranspose",
                &["even", "kernel"],
                "y",
                &[("pads", Attribute::Ints(pads.to_vec())), ("strides", Attribute::Ints(vec![2, 2]))],
            ),
        ],
        weights: [
            ("scale".into(), weight(&[CHANNELS], 1.0)),
            ("bias".into(), weight(&[CHANNELS], 0.0)),
            ("kernel".into(), weight(&[CHANNELS, CHANNELS, 3, 3], 0.0)),
            ("around".into(), integers(&[1, 2, 2, 1])),
            ("axes".into(), integers(&[3, -2])),
        ]
        .into_iter()
        .collect(),
        ..Model::default()
    }
}

fn output(environment: &Environment, path: &std::path::Path) -> Vec<f32> {
    let mut session = Session::open(environment, path, &SessionOptions::default()).unwrap();
    let x = ArrayD::from_shape_fn(IxDyn(&[2, CHANNELS, 6, 8]), |at| {
        ((at[0] * 101 + at[1] * 37 + at[2] * 11 + at[3]) as f32).sin() * 3.0 + at[1] as f32
    });
    let outputs = session.run(&[("x", &Tensor::F32(x))], &Cancel::default()).unwrap();
    match &outputs[0].1 {
        Tensor::F32(values) => values.iter().copied().collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_graph_for_cuda_computes_what_the_graph_does() {
    let environment = Environment::new(onnxruntime::load(&Search::AroundExecutable).unwrap());
    let folder = tempfile::tempdir().unwrap();
    for (opset, pads) in [(22, [1, 1, 0, 0]), (23, [1, 0, 0, 0]), (23, [1, 1, 1, 1]), (20, [1, 1, 0, 0])] {
        let (plain, adapted) = (folder.path().join("plain.onnx"), folder.path().join("adapted.onnx"));
        tileforge_graph::save(&model(opset, pads), &plain, WeightStorage::Inline).unwrap();
        let bytes = tileforge_graph::for_cuda(&std::fs::read(&plain).unwrap(), &plain).unwrap();
        std::fs::write(&adapted, bytes).unwrap();

        let changed = tileforge_graph::load(&adapted).unwrap();
        let count = |operator: &str| changed.nodes.iter().filter(|node| node.is(operator)).count();
        // ONNX Runtime's CUDA provider has kernels for those of opset 20.
        assert_eq!(count("InstanceNormalization"), usize::from(opset == 20));
        assert_eq!(count("MaxPool"), usize::from(opset == 20));
        assert!(changed.nodes.iter().filter(|node| node.is("Pad")).all(|node| node.inputs.len() == 2));
        let convolution = changed.nodes.iter().find(|node| node.is("ConvTranspose")).unwrap();
        let found = convolution.ints("pads").unwrap();
        assert_eq!(found[..2], found[2..], "{opset} {pads:?}");

        let (expected, found) = (output(&environment, &plain), output(&environment, &adapted));
        let error = expected.iter().zip(&found).map(|(one, other)| (one - other).abs()).fold(0.0, f32::max);
        assert!(expected.len() == found.len() && error < 1e-5, "{opset} {pads:?}: {error}");
    }
}

/// `output_padding` must be less than the stride, so a padding that begins wider by the stride stays.
#[test]
fn a_padding_that_cannot_be_moved_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    for pads in [[2, 2, 0, 0], [0, 0, 1, 1]] {
        tileforge_graph::save(&model(20, pads), &path, WeightStorage::Inline).unwrap();
        let bytes = tileforge_graph::for_cuda(&std::fs::read(&path).unwrap(), &path).unwrap();
        std::fs::write(&path, bytes).unwrap();
        let read = tileforge_graph::load(&path).unwrap();
        assert_eq!(read.nodes.iter().find(|node| node.is("ConvTranspose")).unwrap().ints("pads").unwrap(), pads);
    }
}
