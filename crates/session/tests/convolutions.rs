//! Sessions on the processor compute 3×3 convolutions with our kernels: the results are those of ONNX Runtime's.
#![allow(clippy::unwrap_used, clippy::panic)] // a test's way to fail

use std::path::Path;

use ndarray::{ArrayD, IxDyn};
use tileforge_contract::DataType;
use tileforge_graph::{
    Attribute, Convolution3x3, Dim, Model, Node, Opset, Port, TensorType, Weight, WeightStorage, with_convolutions,
};
use tileforge_session::onnxruntime::{self, Search};
use tileforge_session::{Cancel, Environment, OptimisationLevel, Session, SessionOptions, Tensor};

const CHANNELS: usize = 12;
const OUTPUTS: usize = 9;

fn environment() -> Environment {
    Environment::new(onnxruntime::load(&Search::AroundExecutable).unwrap())
}

fn weight(dims: &[usize], first: f32) -> Weight {
    let count: usize = dims.iter().product();
    let bytes = (0..count).flat_map(|place| (first + (place as f32 * 0.7).sin()).to_le_bytes()).collect::<Vec<u8>>();
    Weight::from_bytes(DataType::F32, dims.to_vec(), bytes).unwrap()
}

fn of(domain: &str, operator: &str, inputs: &[&str], output: &str, attributes: &[(&str, Attribute)]) -> Node {
    Node {
        name: format!("make {output}"),
        operator: operator.into(),
        domain: domain.into(),
        inputs: inputs.iter().map(|&input| input.into()).collect(),
        outputs: vec![output.into()],
        attributes: attributes.iter().map(|(name, value)| ((*name).into(), value.clone())).collect(),
    }
}

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
        opsets: vec![domain("", 20), domain("com.microsoft", 1), domain("tileforge", 1)],
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

fn save(model: &Model, path: &Path) {
    tileforge_graph::save(model, path, WeightStorage::Inline).unwrap();
}

/// The operators of the graph in the form that a session runs, if its prepared weights may take so many bytes.
fn operators(path: &Path, most_bytes: usize) -> Vec<String> {
    let bytes = std::fs::read(path).unwrap();
    let adapted = with_convolutions(&bytes, path, true, most_bytes, |[k, c]| 144 * k * c).unwrap();
    let Some(adapted) = adapted else { return vec!["as it is".into()] };
    let file = path.with_extension("adapted.onnx");
    std::fs::write(&file, adapted).unwrap();
    tileforge_graph::load_untyped(&file).unwrap().nodes.into_iter().map(|node| node.operator).collect()
}

fn run(environment: &Environment, path: &Path, level: OptimisationLevel, size: [usize; 3]) -> Result<Vec<f32>, String> {
    let options = SessionOptions { optimisation: level, ..SessionOptions::default() };
    let mut session = Session::open(environment, path, &options).map_err(|error| error.to_string())?;
    let [samples, height, width] = size;
    let x = ArrayD::from_shape_fn(IxDyn(&[samples, CHANNELS, height, width]), |at| {
        ((at[0] * 101 + at[1] * 37 + at[2] * 11 + at[3]) as f32).sin()
    });
    let outputs = session.run(&[("x", &Tensor::F32(x))], &Cancel::default()).map_err(|error| error.to_string())?;
    match &outputs[0].1 {
        Tensor::F32(values) => Ok(values.iter().copied().collect()),
        other => panic!("{other:?}"),
    }
}

fn largest_difference(one: &[f32], other: &[f32]) -> f32 {
    assert_eq!(one.len(), other.len());
    one.iter().zip(other).map(|(one, other)| (one - other).abs()).fold(0.0, f32::max)
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
    let results = [1, 2, 4, 8].map(|threads| {
        let options = SessionOptions { threads: Some(threads), ..SessionOptions::default() };
        let mut session = Session::open(&environment, &path, &options).unwrap();
        session.run(&[("x", &x)], &Cancel::default()).unwrap().remove(0).1
    });
    assert!(results.windows(2).all(|pair| pair[0] == pair[1]));
}

/// A file can name our operator, too: what it cannot compute is an error, and never a crash.
#[test]
fn nodes_of_files_that_the_operator_cannot_compute_are_refused() {
    let environment = environment();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("graph.onnx");
    let ours = |inputs: &[&str], attributes: &[(&str, Attribute)]| {
        let left_out = inputs.len()..Convolution3x3::FIXED_INPUTS;
        let inputs: Vec<&str> = inputs.iter().copied().chain(left_out.map(|_| "")).collect();
        of("tileforge", "Convolution3x3", &inputs, "y", attributes)
    };
    let same = [pads([1, 1, 1, 1])];
    let cases = [
        (ours(&["x", "w"], &same), [1, 3, 3], None),
        (ours(&["x", "w"], &[]), [1, 3, 3], Some("no pads")),
        (ours(&["x", "w"], &[("pads", Attribute::Ints(vec![1, 1]))]), [1, 3, 3], Some("4 pads")),
        (ours(&["x", "w"], &[pads([1, i64::MAX, 1, 1])]), [1, 3, 3], Some("at most 2")),
        (ours(&["x", "w"], &[pads([-1, 1, 1, 1])]), [1, 3, 3], Some("4 pads")),
        (ours(&["x", "w"], &[pads([0, 0, 0, 0])]), [1, 2, 9], Some("no results")),
        (ours(&["x", "matrix"], &same), [1, 3, 3], Some("K×C×3×3")),
        (ours(&["x", "halves"], &same), [1, 3, 3], Some("6 channels")),
        (ours(&["x", "w", "slope", "w"], &same), [1, 3, 3], Some("numbers of its weights")),
        (ours(&["x", "w", "", "", "w"], &same), [1, 3, 3], Some("numbers of its weights")),
        (ours(&["x", "x"], &same), [1, 3, 3], Some("constant")),
        (ours(&["x", "w", "x"], &same), [1, 3, 3], Some("constant")),
        (ours(&["x", "w", "", "x"], &same), [1, 3, 3], Some("constant")),
        (ours(&["x", "w", "", "", "", "x"], &same), [1, 3, 3], Some("24")),
        (ours(&["x", "w", "", "", "", "w"], &same), [1, 3, 3], Some("one size")),
        (ours(&["x", "w", "", "", "", "matrix"], &same), [1, 3, 3], Some("N×C×H×W")),
    ];
    for (number, (node, size, problem)) in cases.into_iter().enumerate() {
        save(&model(node, vec![]), &path);
        match (run(&environment, &path, OptimisationLevel::All, size), problem) {
            (Ok(_), None) => {}
            (Err(message), Some(problem)) => assert!(message.contains(problem), "case {number}: {message}"),
            (result, problem) => panic!("case {number}: {problem:?}, {result:?}"),
        }
    }
}
