//! Tests of the rules on a few nodes.

use super::*;
use crate::{Attribute, ConvOptions, DataType, Dim, Model, Node, TensorType, Trace, Weight};
use std::collections::BTreeMap;

fn f32s(dims: &[usize], values: &[f32]) -> Weight {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Weight::from_bytes(DataType::F32, dims.to_vec(), bytes).unwrap()
}

fn cast(trace: &Trace, value: &crate::Value, to: DataType) -> crate::Value {
    trace.node("Cast", &[value], [("to", Attribute::from(i64::from(to.to_onnx())))])
}

fn operators(model: &Model) -> Vec<&str> {
    model.nodes.iter().map(|node| node.operator.as_str()).collect()
}

fn type_of(model: &Model, value: &str) -> DataType {
    model.type_of(value).unwrap_or_else(|| panic!("no type of {value}")).data_type
}

/// Two convolutions with a ReLU between them.
fn convolutions() -> Model {
    let trace = Trace::new("convolutions", 9, 20);
    let x = trace.input("image", TensorType::new(DataType::F32, [1, 2, 4, 4]));
    let [first, second] = ["first", "second"]
        .map(|name| trace.weight(&format!("{name}.weight"), f32s(&[2, 2, 1, 1], &[0.3, -0.2, 0.1, 0.4])));
    let x = x.conv(&first, None, &ConvOptions::same(1)).relu();
    trace.output("output", &x.conv(&second, None, &ConvOptions::same(1)));
    trace.finish().unwrap()
}

#[test]
fn casts_of_weights_become_part_of_them() {
    let trace = Trace::new("casts", 9, 20);
    let x = trace.input("x", TensorType::new(DataType::F32, [2_usize]));
    let stored = trace.weight("w", f32s(&[2], &[0.1, 7.0]).cast(DataType::F16).unwrap());
    let twice = cast(&trace, &cast(&trace, &stored, DataType::Bf16), DataType::F32);
    trace.output("y", &(x + &twice));
    trace.output("w32", &cast(&trace, &stored, DataType::F32));
    let model = trace.finish().unwrap();
    let folded = fold_weight_casts(&model).unwrap();
    // The Cast that makes an output stays.
    assert_eq!(operators(&folded), ["Add", "Cast"]);
    let sum = &folded.nodes[0];
    let expected = f32s(&[2], &[0.1, 7.0]).cast(DataType::F16).unwrap().cast(DataType::Bf16).unwrap();
    assert_eq!(folded.weights[&sum.inputs[1]].to_f32s().unwrap(), expected.to_f32s().unwrap());
    assert_eq!(type_of(&folded, &sum.inputs[1]), DataType::F32);
}

#[test]
fn weights_alone_are_stored_in_half_precision() {
    let trace = Trace::new("stored", 9, 20);
    let x = trace.input("image", TensorType::new(DataType::F32, [1, 2, 4, 4]));
    let [first, second] = ["first", "second"]
        .map(|name| trace.weight(&format!("{name}.weight"), f32s(&[2, 2, 1, 1], &[0.3, -0.2, 0.1, 0.4])));
    // A bias that the checkpoint stores in 16 bits, and a bias that would lose bits in 16.
    let halved = f32s(&[2], &[0.1, 7.0]).cast(DataType::F16).unwrap().cast(DataType::F32).unwrap();
    let [halved, exact] =
        [("halved", halved), ("exact", f32s(&[2], &[0.1, 7.0]))].map(|(name, weight)| trace.weight(name, weight));
    let x = x.conv(&first, Some(&halved), &ConvOptions::same(1));
    let x = x.conv(&first, Some(&exact), &ConvOptions::same(1));
    trace.output("output", &x.conv(&second, None, &ConvOptions::same(1)));
    let model = trace.finish().unwrap();
    let [first, second, _] = [0, 1, 2].map(|place| model.nodes[place].name.clone());
    let made = weights_in_half(&model, DataType::F16, &[first, second].into()).unwrap();
    // A weight that two layers read is stored once.
    assert_eq!(operators(&made), ["Cast", "Cast", "Conv", "Conv", "Conv"]);
    let types: BTreeMap<_, _> = made.weights.iter().map(|(name, weight)| (name.as_str(), weight.data_type())).collect();
    let expected = [
        ("exact", DataType::F32),
        ("first.weight/f16", DataType::F16),
        ("halved/f16", DataType::F16),
        ("second.weight", DataType::F32),
    ];
    assert_eq!(types, BTreeMap::from(expected));
    assert_eq!(type_of(&made, &made.nodes[4].inputs[1]), DataType::F32);
    assert_eq!(made.weights["halved/f16"].to_f32s().unwrap(), model.weights["halved"].to_f32s().unwrap());
}

