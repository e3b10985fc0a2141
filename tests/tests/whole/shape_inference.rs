//! Inferred types equal the types that ONNX Runtime computes.

use end_to_end::Graph;
use ndarray::{ArrayD, ArrayViewD, Axis};
use std::collections::{BTreeMap, BTreeSet};
use tileforge_contract::Upscale;
use tileforge_exporter::arch::registry;
use tileforge_exporter::{Checkpoint, Shapes, export, synthesise};
use tileforge_graph::{
    Attribute, Border, Constant, ConvOptions, DataType, Dim, Model, Node, Port, TensorType, Trace, Value, Weight,
    WeightStorage, save,
};
use tileforge_session::{OptimisationLevel, SessionOptions};

/// Runs the model with every float32 value as an output, and compares each shape. Returns the operators in the model.
fn check(mut model: Model) -> BTreeSet<String> {
    let made: Vec<String> = model.nodes.iter().flat_map(|node| node.outputs.clone()).collect();
    let ports = made.iter().map(|name| Port { name: name.clone(), ty: model.types[name].clone() });
    model.outputs = ports.filter(|port| port.ty.data_type == DataType::F32).collect();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    save(&model, &path, WeightStorage::Inline).unwrap();
    // Without optimisation, so that every node still exists.
    let options = SessionOptions { optimisation: OptimisationLevel::Disabled, ..SessionOptions::default() };
    let mut session = Graph::open(&path, &options).unwrap_or_else(|e| panic!("{e}"));
    let inputs: Vec<_> =
        model.inputs.iter().map(|input| (input.name.as_str(), ArrayD::zeros(input.ty.fixed_dims().unwrap()))).collect();
    let outputs = session.run(&inputs.iter().map(|(name, value)| (*name, value.view())).collect::<Vec<_>>()).unwrap();
    assert_eq!(outputs.len(), model.outputs.len());
    for (name, value) in outputs {
        let inferred = model.types[&name].fixed_dims().unwrap_or_else(|| panic!("{name}: {}", model.types[&name]));
        assert_eq!(inferred, value.shape(), "{name}");
    }
    model.nodes.into_iter().map(|node| node.operator).collect()
}

#[test]
fn every_architecture_is_inferred_as_it_runs() {
    each_small_model(&[DataType::F32, DataType::F16], |_, model| drop(check(model)));
}

/// Calls `visit` with the small networks of every architecture, in several sizes, from weights in these types.
pub(crate) fn each_small_model(data_types: &[DataType], mut visit: impl FnMut(&str, Model)) {
    let folder = tempfile::tempdir().unwrap();
    for entry in registry() {
        for (preset, network) in entry.presets().into_iter().filter(|(name, _)| name.starts_with("tiny")) {
            let path = folder.path().join(format!("{preset}.safetensors"));
            for &data_type in data_types {
                synthesise(network.as_ref(), data_type, 1, &path).unwrap();
                let checkpoint = Checkpoint::open(&path).unwrap();
                let Ok(contract) = Upscale::of(&network.contract()) else {
                    each_of_component(&checkpoint, &network.example_shapes(), |model| visit(entry.name, model));
                    continue;
                };
                // 10 × 14 is not a multiple of 4: the ×1 network pads and crops.
                let least = contract.size_minimum;
                let sides = contract.only_size.map_or([least.max(10), least.max(10) + 4], |side| [side; 2]);
                let image = [2, contract.channels, sides[0], sides[1]];
                visit(entry.name, export(&checkpoint, &Shapes::of("image", &image), &BTreeMap::new()).unwrap().model);
                if !network.example_shapes().is_empty() {
                    continue;
                }
                let dynamic = export(&checkpoint, &Shapes::default(), &BTreeMap::new()).unwrap().model;
                let [height, width] =
                    [8, 12].map(|size: usize| size.max(least).next_multiple_of(contract.size_multiple));
                let image = [3, contract.channels, height, width];
                visit(entry.name, dynamic.specialised(&[("image".to_owned(), image.to_vec())].into()).unwrap());
            }
        }
    }
}

