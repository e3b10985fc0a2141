//! Sessions on the processor compute attention with our kernels: the results are those of ONNX Runtime's.
#![allow(clippy::unwrap_used, clippy::panic)] // a test's way to fail

mod kernels;
mod nodes;

use std::path::Path;

use ndarray::{ArrayD, Dimension, IxDyn};
use tileforge_contract::DataType;
use tileforge_graph::{Attribute, Dim, Model, Node, Opset, Port, TensorType, Weight};
use tileforge_session::{Environment, OptimisationLevel, Tensor};

use kernels::{check_threads, environment, largest_difference, operators, run, save};
use nodes::{of, weight};

/// Heads, and the width of each.
const HEADS: [usize; 2] = [3, 5];

fn node(operator: &str, inputs: &[&str], output: &str) -> Node {
    of("", operator, inputs, output, &[])
}

fn model(inputs: Vec<(&str, Vec<Dim>)>, nodes: Vec<Node>, weights: Vec<(&str, Weight)>) -> Model {
    let port = |(name, dims): (&str, Vec<Dim>)| Port { name: name.into(), ty: TensorType::new(DataType::F32, dims) };
    let output = nodes.last().unwrap().outputs[0].clone();
    let rank = inputs[0].1.len();
    let free = (0..rank).map(|axis| Dim::symbol(format!("out.{axis}"))).collect();
    let domain = |name: &str, version: i64| Opset { domain: name.into(), version };
    Model {
        name: "test".into(),
        ir_version: 10,
        opsets: vec![domain("", 23), domain("com.microsoft", 1)],
        outputs: vec![port((&output, free))],
        inputs: inputs.into_iter().map(port).collect(),
        nodes,
        weights: weights.into_iter().map(|(name, weight)| (name.into(), weight)).collect(),
        ..Model::default()
    }
}

fn values(lengths: &[usize], seed: usize) -> Tensor {
    Tensor::F32(ArrayD::from_shape_fn(IxDyn(lengths), |at| {
        let place = at.slice().iter().fold(seed, |place, at| place * 31 + at);
        (place as f32 * 0.37).sin()
    }))
}

/// Our kernels and ONNX Runtime's give the same results but for rounding.
fn check(environment: &Environment, path: &Path, inputs: &[(&str, &Tensor)], what: &str) {
    let [ours, plain] = [OptimisationLevel::All, OptimisationLevel::Disabled]
        .map(|level| run(environment, path, level, inputs).unwrap());
    let difference = largest_difference(&ours, &plain);
    assert!(difference < 1e-5, "{what}: {difference}");
}

fn floats(values: &[f32]) -> Weight {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    Weight::from_bytes(DataType::F32, if values.len() == 1 { vec![] } else { vec![values.len()] }, bytes).unwrap()
}

/// Attention in the form that the exporter writes, or in that of ONNX Runtime's fusions.
fn attention(is_fused: bool, biases: &[&str], more: Vec<Node>) -> Vec<Node> {
    let perm = |order: [i64; 4]| [("perm", Attribute::Ints(order.to_vec()))];
    let (usual, last) = (perm([0, 2, 1, 3]), perm([0, 2, 3, 1]));
    let mut nodes = vec![of("", "Transpose", &["q"], "qt", &usual), of("", "Transpose", &["v"], "vt", &usual)];
    if is_fused {
        let attributes = [("alpha", Attribute::Float(0.4)), ("transB", Attribute::Int(1))];
        nodes.push(of("", "Transpose", &["k"], "kt", &usual));
        nodes.push(of("com.microsoft", "FusedMatMul", &["qt", "kt"], "s", &attributes));
    } else {
        nodes.push(of("", "Transpose", &["k"], "kt", &last));
        nodes.push(node("Mul", &["qt", "scale"], "scaled"));
        nodes.push(node("MatMul", &["scaled", "kt"], "s"));
    }
    let mut scores = "s".to_owned();
    for (at, bias) in biases.iter().enumerate() {
        let sum = format!("s{at}");
        let inputs = if at == 0 { [scores.as_str(), bias] } else { [bias, scores.as_str()] };
        nodes.push(node("Add", &inputs, &sum));
        scores = sum;
    }
    nodes.extend([
        of("", "Softmax", &[&scores], "p", &[("axis", Attribute::Int(-1))]),
        node("MatMul", &["p", "vt"], "o"),
        of("", "Transpose", &["o"], "y", &usual),
    ]);
    nodes.extend(more);
    nodes
}

