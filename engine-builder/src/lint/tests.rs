use super::*;
use tileforge_graph::{Attribute, Opset, Port, TensorType, Weight};

fn node(operator: &str, inputs: &[&str], outputs: &[&str]) -> Node {
    Node {
        name: format!("{operator}.{}", outputs.first().unwrap_or(&"")),
        operator: operator.into(),
        domain: String::new(),
        inputs: inputs.iter().map(ToString::to_string).collect(),
        outputs: outputs.iter().map(ToString::to_string).collect(),
        attributes: std::collections::BTreeMap::new(),
    }
}

fn with(mut node: Node, name: &str, value: Attribute) -> Node {
    node.attributes.insert(name.into(), value);
    node
}

/// A graph with an input `x` of 1×2×8×8 in FP32, an `h` of the same shape in FP16, and a few weights.
fn model(nodes: Vec<Node>) -> Model {
    let port = |name: &str, data_type| Port { name: name.into(), ty: TensorType::new(data_type, [1, 2, 8, 8]) };
    let mut model = Model {
        opsets: vec![Opset { domain: String::new(), version: 20 }],
        inputs: vec![port("x", DataType::F32), port("h", DataType::F16), port("i", DataType::I32)],
        nodes,
        ..Model::default()
    };
    let weights = [
        ("scale", DataType::F32, 1_f32.to_le_bytes().to_vec()),
        ("nought", DataType::F16, vec![0; 2]),
        ("zero", DataType::I8, vec![0]),
        ("one", DataType::I8, vec![1]),
        ("unsigned", DataType::U8, vec![0]),
    ];
    for (name, data_type, bytes) in weights {
        model.weights.insert(name.into(), Weight::from_bytes(data_type, vec![], bytes).unwrap());
    }
    model
}

fn messages(model: &Model) -> Vec<String> {
    lint(model, Target::TensorRt10).findings.iter().map(ToString::to_string).collect()
}

#[test]
fn what_is_refused_is_named_with_its_reason() {
    let resize = || node("Resize", &["x"], &["y"]);
    let text = |text: &str| Attribute::Text(text.into());
    let mut foreign = node("FusedConv", &["x"], &["y"]);
    foreign.domain = "com.microsoft".into();
    for (node, expected) in [
        (node("QLinearConv", &["x"], &["y"]), "does not take this operator"),
        (node("Swish", &["x"], &["y"]), "from 11.0 on"),
        (node("Newest", &["x"], &["y"]), "not in the parser's table"),
        (foreign, "domain `com.microsoft`"),
        (node("Conv", &["i"], &["y"]), "expected data of FP32, FP16, BF16, found INT32"),
        (node("Add", &["x", "h"], &["y"]), "one float type, found FP16 and FP32; a Cast is missing"),
        (with(resize(), "mode", text("cubic")), "expected `mode` to be one of nearest, linear, found cubic"),
        (with(resize(), "antialias", Attribute::Int(1)), "no antialiasing"),
        (with(resize(), "axes", Attribute::Ints(vec![2, 3])), "all of them in order"),
        (with(resize(), "coordinate_transformation_mode", text("tf_crop_and_resize")), "found tf_crop_and_resize"),
        (
            node("Slice", &["x", "i", "i", "i"], &["y"]),
            "expected its axes to be an initializer, found the computed value `i`",
        ),
        (node("Pad", &["x", "i", "", "i"], &["y"]), "expected its axes"),
        (node("LayerNormalization", &["x"], &["y", "mean"]), "expected the output Y only"),
        (node("Attention", &["x", "x", "x"], &["y", "keys"]), "expected the output Y only"),
        (
            with(node("AveragePool", &["x"], &["y"]), "dilations", Attribute::Ints(vec![2, 2])),
            "expected dilations of 1",
        ),
        (node("QuantizeLinear", &["x", "scale", "one"], &["y"]), "expected a zero point of 0, found another in `one`"),
        (
            node("QuantizeLinear", &["x", "scale", "unsigned"], &["y"]),
            "expected a zero point of INT8 or FP8, found UINT8",
        ),
        (node("QuantizeLinear", &["x", "scale"], &["y"]), "found none, which means UINT8"),
        (node("QuantizeLinear", &["x", "scale", "i"], &["y"]), "found the computed value `i`"),
        (node("QuantizeLinear", &["h", "nought", "zero"], &["y"]), "expected scales above 0, found 0 in `nought`"),
        (node("DequantizeLinear", &["zero", "nought", "zero"], &["y"]), "expected scales above 0"),
        (node("Relu", &["x"], &["x"]), "its output `x` has the name of another value"),
    ] {
        let report = lint(&model(vec![node.clone()]), Target::TensorRt10);
        assert!(
            report.errors().any(|error| error.message.contains(expected)),
            "{node:?}: expected `{expected}` in {report:?}"
        );
        let error = report.check("g.onnx").unwrap_err().to_string();
        assert!(
            error.starts_with("g.onnx: tensorrt-10 would not take this graph:\n  error: ")
                && error.contains(&node.operator),
            "{error}"
        );
        assert!(!report.check_shown("g.onnx").unwrap_err().to_string().contains("error:"));
    }
}