/// A pipeline's component, whose dynamic sizes are fixed after the export and before it.
fn each_of_component(checkpoint: &Checkpoint, example: &Shapes, mut visit: impl FnMut(Model)) {
    if !example.is_empty() {
        visit(export(checkpoint, example, &BTreeMap::new()).unwrap().model);
        return;
    }
    let dynamic = export(checkpoint, &Shapes::default(), &BTreeMap::new()).unwrap().model;
    for sizes in [[2, 3, 2, 5, 2], [1, 2, 1, 7, 1]] {
        let of_name = |name: &str| {
            sizes[["batch", "height", "width", "sequence", "frames"].iter().position(|known| *known == name).unwrap()]
        };
        let size = |dim: &Dim| match dim {
            Dim::Fixed(size) => *size,
            Dim::Symbol { names, multiply, add, .. } => {
                (multiply * of_name(&names[0])).checked_add_signed(*add).unwrap()
            }
        };
        let shapes = dynamic
            .inputs
            .iter()
            .map(|input| (input.name.clone(), input.ty.dims.iter().map(size).collect::<Vec<usize>>()));
        let shapes: BTreeMap<String, Vec<usize>> = shapes.filter(|(_, dims)| !dims.is_empty()).collect();
        visit(dynamic.specialised(&shapes).unwrap());
        let dims = |dims: &[usize]| dims.iter().map(ToString::to_string).collect::<Vec<_>>().join("x");
        let text = shapes.iter().map(|(name, sizes)| format!("{name}:{}", dims(sizes))).collect::<Vec<_>>().join(",");
        visit(export(checkpoint, &text.parse().unwrap(), &BTreeMap::new()).unwrap().model);
    }
}

/// A batch of dynamic size is resized to the same pictures as each picture alone.
#[test]
fn a_dynamic_batch_is_resized_whole() {
    let trace = Trace::new("resize", 9, 20);
    let dims = ["batch", "height", "width"].map(Dim::symbol);
    let [batch, height, width] = dims;
    let image = trace.input("image", TensorType::new(DataType::F32, [batch.clone(), Dim::Fixed(2), height, width]));
    let resized = image.resize_bilinear_to_corners(5, 7);
    assert_eq!(resized.ty().dims, [batch, Dim::Fixed(2), Dim::Fixed(5), Dim::Fixed(7)]);
    trace.output("resized", &resized);
    let model = trace.finish().unwrap();
    let _ = check(model.specialised(&[("image".to_owned(), vec![3, 2, 4, 6])].into()).unwrap());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    save(&model, &path, WeightStorage::Inline).unwrap();
    let mut session = Graph::open(&path, &SessionOptions::default()).unwrap();
    let mut resize = |image: ArrayViewD<'_, f32>| session.run(&[("image", image)]).unwrap().remove(0).1;
    let values = (0..3 * 2 * 4 * 6).map(|i| (i as f32 * 0.7).sin()).collect();
    let images = ArrayD::from_shape_vec(vec![3, 2, 4, 6], values).unwrap();
    let together = resize(images.view());
    assert_eq!(together.shape(), [3, 2, 5, 7]);
    for (image, expected) in images.axis_chunks_iter(Axis(0), 1).zip(together.axis_chunks_iter(Axis(0), 1)) {
        assert_eq!(resize(image), expected);
    }
}

fn integers(trace: &Trace, values: &[i64]) -> Value {
    trace.constant("integers", &[values.len()], Constant::I64(values))
}