/// Queries, keys and values of so many tokens, in a batch that is not known.
fn tokens(queries: usize, keys: usize) -> Vec<(&'static str, Vec<Dim>)> {
    let of = |tokens: usize| {
        let [heads, width] = HEADS;
        vec![Dim::symbol("b"), Dim::Fixed(tokens), Dim::Fixed(heads), Dim::Fixed(width)]
    };
    vec![("q", of(queries)), ("k", of(keys)), ("v", of(keys))]
}

#[test]
fn attention_gives_the_results_of_onnx_runtime() {
    let [heads, width] = HEADS;
    let (queries, keys) = (9, 21);
    let read_again = || vec![node("ReduceSum", &["p"], "sum"), node("Add", &["y", "sum"], "z")];
    let transposed_again = || vec![node("ReduceSum", &["qt"], "sum"), node("Add", &["y", "sum"], "z")];
    let environment = environment();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("graph.onnx");
    for (nodes, expected) in [
        (attention(false, &[], vec![]), "Attention"),
        (attention(true, &[], vec![]), "Attention"),
        (attention(true, &["of-heads"], vec![]), "Attention"),
        (attention(false, &["of-heads", "of-keys"], vec![]), "Attention"),
        (attention(true, &["small"], vec![]), "Attention"),
        (attention(true, &[], transposed_again()), "Transpose Attention ReduceSum Add"),
        // Weights that are read otherwise, and biases that are repeated along keys or make results larger.
        (attention(true, &[], read_again()), "as it is"),
        (attention(true, &["of-queries"], vec![]), "as it is"),
        (attention(true, &["of-samples"], vec![]), "as it is"),
    ] {
        let weights = vec![
            ("scale", floats(&[0.4])),
            ("of-heads", weight(&[1, heads, queries, keys], 0.0)),
            ("of-keys", weight(&[1, 1, 1, keys], 0.0)),
            ("small", weight(&[queries, keys], 0.0)),
            ("of-queries", weight(&[1, heads, queries, 1], 0.0)),
            ("of-samples", weight(&[2, 1, queries, keys], 0.0)),
        ];
        save(&model(tokens(queries, keys), nodes, weights), &path);
        assert_eq!(operators(&path, usize::MAX).join(" "), expected);
        let of = |tokens: usize, seed: usize| values(&[2, tokens, heads, width], seed);
        let (q, k, v) = (of(queries, 1), of(keys, 2), of(keys, 3));
        check(&environment, &path, &[("q", &q), ("k", &k), ("v", &v)], expected);
    }
}

#[test]
fn attention_of_rows_gives_the_results_of_onnx_runtime() {
    let environment = environment();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("graph.onnx");
    let [heads, width] = HEADS;
    let of_heads = |name| (name, Attribute::Int(heads as i64));
    let rows = |tokens: &str| vec![Dim::symbol("b"), Dim::symbol(tokens), Dim::Fixed(heads * width)];
    let inputs = || vec![("q", rows("n")), ("k", rows("m")), ("v", rows("m"))];
    let usual = [of_heads("q_num_heads"), of_heads("kv_num_heads")];
    let with = |name, attribute| usual.iter().cloned().chain([(name, attribute)]).collect::<Vec<_>>();
    for (attributes, expected) in [
        (usual.to_vec(), "Attention"),
        (with("scale", Attribute::Float(0.3)), "Attention"),
        (with("is_causal", Attribute::Int(1)), "as it is"),
        (with("softcap", Attribute::Float(2.0)), "as it is"),
    ] {
        save(&model(inputs(), vec![of("", "Attention", &["q", "k", "v"], "y", &attributes)], vec![]), &path);
        assert_eq!(operators(&path, usize::MAX), [expected]);
        for [samples, queries, keys] in [[1, 1, 1], [2, 33, 70], [1, 530, 16]] {
            let of = |tokens: usize, seed: usize| values(&[samples, tokens, heads * width], seed);
            let (q, k, v) = (of(queries, 1), of(keys, 2), of(keys, 3));
            check(&environment, &path, &[("q", &q), ("k", &k), ("v", &v)], expected);
        }
    }
    let (q, k) = (values(&[2, 90, heads * width], 1), values(&[2, 50, heads * width], 2));
    save(&model(inputs(), vec![of("", "Attention", &["q", "k", "v"], "y", &usual)], vec![]), &path);
    check_threads(&environment, &path, &[("q", &q), ("k", &k), ("v", &k)]);
    // Other numbers of tokens for keys than for values.
    let wrong = run(&environment, &path, OptimisationLevel::All, &[("q", &q), ("k", &k), ("v", &q)]).unwrap_err();
    assert!(wrong.contains("do not fit each other"), "{wrong}");
}

