//! Sessions on the processor compute 3×3 convolutions with our kernels: the results are those of ONNX Runtime's.
#![allow(clippy::unwrap_used, clippy::panic)] // a test's way to fail

mod kernels;
mod nodes;

use std::path::Path;

use ndarray::{ArrayD, IxDyn};
use prost::Message;
use tileforge_contract::DataType;
use tileforge_graph::proto::attribute_proto::AttributeType;
use tileforge_graph::proto::{AttributeProto, GraphProto, ModelProto, NodeProto, ValueInfoProto};
use tileforge_graph::{Attribute, Dim, Model, Node, Opset, Port, TensorType, Weight, with_kernels};
use tileforge_session::{Environment, OptimisationLevel, Tensor};

use kernels::{check_threads, environment, largest_difference, operators, save};
use nodes::{of, weight};

const CHANNELS: usize = 12;
const OUTPUTS: usize = 9;

fn node(operator: &str, inputs: &[&str], output: &str) -> Node {
    of("", operator, inputs, output, &[])
}

fn pads(pads: [i64; 4]) -> (&'static str, Attribute) {
    ("pads", Attribute::Ints(pads.to_vec()))
}

/// A convolution of `x` with the weights `w` and the bias `b`, and nodes behind it. The last output is the graph's.
fn model(convolution: Node, behind: Vec<Node>) -> Model {
    let port = |name: &str, dims: Vec<Dim>| Port { name: name.into(), ty: TensorType::new(DataType::F32, dims) };
    let symbol = |name: &str| Dim::symbol(name);
    let last = behind.last().unwrap_or(&convolution).outputs[0].clone();
    let domain = |name: &str, version: i64| Opset { domain: name.into(), version };
    Model {
        name: "test".into(),
        ir_version: 9,
        opsets: vec![domain("", 20), domain("com.microsoft", 1)],
        inputs: vec![port("x", vec![symbol("n"), Dim::Fixed(CHANNELS), symbol("h"), symbol("w")])],
        outputs: vec![port(&last, vec![symbol("samples"), symbol("channels"), symbol("rows"), symbol("columns")])],
        nodes: std::iter::once(convolution).chain(behind).collect(),
        weights: [
            ("w".into(), weight(&[OUTPUTS, CHANNELS, 3, 3], 0.0)),
            ("halves".into(), weight(&[OUTPUTS + 3, CHANNELS / 2, 3, 3], 0.0)),
            ("b".into(), weight(&[OUTPUTS], 0.1)),
            ("slope".into(), weight(&[OUTPUTS, 1, 1], 0.3)),
            ("rise".into(), weight(&[OUTPUTS, 1, 1], 0.9)),
            ("matrix".into(), weight(&[OUTPUTS, CHANNELS], 0.0)),
        ]
        .into_iter()
        .collect(),
        ..Model::default()
    }
}

fn run(environment: &Environment, path: &Path, level: OptimisationLevel, size: [usize; 3]) -> Result<Vec<f32>, String> {
    let [samples, height, width] = size;
    let x = ArrayD::from_shape_fn(IxDyn(&[samples, CHANNELS, height, width]), |at| {
        ((at[0] * 101 + at[1] * 37 + at[2] * 11 + at[3]) as f32).sin()
    });
    kernels::run(environment, path, level, &[("x", &Tensor::F32(x))])
}