#[test]
fn what_is_taken_has_no_errors() {
    let text = |text: &str| Attribute::Text(text.into());
    for node in [
        node("Conv", &["x", "x"], &["y"]),
        with(node("Resize", &["x", "", "scale"], &["y"]), "mode", text("linear")),
        node("Resize", &["h", "", "scale"], &["y"]),
        node("QuantizeLinear", &["x", "scale", "zero"], &["y"]),
        node("Slice", &["x", "i", "i", "zero"], &["y"]),
        node("Attention", &["x", "x", "x"], &["y"]),
    ] {
        let report = lint(&model(vec![node.clone()]), Target::TensorRt10);
        assert_eq!(report.errors().count(), 0, "{node:?}: {report:?}");
    }
}

#[test]
fn opsets_have_a_range_for_each_target() {
    let mut model = model(Vec::new());
    for (version, errors) in [(8, [1, 1]), (20, [0, 0]), (23, [0, 0]), (24, [1, 0]), (26, [1, 1])] {
        model.opsets[0].version = version;
        assert_eq!(Target::TABLES.map(|target| lint(&model, target).errors().count()), errors, "{version}");
    }
}

#[test]
fn names_and_shapes_are_warned_of() {
    let mut nameless = node("Relu", &["x"], &["a"]);
    nameless.name.clear();
    let mut twice = node("Relu", &["x"], &["b"]);
    twice.name = "Relu.c".into();
    let mut model = model(vec![nameless, twice, node("Relu", &["x"], &["c"])]);
    model.inputs[0].ty.dims[2] = tileforge_graph::Dim::symbol("height");
    model.inputs[2].ty.data_type = DataType::I64;
    let found = messages(&model);
    for expected in ["has no name", "another node has this name", "dynamic sizes need a profile", "`i` is INT64"] {
        assert!(
            found.iter().any(|message| message.starts_with("warning: ") && message.contains(expected)),
            "{expected}: {found:?}"
        );
    }
    assert_eq!(found.len(), 4, "{found:?}");
}

#[test]
fn channels_that_leave_tensor_cores_idle_are_a_hint() {
    let of = |data_type, dims: [usize; 4]| {
        let channels = dims[1];
        let port =
            |name: &str, channels| Port { name: name.into(), ty: TensorType::new(data_type, [1, channels, 8, 8]) };
        let mut model = Model {
            opsets: vec![Opset { domain: String::new(), version: 22 }],
            inputs: vec![port("x", channels)],
            nodes: vec![node("Conv", &["x", "w"], &["y"])],
            weights: [("w".to_owned(), Weight::zeros(data_type, dims.to_vec()).unwrap())].into(),
            ..Model::default()
        };
        model.infer_types().unwrap();
        let report = lint(&model, Target::TensorRt10);
        report.of(Severity::Hint).map(ToString::to_string).collect::<Vec<_>>()
    };
    let found = of(DataType::F16, [64, 3, 1, 1]);
    assert_eq!(found, ["hint: Conv.y (Conv): 3 channels to 64: tensor cores fill them up to multiples of 8"]);
    assert!(of(DataType::F16, [64, 8, 1, 1]).is_empty());
    assert!(of(DataType::F32, [64, 3, 1, 1]).is_empty());
}
