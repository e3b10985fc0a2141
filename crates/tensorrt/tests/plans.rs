//! Checks NVIDIA's builder against this crate's documentation. Needs the library in .onnxruntime/lib, and no GPU.
#![cfg(feature = "rtx")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use tileforge_graph::{Attribute, DataType, Model, Node, Opset, Port, TensorType, Weight, WeightStorage, save};
use tileforge_tensorrt::{
    BuildOptions, ComputeCapability, Error, InputRange, Library, LibraryVersion, PlanHeader, Refit, Severity, Validity,
};

fn library() -> Library {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.onnxruntime/lib");
    Library::load(&folder).unwrap_or_else(|error| panic!("{error}; run `make setup RTX=1`"))
}

fn go_on(_: &tileforge_tensorrt::Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn port(name: &str, data_type: DataType, dims: &[usize]) -> Port {
    Port { name: name.into(), ty: TensorType::new(data_type, dims.iter().copied()) }
}

fn node(name: &str, operator: &str, inputs: &[&str], output: &str, attributes: &[(&str, Attribute)]) -> Node {
    Node {
        name: name.into(),
        operator: operator.into(),
        domain: String::new(),
        inputs: inputs.iter().map(|input| (*input).into()).collect(),
        outputs: vec![output.into()],
        attributes: attributes.iter().map(|(name, value)| ((*name).into(), value.clone())).collect::<BTreeMap<_, _>>(),
    }
}

fn model(inputs: Vec<Port>, output: Port, nodes: Vec<Node>, weights: &[(&str, Weight)]) -> Model {
    Model {
        name: "test".into(),
        producer: ("test".into(), "0".into()),
        ir_version: 10,
        opsets: vec![Opset { domain: String::new(), version: 23 }],
        inputs,
        outputs: vec![output],
        nodes,
        weights: weights.iter().map(|(name, weight)| ((*name).into(), weight.clone())).collect(),
        ..Model::default()
    }
}

fn floats(dims: &[usize], value: impl Fn(usize) -> f32) -> Weight {
    let count = dims.iter().product();
    let bytes: Vec<u8> = (0..count).flat_map(|i| value(i).to_le_bytes()).collect();
    Weight::from_bytes(DataType::F32, dims.to_vec(), bytes).unwrap()
}

/// x · w, with w in a file beside the graph.
fn product(folder: &Path) -> PathBuf {
    let weight = floats(&[64, 64], |i| (i % 17) as f32 / 17.0);
    let nodes = vec![node("layers.0/MatMul", "MatMul", &["x", "w"], "y", &[])];
    let dims = [8, 64];
    let model = model(vec![port("x", DataType::F32, &dims)], port("y", DataType::F32, &dims), nodes, &[("w", weight)]);
    let path = folder.join("product.onnx");
    save(&model, &path, WeightStorage::Copy).unwrap();
    path
}

fn saved(folder: &Path, name: &str, model: &Model) -> PathBuf {
    let path = folder.join(format!("{name}.onnx"));
    save(model, &path, WeightStorage::Inline).unwrap();
    path
}

#[test]
fn two_builds_give_the_same_bytes_whose_header_tells_release_and_capabilities() {
    let (library, folder) = (library(), tempfile::tempdir().unwrap());
    let graph = product(folder.path());
    let build = |capabilities: &[ComputeCapability]| {
        library.build(&graph, capabilities, &BuildOptions::default(), &mut go_on).unwrap()
    };
    use ComputeCapability::{Sm80, Sm86, Sm89, Sm120, Sm121};
    // 7.5 has no FP32 products.
    for capabilities in [vec![Sm80], vec![Sm86], vec![Sm89], vec![Sm120], vec![Sm121], vec![Sm86, Sm89, Sm120]] {
        let plan = build(&capabilities);
        assert_eq!(plan.bytes(), build(&capabilities).bytes());
        assert_eq!(&plan.bytes()[..4], b"vtrt");
        let header = PlanHeader::read(plan.bytes()).unwrap();
        assert_eq!((header.version, header.capabilities), (library.version(), capabilities));
        assert!(plan.layers() > 0 && plan.messages().iter().all(|message| message.severity <= Severity::Warning));
    }
}

#[test]
fn a_header_that_is_none_is_refused() {
    let reason = |bytes: &[u8]| match PlanHeader::read(bytes) {
        Err(Error::NotAPlan { reason }) => reason,
        other => panic!("{other:?}"),
    };
    assert!(reason(b"vtrt").contains("found 4"));
    assert!(reason(&[0; 64]).contains("`vtrt`"));
    let mut unknown = *b"vtrt\0\0\0\0\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x07\x01\x74vtrt\x08\0\0\0\0\0\0\0";
    let version = LibraryVersion::EXPECTED;
    assert_eq!(PlanHeader::read(&unknown), Ok(PlanHeader { version, capabilities: vec![ComputeCapability::Sm89] }));
    unknown[33] = 1;
    assert!(reason(&unknown).contains("0x108"));
}

#[test]
fn the_library_judges_a_plan_s_header() {
    let (library, folder) = (library(), tempfile::tempdir().unwrap());
    let graph = product(folder.path());
    let plan = library.build(&graph, &[ComputeCapability::Sm89], &BuildOptions::default(), &mut go_on).unwrap();
    // The verdict depends on the machine's GPU; without a driver, it is invalid. A plan of another release is never
    // valid.
    library.validity(plan.bytes()).unwrap();
    let mut other = plan.bytes().to_vec();
    other[25] = 6;
    assert!(matches!(library.validity(&other).unwrap(), Validity::Invalid { .. }));
    assert!(matches!(library.validity(&other[..8]), Err(Error::NotAPlan { .. })));
}

#[test]
fn progress_counts_and_cancels() {
    let (library, folder) = (library(), tempfile::tempdir().unwrap());
    let graph = product(folder.path());
    let mut seen = Vec::new();
    library
        .build(&graph, &[ComputeCapability::Sm89], &BuildOptions::default(), &mut |progress| {
            assert!(progress.step <= progress.steps, "{progress:?}");
            seen.push(progress.clone());
            ControlFlow::Continue(())
        })
        .unwrap();
    let whole = |progress: &&tileforge_tensorrt::Progress| progress.phase == "Building engine";
    let mut steps: Vec<u32> = seen.iter().filter(whole).map(|progress| progress.step).collect();
    let count = seen.iter().find(whole).unwrap().steps;
    steps.dedup();
    assert_eq!(steps, (0..=count).collect::<Vec<_>>());

    let mut calls = 0;
    let cancelled = library.build(&graph, &[ComputeCapability::Sm89], &BuildOptions::default(), &mut |_| {
        calls += 1;
        ControlFlow::Break(())
    });
    assert_eq!(cancelled.unwrap_err(), Error::Cancelled);
    assert!(calls > 0 && calls < seen.len());
}

#[test]
fn a_refused_node_is_named() {
    let (library, folder) = (library(), tempfile::tempdir().unwrap());
    let refused = |name: &str, model: &Model, capabilities: &[ComputeCapability]| {
        let graph = saved(folder.path(), name, model);
        library.build(&graph, capabilities, &BuildOptions::default(), &mut go_on).unwrap_err()
    };
    let square = || vec![port("x", DataType::F32, &[4, 4])];

    let nodes = vec![node("layers.0/Det", "Det", &["x"], "y", &[])];
    let error =
        refused("operator", &model(square(), port("y", DataType::F32, &[]), nodes, &[]), &[ComputeCapability::Sm89]);
    let Error::Parse { refusal, .. } = &error else { panic!("{error}") };
    assert_eq!(
        (refusal.nodes.as_slice(), refusal.operator.as_deref()),
        (["layers.0/Det".into()].as_slice(), Some("Det"))
    );

    let weight = floats(&[5, 4], |_| 1.0);
    let nodes = vec![node("layers.0/MatMul", "MatMul", &["x", "w"], "y", &[])];
    let output = port("y", DataType::F32, &[4, 4]);
    let error = refused("shape", &model(square(), output, nodes, &[("w", weight)]), &[ComputeCapability::Sm89]);
    let Error::Parse { refusal, .. } = &error else { panic!("{error}") };
    assert_eq!(refusal.nodes, ["layers.0/MatMul"]);
    assert!(refusal.reason.contains("must match") && !refusal.reason.contains("driver"), "{refusal}");

    let tokens = |name: &str| port(name, DataType::F32, &[1, 8, 16]);
    let heads = [("q_num_heads", 2.into()), ("kv_num_heads", 2.into()), ("is_causal", 1.into())];
    let nodes = vec![node("text.0/Attention", "Attention", &["q", "k", "v"], "y", &heads)];
    let model_of_text = model(vec![tokens("q"), tokens("k"), tokens("v")], tokens("y"), nodes, &[]);
    let error = refused("attention", &model_of_text, &[ComputeCapability::Sm86, ComputeCapability::Sm89]);
    let Error::Refused { refusal, .. } = &error else { panic!("{error}") };
    assert_eq!(refusal.nodes, ["text.0/Attention"], "{refusal}");
    assert!(error.to_string().contains("capability 8.6, 8.9: node `text.0/Attention` (Attention): "), "{error}");
}

#[test]
fn a_precision_that_a_gpu_lacks_is_named() {
    let (library, folder) = (library(), tempfile::tempdir().unwrap());
    let x = || vec![port("x", DataType::F32, &[16, 16])];
    let scale = floats(&[], |_| 0.1);
    let zero = Weight::from_bytes(DataType::F8E4M3, vec![], vec![0]).unwrap();
    let nodes = vec![
        node("layers.0/QuantizeLinear", "QuantizeLinear", &["x", "s", "z"], "q", &[]),
        node("layers.0/DequantizeLinear", "DequantizeLinear", &["q", "s", "z"], "y", &[]),
    ];
    let output = port("y", DataType::F32, &[16, 16]);
    let graph = saved(folder.path(), "fp8", &model(x(), output, nodes, &[("s", scale), ("z", zero)]));
    let build =
        |capabilities: &[ComputeCapability]| library.build(&graph, capabilities, &BuildOptions::default(), &mut go_on);
    use ComputeCapability::{Sm75, Sm80, Sm86, Sm89, Sm120, Sm121};
    for capabilities in [vec![Sm75], vec![Sm80], vec![Sm86], vec![Sm86, Sm89]] {
        let error = build(&capabilities).unwrap_err();
        let Error::Precision { precision, capabilities: found, .. } = &error else { panic!("{error}") };
        assert_eq!((precision.as_str(), found), ("fp8_e4m3", &capabilities));
    }
    for capability in [Sm89, Sm120, Sm121] {
        build(&[capability]).unwrap();
    }
}

#[test]
fn sizes_that_are_not_fixed_need_a_range() {
    let (library, folder) = (library(), tempfile::tempdir().unwrap());
    let mut dynamic = model(
        vec![port("x", DataType::F32, &[1, 4])],
        port("y", DataType::F32, &[1, 4]),
        vec![node("layers.0/Relu", "Relu", &["x"], "y", &[])],
        &[],
    );
    for port in dynamic.inputs.iter_mut().chain(&mut dynamic.outputs) {
        port.ty.dims[0] = tileforge_graph::Dim::symbol("batch");
    }
    let graph = saved(folder.path(), "dynamic", &dynamic);
    let build = |ranges: Vec<InputRange>| {
        let options = BuildOptions { ranges, ..BuildOptions::default() };
        library.build(&graph, &[ComputeCapability::Sm89], &options, &mut go_on)
    };
    let range = |minimum: usize, maximum: usize| {
        let sizes = |batch| vec![batch, 4];
        vec![InputRange { name: "x".into(), minimum: sizes(minimum), optimum: sizes(2), maximum: sizes(maximum) }]
    };
    assert!(matches!(build(Vec::new()).unwrap_err(), Error::Refused { .. }));
    build(range(1, 4)).unwrap();
    let error = build(range(3, 4)).unwrap_err();
    assert!(error.to_string().contains("`x`"), "{error}");
}

#[test]
fn what_cannot_be_is_said_before_anything_is_built() {
    let (library, folder) = (library(), tempfile::tempdir().unwrap());
    let graph = product(folder.path());
    let build = |capabilities: &[ComputeCapability], options: &BuildOptions| {
        library.build(&graph, capabilities, options, &mut go_on).unwrap_err()
    };
    let default = BuildOptions::default;
    let stripped = BuildOptions { without_weights: true, ..default() };
    let level = BuildOptions { optimisation_level: Some(6), ..default() };
    assert!(matches!(build(&[], &default()), Error::Options(_)));
    assert!(matches!(build(&[ComputeCapability::Sm89], &stripped), Error::Options(_)));
    assert!(matches!(build(&[ComputeCapability::Sm89], &level), Error::Options(_)));
    let missing = library.build(&folder.path().join("no.onnx"), &[ComputeCapability::Sm89], &default(), &mut go_on);
    assert!(matches!(missing.unwrap_err(), Error::Parse { .. }));
    let elsewhere = Library::load(folder.path()).unwrap_err();
    assert!(matches!(elsewhere, Error::LibraryMissing { .. }));
    assert!(Refit::Never != Refit::Any);
}

#[test]
fn options_reach_the_builder() {
    let (library, folder) = (library(), tempfile::tempdir().unwrap());
    let graph = product(folder.path());
    let build =
        |options: &BuildOptions| library.build(&graph, &[ComputeCapability::Sm89], options, &mut go_on).unwrap();
    let plain = build(&BuildOptions::default());
    let tf32 = build(&BuildOptions { tf32: true, ..BuildOptions::default() });
    assert_ne!(plain.bytes(), tf32.bytes());
    build(&BuildOptions { workspace: Some(1 << 28), optimisation_level: Some(2), ..BuildOptions::default() });
    let verbose = build(&BuildOptions { messages: Severity::Verbose, ..BuildOptions::default() });
    assert!(verbose.messages().iter().any(|message| message.text.contains("layers.0/MatMul")));
}