#[test]
fn convolutions_and_activations_give_the_results_of_onnx_runtime() {
    let conv = |attributes: &[(&str, Attribute)]| of("", "Conv", &["x", "w", "b"], "y", attributes);
    let same = || conv(&[pads([1, 1, 1, 1])]);
    let fused = |name: &str, parameters: &[f32]| {
        let name = ("activation", Attribute::Text(name.into()));
        let parameters = ("activation_params", Attribute::Floats(parameters.to_vec()));
        of("com.microsoft", "FusedConv", &["x", "w", "b"], "y", &[pads([1, 1, 1, 1]), name, parameters])
    };
    let prelu = || {
        vec![
            node("Relu", &["y"], "positive"),
            node("Mul", &["y", "slope"], "scaled"),
            node("Mul", &["rise", "positive"], "raised"),
            node("Add", &["raised", "scaled"], "z"),
        ]
    };
    let leaky = of("", "LeakyRelu", &["y"], "z", &[("alpha", Attribute::Float(0.2))]);
    let ours = "Convolution3x3";
    let cases: Vec<(Node, Vec<Node>, Vec<&str>)> = vec![
        (same(), vec![], vec![ours]),
        (of("", "Conv", &["x", "w"], "y", &[]), vec![], vec![ours]),
        (conv(&[pads([0, 1, 2, 0]), ("group", Attribute::Int(1))]), vec![], vec![ours]),
        (same(), vec![node("Relu", &["y"], "z")], vec![ours]),
        (same(), vec![leaky], vec![ours]),
        (same(), vec![node("LeakyRelu", &["y"], "z")], vec![ours]),
        (same(), vec![node("PRelu", &["y", "slope"], "z")], vec![ours]),
        (same(), prelu(), vec![ours]),
        (fused("Relu", &[]), vec![], vec![ours]),
        (fused("LeakyRelu", &[0.3]), vec![], vec![ours]),
        (fused("Sigmoid", &[]), vec![], vec![ours, "Sigmoid"]),
        (fused("Tanh", &[]), vec![node("Relu", &["y"], "z")], vec![ours, "Tanh", "Relu"]),
        // Two nodes read the results before the activation.
        (same(), vec![node("Relu", &["y"], "r"), node("Add", &["r", "y"], "z")], vec![ours, "Relu", "Add"]),
        // These stay with ONNX Runtime.
        (fused("Clip", &[-0.5, 0.5]), vec![], vec!["as it is"]),
        (conv(&[pads([1, 1, 1, 1]), ("strides", Attribute::Ints(vec![2, 2]))]), vec![], vec!["as it is"]),
        (conv(&[pads([2, 2, 2, 2]), ("dilations", Attribute::Ints(vec![2, 2]))]), vec![], vec!["as it is"]),
        (conv(&[pads([3, 3, 3, 3])]), vec![], vec!["as it is"]),
        (conv(&[("auto_pad", Attribute::Text("SAME_UPPER".into()))]), vec![], vec!["as it is"]),
        (of("", "Conv", &["x", "halves"], "y", &[("group", Attribute::Int(2))]), vec![], vec!["as it is"]),
    ];
    let environment = environment();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("graph.onnx");
    for (number, (convolution, behind, expected)) in cases.into_iter().enumerate() {
        save(&model(convolution, behind), &path);
        assert_eq!(operators(&path, usize::MAX), expected, "case {number}");
        for size in [[1, 3, 3], [2, 35, 18], [1, 64, 96]] {
            let [usual, plain] = [OptimisationLevel::All, OptimisationLevel::Disabled]
                .map(|level| run(&environment, &path, level, size).unwrap());
            let difference = largest_difference(&usual, &plain);
            // Sums of 108 products up to 1.
            assert!(difference < 1e-4, "case {number}, {size:?}: {difference}");
        }
    }
}

#[test]
fn joined_channels_that_only_convolutions_read_are_not_joined() {
    let environment = environment();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("graph.onnx");
    let split = Node {
        outputs: vec!["first".into(), "second".into()],
        ..of("", "Split", &["x", "parts"], "", &[("axis", Attribute::Int(1))])
    };
    let join = |axis: i64| of("", "Concat", &["second", "first"], "joined", &[("axis", Attribute::Int(axis))]);
    let conv = |output: &str| of("", "Conv", &["joined", "w", "b"], output, &[pads([1, 1, 1, 1])]);
    let read_twice = || vec![join(1), conv("a"), conv("b2"), node("Add", &["a", "b2"], "y")];
    let cases = [
        (vec![join(1), conv("y")], "Split Convolution3x3"),
        (vec![join(-3), conv("y")], "Split Convolution3x3"),
        (read_twice(), "Split Convolution3x3 Convolution3x3 Add"),
        (
            vec![join(1), conv("a"), node("ReduceSum", &["joined"], "sum"), node("Add", &["a", "sum"], "y")],
            "Split Concat Convolution3x3 ReduceSum Add",
        ),
    ];
    for (behind, expected) in cases {
        let mut graph = model(split.clone(), behind);
        let lengths = [7_i64, 5].iter().flat_map(|length| length.to_le_bytes()).collect::<Vec<u8>>();
        graph.weights.insert("parts".into(), Weight::from_bytes(DataType::I64, vec![2], lengths).unwrap());
        save(&graph, &path);
        assert_eq!(operators(&path, usize::MAX).join(" "), expected);
        let [usual, plain] = [OptimisationLevel::All, OptimisationLevel::Disabled]
            .map(|level| run(&environment, &path, level, [2, 19, 33]).unwrap());
        let difference = largest_difference(&usual, &plain);
        assert!(difference < 1e-4, "{expected}: {difference}");
    }
}