/// What others could write: each stays with ONNX Runtime.
#[test]
fn attention_that_is_another_stays() {
    let environment = environment();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("graph.onnx");
    let [heads, width] = HEADS;
    // Heads before tokens.
    let usual = [("q_num_heads", Attribute::Int(4)), ("kv_num_heads", Attribute::Int(4))];
    let heads_first = || vec![Dim::symbol("b"), Dim::Fixed(4), Dim::Fixed(4), Dim::Fixed(width)];
    let inputs = ["q", "k", "v"].map(|name| (name, heads_first())).to_vec();
    save(&model(inputs, vec![of("", "Attention", &["q", "k", "v"], "y", &usual)], vec![]), &path);
    assert_eq!(operators(&path, usize::MAX), ["as it is"]);
    // In 64 bits.
    let scale = vec![("scale", floats(&[0.4]))];
    let mut graph = model(tokens(4, 6), attention(true, &[], vec![]), vec![]);
    graph.inputs.iter_mut().chain(&mut graph.outputs).for_each(|port| port.ty.data_type = DataType::F64);
    save(&graph, &path);
    assert_eq!(operators(&path, usize::MAX), ["as it is"]);
    // More biases than there can be.
    save(
        &model(
            tokens(4, 6),
            attention(false, &["bias"; 9], vec![]),
            [scale, vec![("bias", weight(&[6], 0.0))]].concat(),
        ),
        &path,
    );
    assert_eq!(operators(&path, usize::MAX), ["as it is"]);
    // The results of one are the queries of the next without being transposed between them: one of the two is ours.
    let last = [("perm", Attribute::Ints(vec![0, 2, 1, 3]))];
    let more = vec![
        of("", "Transpose", &["k2"], "k2t", &[("perm", Attribute::Ints(vec![0, 2, 3, 1]))]),
        of("", "Transpose", &["v2"], "v2t", &last),
        node("MatMul", &["y", "k2t"], "s2"),
        of("", "Softmax", &["s2"], "p2", &[("axis", Attribute::Int(-1))]),
        node("MatMul", &["p2", "v2t"], "o2"),
        of("", "Transpose", &["o2"], "y2", &last),
    ];
    let of_second = vec![Dim::symbol("b"), Dim::Fixed(9), Dim::Fixed(5), Dim::Fixed(width)];
    let inputs = [tokens(5, 7), vec![("k2", of_second.clone()), ("v2", of_second)]].concat();
    save(&model(inputs, attention(true, &[], more), vec![]), &path);
    assert_eq!(operators(&path, usize::MAX).iter().filter(|operator| *operator == "Attention").count(), 1);
    let of = |tokens: usize, heads: usize, seed: usize| values(&[2, tokens, heads, width], seed);
    let (q, k, v) = (of(5, heads, 1), of(7, heads, 2), of(7, heads, 3));
    let (k2, v2) = (of(9, 5, 4), of(9, 5, 5));
    check(&environment, &path, &[("q", &q), ("k", &k), ("v", &v), ("k2", &k2), ("v2", &v2)], "two");
    // No keys: sums of nothing.
    save(&model(tokens(3, 0), attention(true, &[], vec![]), vec![]), &path);
    let (q, none) = (of(3, heads, 1), of(0, heads, 2));
    check(&environment, &path, &[("q", &q), ("k", &none), ("v", &none)], "no keys");
}

#[test]
fn a_file_cannot_bring_nodes_of_our_operator() {
    let environment = environment();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("graph.onnx");
    let [heads, width] = HEADS;
    let nodes = vec![of("tileforge", "Attention", &["q", "k", "v"], "y", &[("heads", Attribute::Int(3))])];
    let mut graph = model(tokens(4, 6), nodes, vec![]);
    graph.opsets.push(Opset { domain: "tileforge".into(), version: 1 });
    save(&graph, &path);
    let (q, k) = (values(&[1, 4, heads, width], 1), values(&[1, 6, heads, width], 2));
    let message = run(&environment, &path, OptimisationLevel::All, &[("q", &q), ("k", &k), ("v", &k)]).unwrap_err();
    assert!(message.contains("Attention"), "{message}");
}