#[test]
fn half_precision_is_cast_at_the_ends_and_around_fp32_nodes() {
    let model = convolutions();
    for half in [DataType::F16, DataType::Bf16] {
        let made = to_half(&model, half, &[false; 3]).unwrap();
        assert_eq!(operators(&made), ["Cast", "Conv", "Relu", "Conv", "Cast"]);
        assert!(made.weights.values().all(|weight| weight.data_type() == half));
        assert_eq!(["image", "output"].map(|name| type_of(&made, name)), [DataType::F32; 2]);
        let [opset, old] = [&made, &model].map(|model| model.opsets[0].version);
        assert_eq!(opset, if half == DataType::Bf16 { 22 } else { old });

        let made = to_half(&model, half, &[false, true, false]).unwrap();
        assert_eq!(operators(&made), ["Cast", "Conv", "Cast", "Relu", "Cast", "Conv", "Cast"]);
        assert_eq!(["first/Conv", "first/Relu"].map(|name| type_of(&made, name)), [half, DataType::F32]);
    }
    let error = to_half(&model, DataType::F16, &[false]).unwrap_err().to_string();
    assert!(error.contains("expected a precision for each of 3 nodes, found 1"), "{error}");
}

#[test]
fn an_emulation_is_fp32_and_rounds_every_value_once() {
    let half = to_half(&convolutions(), DataType::F16, &[false; 3]).unwrap();
    let made = rounding_to(&half, DataType::F16).unwrap();
    // Input and three nodes each become FP16 and FP32 again; the last Cast of the half-precision graph stays.
    assert_eq!(operators(&made).iter().filter(|operator| **operator == "Cast").count(), 2 * 4 + 1);
    for node in made.nodes.iter().filter(|node| node.operator != "Cast") {
        assert!(reads(node).all(|value| type_of(&made, value) == DataType::F32), "{node:?}");
    }
    let [stored, rounded] = [f32s(&[1], &[0.3]).cast(DataType::F16).unwrap(), made.weights[0].clone()];
    assert_eq!(stored.to_f32s().unwrap()[0], rounded.to_f32s().unwrap()[0]);
}

/// A convolution plus the image with the channels `indices`.
fn enlarged(indices: &[i64], added_to_convolution: bool) -> Model {
    let trace = Trace::new("enlarged", 9, 20);
    let image = trace.input("image", TensorType::new(DataType::F32, [1, 2, 4, 4]));
    let weight = trace.weight("weight", f32s(&[4, 2, 1, 1], &[0.1; 8]));
    let bytes: Vec<u8> = indices.iter().flat_map(|index| index.to_le_bytes()).collect();
    let indices = trace.weight("indices", Weight::from_bytes(DataType::I64, vec![4], bytes).unwrap());
    let repeated = trace.node("Gather", &[&image, &indices], [("axis", Attribute::Int(1))]);
    let convolution = image.conv(&weight, None, &ConvOptions::same(1));
    let other = if added_to_convolution { convolution } else { convolution.relu() };
    trace.output("output", &(other + &repeated));
    trace.finish().unwrap()
}

#[test]
fn repeated_channels_become_filters_with_a_single_1() {
    let made = repeated_channels_as_convolutions(&enlarged(&[0, 1, -1, -2], true)).unwrap();
    let filters = made.weights.iter().find(|(name, _)| name.ends_with("/filters")).unwrap().1;
    assert_eq!(filters.dims(), [4, 2, 1, 1]);
    assert_eq!(filters.to_f32s().unwrap(), [1., 0., 0., 1., 0., 1., 1., 0.]);
    assert!(!operators(&made).contains(&"Gather"));
    // Height and width are free in graphs for tiles of any size.
    let mut free = enlarged(&[0, 1, -1, -2], true);
    free.inputs[0].ty =
        TensorType::new(DataType::F32, [Dim::Fixed(1), Dim::Fixed(2), Dim::symbol("h"), Dim::symbol("w")]);
    free.infer_types().unwrap();
    assert_eq!(repeated_channels_as_convolutions(&free).unwrap().nodes, made.nodes);
    // An index that does not exist is left to ONNX Runtime's own message, and a sum without convolution gains nothing.
    for model in [enlarged(&[0, 1, 2, 0], true), enlarged(&[0, 1, 0, 1], false)] {
        assert_eq!(repeated_channels_as_convolutions(&model).unwrap().nodes, model.nodes);
    }
}