/// One graph with every operator that has a rule, in more forms than the architectures use.
#[test]
fn every_rule_is_inferred_as_it_runs() {
    let image = [2, 4, 9, 12];
    let trace = Trace::new("rules", 11, 23);
    let x = trace.input("image", TensorType::new(DataType::F32, image));
    let weight = |name: &str, dims: &[usize]| trace.weight(name, Weight::zeros(DataType::F32, dims.to_vec()).unwrap());
    let convolve =
        |kernel: &[usize], options: ConvOptions| x.conv(&weight(&format!("conv{kernel:?}"), kernel), None, &options);
    let strided = ConvOptions { strides: vec![2, 3], pads: vec![1, 0, 2, 1], dilations: vec![2, 1], groups: 2 };
    let _ = convolve(&[6, 2, 3, 4], strided);
    let _ = convolve(&[5, 4, 1, 1], ConvOptions::same(1)).prelu(&weight("slope", &[5, 1, 1])).relu().leaky_relu(0.1);
    let _ = x.average_pool(2).max_pool_strided(3, 2).resize_nearest_like(&x).resize_bilinear_like(&x);
    let _ = x.conv_transpose(&weight("up", &[4, 3, 4, 4]), None, 3, 0).crop_border(2).pad([1, 2, 3, 4], Border::Zero);
    let _ = x.cast(DataType::F16).cast(DataType::F32).depth_to_space(2).pixel_unshuffle(2);
    let _ = x.pixel_unshuffle(3);
    let _ = x.upsample_nearest(3).crop(5, 7).pad_reflect(2, 3).scale(0.5);
    let _ = x.depth_to_space_of_blocks(2).slice_by(2, [1, -2], 2).slice_by(3, [-3, i64::MAX], 1);
    let _ = x.gather(&[3, 0], 1).concat(&[&x, &x], 1);
    let _ = (&x + &weight("row", &[12])) * &weight("column", &[9, 1]) - &x;
    for operator in ["Tanh", "Identity", "Mish"] {
        let _ = trace.node(operator, &[&x], []);
    }
    let _ = x.sigmoid().silu().gelu().mish().offset(1.0) / &x.cumulative_sum(-2);
    let _ = x.instance_norm(&weight("scale4", &[4]), &weight("bias4", &[4]), 1e-5).reshape(&[0, 2, -1, 0]);
    let _ = x.layer_norm(&weight("scale12", &[12]), &weight("bias12", &[12]), 1e-6).slice(1, 1, 3);
    let _ = x.matmul(&weight("right", &[12, 5])).softmax(-1) + x.matmul(&weight("stack", &[4, 12, 5])).softmax(1);
    let _ = x.reshape(&[-1, 12]).linear(&weight("linear", &[7, 12]), Some(&weight("linear_bias", &[7])));
    let rows = x.reshape(&[12, -1]);
    let transposed = [("transA", Attribute::from(1)), ("alpha", Attribute::from(0.5_f32))];
    let _ = trace.node("Gemm", &[&rows, &weight("plain", &[12, 3]), &weight("addend", &[72, 1])], transposed);
    let _ = x.global_average_pool() + x.max_pool(2).global_average_pool();
    let _ = x.conv_transpose(&weight("up", &[4, 3, 4, 4]), Some(&weight("up_bias", &[3])), 2, 1).upsample_bilinear(3);
    let dilated = [
        ("dilations", Attribute::Ints(vec![2, 1])),
        ("strides", Attribute::Ints(vec![1, 2])),
        ("pads", Attribute::Ints(vec![1, 0, 0, 1])),
    ];
    let more = [("output_padding", Attribute::Ints(vec![0, 1])), ("group", Attribute::from(2))];
    let _ =
        trace.node("ConvTranspose", &[&x, &weight("grouped", &[4, 3, 3, 2])], dilated.clone().into_iter().chain(more));
    let _ = trace.node("MaxPool", &[&x], dilated.into_iter().chain([("kernel_shape", Attribute::Ints(vec![3, 2]))]));
    let _ = x.resize_bilinear_to_corners(5, 17).scale_channels(0.5);
    let _ = x.reshape(&[2, 36, 12]).attention(&weight("keys", &[2, 5, 12]), &weight("values", &[2, 5, 6]), 3, false);
    let _ = x.reshape(&[2, 36, 12]).attention(
        &weight("more_keys", &[2, 36, 12]),
        &weight("more_values", &[2, 36, 12]),
        1,
        true,
    );
    let largest = x.is_equal_to(0.5).arg_max(1);
    let _ = x.gather_each(&largest.reshape(&[2, 108]).gather(&[7], 1)).sin()
        + x.gather_by(&largest, 1).gather(&[0, 0], 0).reshape(&[-1, 9, 12]).slice(0, 0, 1).cos();
    let vanishing = [("axis", Attribute::from(-1)), ("keepdims", Attribute::from(0))];
    let last = trace.node("ArgMax", &[&x], vanishing);
    let _ = x.gather_by(&last, 3);
    let lengths = x.length(-1).at_least(0.5) * x.length(1);
    let all = [("keepdims", Attribute::from(0))];
    let _ = lengths.global_average_pool() + trace.node("ReduceL2", &[&x], all);
    let kept = [("noop_with_empty_axes", Attribute::from(1))];
    let _ = trace.node("ReduceL2", &[&x], kept);
    let some = [("keepdims", Attribute::from(0))];
    let _ = trace.node("ReduceL2", &[&x, &integers(&trace, &[-1, 0])], some);
    let _ = x.gather_elements(&largest, 1).sum_before(2);
    let _ = x.scatter(&largest, &x.slice(1, 0, 1), 1);
    let _ = x.equals(&weight("category", &[12]));
    let _ = trace.node("GatherND", &[&x, &integers(&trace, &[1, 2, 3, 0, 0, 1]).reshape(&[2, 3])], []);
    let from_second = [("axis", Attribute::from(2))];
    let _ = trace.node("LayerNormalization", &[&x, &weight("scale9x12", &[9, 12])], from_second);
    let _ = x.transpose(&[0, 2, 3, 1]).size(3) * x.size(2);
    for (start, end) in [(-3, -1), (0, 9), (-9, 2), (3, 1)] {
        let shape = trace.node("Shape", &[&x], [("start", Attribute::from(start)), ("end", Attribute::from(end))]);
        let _ = shape.cast(DataType::F32);
    }
    let _ = x.grid_sample(&weight("grid", &[2, 5, 7, 2]));
    // Slices: from the end, backwards, beyond the end, of zero length.
    for (start, end, step) in [(-5, -1, 2), (8, i64::MIN, -3), (2, i64::MAX, 1), (7, 3, 1), (100, -100, -1), (0, 9, 4)]
    {
        let (starts, ends) = (integers(&trace, &[start]), integers(&trace, &[end]));
        let _ = trace.node("Slice", &[&x, &starts, &ends, &integers(&trace, &[2]), &integers(&trace, &[step])], []);
    }
    for target in [[0, -1, 12].as_slice(), &[2, 4, -1], &[-1], &[8, 9, 3, 4], &[0, 0, 0, 0], &[1, 2, 2, 2, 9, -1]] {
        let _ = trace.node("Reshape", &[&x, &integers(&trace, target)], []);
    }
    let _ = trace.node("Transpose", &[&x], [("perm", Attribute::Ints(vec![0, 2, 3, 1]))]);
    let _ = trace.node("Transpose", &[&x], []);
    let _ = trace.node("Pad", &[&x, &integers(&trace, &[0, 0, 1, 2, 0, 0, 3, -1])], []);
    let scales = trace.constant("scales", &[4], Constant::F32(&[1.0, 1.0, 0.7, 1.5]));
    let empty = trace.constant("region", &[0], Constant::F32(&[]));
    let linear = || [("mode", Attribute::from("linear"))];
    let _ = trace.node("Resize", &[&x, &empty, &scales], linear());
    let _ = trace.node(
        "Resize",
        &[&x, &empty, &trace.constant("no_scales", &[0], Constant::F32(&[])), &integers(&trace, &[2, 4, 20, 5])],
        linear(),
    );
    let _ = trace.node("Max", &[&x, &weight("row", &[12])], []);
    let _ = trace.node("Min", &[&weight("column", &[9, 1]), &x], []);
    let codes = trace.node("QuantizeLinear", &[&x, &trace.constant("step", &[], Constant::F32(&[0.5]))], []);
    let _ = trace.node(
        "DequantizeLinear",
        &[&codes, &trace.constant("steps", &[9], Constant::F32(&[0.5; 9]))],
        [("axis", Attribute::from(2))],
    );
    let mut model = trace.finish().unwrap_or_else(|e| panic!("{e}"));
    // A trace gives every node one output.
    let lengths: Vec<u8> = [2_i64, 3, 4].iter().flat_map(|length| length.to_le_bytes()).collect();
    model.weights.insert("lengths".into(), Weight::from_bytes(DataType::I64, vec![3], lengths).unwrap());
    for (name, inputs, outputs, attributes) in [
        ("halves", vec!["image"], 2, vec![("axis", 3), ("num_outputs", 2)]),
        ("thirds", vec!["image", "lengths"], 3, vec![("axis", -2)]),
    ] {
        model.nodes.push(Node {
            name: name.into(),
            operator: "Split".into(),
            domain: String::new(),
            inputs: inputs.into_iter().map(str::to_owned).collect(),
            outputs: (0..outputs).map(|number| format!("{name}.{number}")).collect(),
            attributes: attributes.into_iter().map(|(name, value)| (name.to_owned(), Attribute::from(value))).collect(),
        });
    }
    model.infer_types().unwrap_or_else(|e| panic!("{e}"));
    let seen = check(model);
    let rules = [
        "Add",
        "ArgMax",
        "Attention",
        "AveragePool",
        "BatchNormalization",
        "Cast",
        "Concat",
        "Conv",
        "ConvTranspose",
        "Cos",
        "CumSum",
        "DepthToSpace",
        "DequantizeLinear",
        "Div",
        "Equal",
        "Gather",
        "GatherElements",
        "GatherND",
        "Gelu",
        "Gemm",
        "GlobalAveragePool",
        "GridSample",
        "Identity",
        "InstanceNormalization",
        "LayerNormalization",
        "LeakyRelu",
        "MatMul",
        "Max",
        "MaxPool",
        "Min",
        "Mish",
        "Mul",
        "PRelu",
        "Pad",
        "QuantizeLinear",
        "ReduceL2",
        "Relu",
        "Reshape",
        "Resize",
        "ScatterElements",
        "Shape",
        "Sigmoid",
        "Sin",
        "Slice",
        "Softmax",
        "SpaceToDepth",
        "Split",
        "Sub",
        "Tanh",
        "Transpose",
    ];
    assert_eq!(seen.iter().map(String::as_str).collect::<Vec<_>>(), rules);
}