#[test]
fn a_value_that_the_graph_returns_stays() {
    let mut graph = model(of("", "Conv", &["x", "w"], "y", &[]), vec![node("Relu", &["y"], "z")]);
    let also = Port { name: "y".into(), ty: graph.outputs[0].ty.clone() };
    graph.outputs.push(also);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("graph.onnx");
    save(&graph, &path);
    assert_eq!(operators(&path, usize::MAX), ["Convolution3x3", "Relu"]);
}

#[test]
fn weights_that_callers_can_replace_stay_with_onnx_runtime() {
    let mut graph = model(of("", "Conv", &["x", "w"], "y", &[]), vec![]);
    let ty = TensorType::new(DataType::F32, [OUTPUTS, CHANNELS, 3, 3]);
    graph.inputs.push(Port { name: "w".into(), ty });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("graph.onnx");
    save(&graph, &path);
    assert_eq!(operators(&path, usize::MAX), ["as it is"]);
}

#[test]
fn where_memory_is_short_the_weights_that_are_used_most_come_first() {
    let narrow = of("", "Conv", &["x", "w"], "y", &[("strides", Attribute::Ints(vec![1, 1]))]);
    let pooled = of(
        "",
        "AveragePool",
        &["x"],
        "small",
        &[("kernel_shape", Attribute::Ints(vec![8, 8])), ("strides", Attribute::Ints(vec![8, 8]))],
    );
    let mut graph = model(
        pooled,
        vec![
            of("", "Conv", &["small", "w"], "few", &[]),
            narrow,
            node("ReduceSum", &["few"], "sum"),
            node("Add", &["y", "sum"], "z"),
        ],
    );
    graph.inputs[0].ty = TensorType::new(DataType::F32, [1, CHANNELS, 64, 64]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("graph.onnx");
    save(&graph, &path);
    let bytes = 144 * OUTPUTS * CHANNELS;
    let names = |first: &str, second: &str| ["AveragePool", first, second, "ReduceSum", "Add"].map(String::from);
    assert_eq!(operators(&path, 2 * bytes), names("Convolution3x3", "Convolution3x3"));
    assert_eq!(operators(&path, 2 * bytes - 1), names("Conv", "Convolution3x3"));
    assert_eq!(operators(&path, bytes - 1), ["as it is"]);
}

#[test]
fn threads_change_no_byte() {
    let environment = environment();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("graph.onnx");
    save(&model(of("", "Conv", &["x", "w", "b"], "y", &[pads([1, 1, 1, 1])]), vec![]), &path);
    let x =
        Tensor::F32(ArrayD::from_shape_fn(IxDyn(&[2, CHANNELS, 70, 90]), |at| ((at[1] + at[2] * at[3]) as f32).sin()));
    check_threads(&environment, &path, &[("x", &x)]);
}

/// Sizes that are not known until a run, over several scales: no length is taken for another.
#[test]
fn unknown_sizes_of_several_scales_meet_again() {
    let environment = environment();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("graph.onnx");
    let conv = |input: &str, output: &str, stride: i64| {
        let strides = ("strides", Attribute::Ints(vec![stride, stride]));
        of("", "Conv", &[input, "square"], output, &[pads([1, 1, 1, 1]), strides])
    };
    let up = |input: &str, output: &str| {
        of("", "Resize", &[input, "", "scales"], output, &[("mode", Attribute::Text("nearest".into()))])
    };
    let behind = vec![
        conv("whole", "half", 2),
        conv("half", "half2", 1),
        conv("half2", "quarter", 2),
        conv("quarter", "quarter2", 1),
        up("quarter2", "back"),
        node("Add", &["half2", "back"], "joined"),
        conv("joined", "joined2", 1),
        up("joined2", "large"),
        node("Add", &["whole", "large"], "sum"),
        // Without pads, sizes that are not known become others.
        of("", "Conv", &["sum", "square"], "less", &[]),
        of("", "Conv", &["less", "square"], "least", &[]),
    ];
    let mut graph = model(conv("x", "whole", 1), behind);
    graph.weights.insert("square".into(), weight(&[CHANNELS, CHANNELS, 3, 3], 0.0));
    let scales = [1.0_f32, 1.0, 2.0, 2.0].iter().flat_map(|scale| scale.to_le_bytes()).collect::<Vec<u8>>();
    graph.weights.insert("scales".into(), Weight::from_bytes(DataType::F32, vec![4], scales).unwrap());
    save(&graph, &path);
    for size in [[1, 16, 24], [2, 40, 32], [1, 8, 8]] {
        let [usual, plain] = [OptimisationLevel::All, OptimisationLevel::Disabled]
            .map(|level| run(&environment, &path, level, size).unwrap());
        let largest = plain.iter().fold(0.0, |largest: f32, value| largest.max(value.abs()));
        let difference = largest_difference(&usual, &plain);
        // Rounding grows from layer to layer.
        assert!(difference < 1e-4 * largest, "{size:?}: {difference} of {largest}");
    }
}

#[test]
fn a_value_that_a_branch_reads_stays() {
    let body = GraphProto {
        name: Some("branch".into()),
        output: vec![ValueInfoProto { name: Some("inner".into()), ..ValueInfoProto::default() }],
        node: vec![NodeProto {
            op_type: Some("Identity".into()),
            input: vec!["y".into()],
            output: vec!["inner".into()],
            ..NodeProto::default()
        }],
        ..GraphProto::default()
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("graph.onnx");
    save(&model(of("", "Conv", &["x", "w"], "y", &[]), vec![node("Relu", &["y"], "z")]), &path);
    assert_eq!(operators(&path, usize::MAX), ["Convolution3x3"]);
    let mut file = ModelProto::decode(&*std::fs::read(&path).unwrap()).unwrap();
    let branch = |name: &str| AttributeProto {
        name: Some(name.into()),
        r#type: Some(AttributeType::Graph as i32),
        g: Some(body.clone()),
        ..AttributeProto::default()
    };
    file.graph.as_mut().unwrap().node.push(NodeProto {
        op_type: Some("If".into()),
        input: vec!["condition".into()],
        output: vec!["chosen".into()],
        attribute: vec![branch("then_branch"), branch("else_branch")],
        ..NodeProto::default()
    });
    let adapted = with_kernels(&file.encode_to_vec(), &path, true, usize::MAX, |_| 1).unwrap().unwrap();
    let nodes = ModelProto::decode(&*adapted).unwrap().graph.unwrap().node;
    let operators: Vec<_> = nodes.iter().map(|node| node.op_type()).collect();
    assert_eq!(operators, ["Convolution3x3", "Relu", "If"]);
}

#[test]
fn a_file_cannot_bring_nodes_of_our_operator() {
    let environment = environment();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("graph.onnx");
    let inputs = ["x", "w", "", "", ""];
    let mut graph = model(of("tileforge", "Convolution3x3", &inputs, "y", &[pads([1, 1, 1, 1])]), vec![]);
    graph.opsets.push(Opset { domain: "tileforge".into(), version: 1 });
    save(&graph, &path);
    let message = run(&environment, &path, OptimisationLevel::All, [1, 3, 3]).unwrap_err();
    assert!(message.contains("Convolution3x3"), "{message}");
}