/// A convolution of an image that was enlarged by `factor`.
fn convolution_of_enlarged(factor: usize, options: &ConvOptions, kernel: usize) -> Model {
    let trace = Trace::new("upsampled", 9, 20);
    let image = trace.input("image", TensorType::new(DataType::F32, [1, 2, 4, 5]));
    let values: Vec<f32> = (0..2 * kernel * kernel).map(|value| value as f32).collect();
    let filters = trace.weight("filters", f32s(&[1, 2, kernel, kernel], &values));
    trace.output("output", &image.upsample_nearest(factor).conv(&filters, None, options));
    trace.finish().unwrap()
}

#[test]
fn a_convolution_of_an_enlarged_image_is_four_of_the_small_one() {
    let model = convolution_of_enlarged(2, &ConvOptions::same(3), 3);
    assert_eq!(upsampled_convolutions_as_phases(&model, 3).unwrap().nodes, model.nodes, "it has 2 channels");
    let made = upsampled_convolutions_as_phases(&model, 2).unwrap();
    assert_eq!(operators(&made), ["Conv", "Conv", "Conv", "Conv", "Concat", "DepthToSpace"]);
    assert_eq!(made.outputs[0].ty.fixed_dims().unwrap(), [1, 1, 8, 10]);
    let filters = |phase: usize| made.weights[&made.nodes[phase].inputs[1]].to_f32s().unwrap();
    // Of 0 … 8: an even row meets the pixel above with its first taps, an odd one the pixel below with its last.
    assert_eq!(filters(0)[..4], [0.0, 1.0 + 2.0, 3.0 + 6.0, 4.0 + 5.0 + 7.0 + 8.0]);
    assert_eq!(filters(3)[..4], [0.0 + 1.0 + 3.0 + 4.0, 2.0 + 5.0, 6.0 + 7.0, 8.0]);
    for (factor, options, kernel) in [
        (4, ConvOptions::same(3), 3),
        (2, ConvOptions::same(1), 1),
        (2, ConvOptions::same_dilated([3; 2], 2), 3),
        (2, ConvOptions { pads: vec![0; 4], ..ConvOptions::same(3) }, 3),
        (2, ConvOptions { strides: vec![2; 2], ..ConvOptions::same(3) }, 3),
    ] {
        let model = convolution_of_enlarged(factor, &options, kernel);
        assert_eq!(upsampled_convolutions_as_phases(&model, 2).unwrap().nodes, model.nodes, "{factor} {options:?}");
    }
}

#[test]
fn layers_have_a_constant_weight_and_read_activations() {
    let model = convolutions();
    assert_eq!(layers(&model), ["first/Conv", "second/Conv"]);
    let other = |change: &dyn Fn(&mut Node)| {
        let mut node = model.nodes[0].clone();
        change(&mut node);
        is_layer(&model, &node)
    };
    assert!(other(&|_| {}));
    assert!(!other(&|node| node.inputs[1] = "image".into()));
    assert!(!other(&|node| node.inputs[0] = "second.weight".into()));
    assert!(!other(&|node| node.domain = "com.microsoft".into()));
    assert!(!other(&|node| node.operator = "MatMul".into()));
}

#[test]
fn segments_follow_each_other_and_keep_what_is_read_later() {
    let model = convolutions();
    let whole = segments(&model, usize::MAX);
    assert_eq!((whole.len(), kept_bytes(&model, &whole)), (1, 0));
    // Every value takes 2 · 4 · 4 · 4 bytes.
    let cut = segments(&model, 128);
    let names = |segment: &Segment| operators(&segment.model).join(" ");
    assert_eq!(cut.iter().map(names).collect::<Vec<_>>(), ["Conv", "Relu", "Conv"]);
    let kept: Vec<Vec<&str>> = cut.iter().map(|segment| segment.kept.iter().map(String::as_str).collect()).collect();
    assert_eq!(kept, [vec!["first/Conv", "first/Relu"], vec!["first/Relu"], vec![]]);
    assert_eq!(kept_bytes(&model, &cut), 256);
}
