//! Scales and zero points of the emitted graph for known ranges.

use super::*;
use crate::{ConvOptions, Model, Node, TensorType, Trace, Weight};
use half::f16;
use std::collections::BTreeSet;

fn f32s(dims: &[usize], values: &[f32]) -> Weight {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Weight::from_bytes(DataType::F32, dims.to_vec(), bytes).unwrap()
}

/// The filters of the middle one of three convolutions. The largest weights of its channels are 1.27 and 2.54.
const FILTERS: [f32; 4] = [0.5, -1.27, 2.54, 0.1];
const BIAS: [f32; 2] = [0.25, -1.0];

fn model() -> Model {
    let trace = Trace::new("chain", 9, 20);
    let mut x = trace.input("image", TensorType::new(DataType::F32, [1, 2, 4, 4]));
    for name in ["enter", "inner", "leave"] {
        let weight = trace.weight(&format!("{name}.weight"), f32s(&[2, 2, 1, 1], &FILTERS));
        let bias = trace.weight(&format!("{name}.bias"), f32s(&[2], &BIAS));
        x = x.conv(&weight, Some(&bias), &ConvOptions::same(1));
    }
    trace.output("output", &x);
    trace.finish().unwrap()
}

fn quantised(scheme: Scheme) -> Model {
    quantised_with(scheme, ChannelScales::InWeights)
}

/// The model with the inner convolution in 8 bits. Its input reaches from −1 to 3, and its output from −0.5 to 2.
fn quantised_with(scheme: Scheme, channel_scales: ChannelScales) -> Model {
    let range = |value: &str| match value {
        "enter/Conv" => Some([-1.0, 3.0]),
        "inner/Conv" => Some([-0.5, 2.0]),
        _ => None,
    };
    let chosen = ["inner/Conv".to_owned()].into();
    quantise_layers(&model(), scheme, channel_scales, &chosen, &BTreeSet::new(), &range).unwrap()
}

fn node<'m>(model: &'m Model, operator: &str, input: &str) -> &'m Node {
    let found = model.nodes.iter().find(|node| node.operator == operator && node.inputs[0] == input);
    found.unwrap_or_else(|| panic!("no {operator} reads `{input}` in {:?}", model.nodes))
}

/// Scale and zero point of a QuantizeLinear or DequantizeLinear of an activation.
fn parameters(model: &Model, node: &Node) -> (f32, DataType, Vec<u8>) {
    let [scale, zero_point] = [1, 2].map(|input| &model.weights[&node.inputs[input]]);
    assert!(scale.dims().is_empty() && zero_point.dims().is_empty(), "{scale:?} {zero_point:?}");
    (scale.to_f32s().unwrap()[0], zero_point.data_type(), zero_point.to_bytes().unwrap().into_owned())
}

/// Scale and zero point of the pair after a value.
fn pair(model: &Model, value: &str) -> (f32, DataType, Vec<u8>) {
    let quantise = node(model, "QuantizeLinear", value);
    let dequantise = node(model, "DequantizeLinear", &quantise.outputs[0]);
    assert_eq!(parameters(model, quantise), parameters(model, dequantise));
    parameters(model, quantise)
}

/// Quantised values, scales and zero points of a weight.
fn weight(model: &Model, name: &str) -> (Vec<u8>, Vec<f32>, Vec<u8>) {
    let output = format!("{name}/DequantizeLinear");
    let node = model.nodes.iter().find(|node| node.outputs[0] == output).unwrap();
    assert_eq!(node.attributes["axis"], crate::Attribute::Int(0));
    let [values, scales, zero_points] = [0, 1, 2].map(|input| &model.weights[&node.inputs[input]]);
    assert_eq!(values.data_type(), zero_points.data_type());
    let bytes = |weight: &Weight| weight.to_bytes().unwrap().into_owned();
    (bytes(values), scales.to_f32s().unwrap(), bytes(zero_points))
}

#[test]
fn known_ranges_have_known_quantisations() {
    let half = |scale: f32| f16::from_f32(scale).to_f32();
    let smallest = f16::MIN_POSITIVE.to_f32();
    for (scheme, range, scale, zero_point) in [
        (Scheme::Unsigned, [-1.0, 3.0], 4.0 / 255.0, 64),
        (Scheme::Unsigned, [0.0, 1.0], 1.0 / 255.0, 0),
        (Scheme::Unsigned, [-1.0, 0.0], 1.0 / 255.0, 255),
        (Scheme::Unsigned, [-0.5, 2.0], 2.5 / 255.0, 51),
        (Scheme::Unsigned, [-3.0, 1.0], 4.0 / 255.0, 191),
        (Scheme::Unsigned, [0.0, 0.0], f32::MIN_POSITIVE, 0),
        (Scheme::Signed, [-3.0, 3.0], half(3.0 / 127.0), 0),
        (Scheme::Signed, [-1.0, 3.0], half(3.0 / 127.0), 0),
        (Scheme::Signed, [-3.0, 1.0], half(3.0 / 127.0), 0),
        (Scheme::Signed, [0.0, 0.0], smallest, 0),
        // Beyond FP16, scales are FP32.
        (Scheme::Signed, [-1e8, 1e8], 1e8 / 127.0, 0),
        (Scheme::Float8, [-3.0, 3.0], half(3.0 / 448.0), 0),
        (Scheme::Float8, [-448.0, 100.0], 1.0, 0),
    ] {
        let data_type = match scheme {
            Scheme::Unsigned => DataType::U8,
            Scheme::Signed => DataType::I8,
            Scheme::Float8 => DataType::F8E4M3,
        };
        assert_eq!(scheme.quantisation(range), Quantisation { scale, zero_point, data_type }, "{scheme:?} {range:?}");
    }
}

#[test]
fn activations_for_cpus_are_unsigned_with_a_zero_point() {
    let made = quantised(Scheme::Unsigned);
    assert_eq!(pair(&made, "enter/Conv"), (4.0 / 255.0, DataType::U8, vec![64]));
    assert_eq!(pair(&made, "inner/Conv/exact"), (2.5 / 255.0, DataType::U8, vec![51]));
}

#[test]
fn activations_for_gpus_are_signed_and_symmetric() {
    let half = |scale: f32| f16::from_f32(scale).to_f32();
    for (scheme, data_type, most) in [(Scheme::Signed, DataType::I8, 127.0), (Scheme::Float8, DataType::F8E4M3, 448.0)]
    {
        let made = quantised(scheme);
        assert_eq!(pair(&made, "enter/Conv"), (half(3.0 / most), data_type, vec![0]));
        // The layer's output is not quantised.
        assert_eq!(made.nodes.iter().filter(|node| node.operator == "QuantizeLinear").count(), 1);
    }
}

#[test]
fn weights_have_a_scale_for_each_output_channel() {
    let as_bytes = |values: [i8; 4]| values.map(|value| value as u8).to_vec();
    let (values, scales, zero_points) = weight(&quantised(Scheme::Unsigned), "inner.weight");
    assert_eq!((values, scales), (as_bytes([50, -127, 127, 5]), vec![1.27 / 127.0, 2.54 / 127.0]));
    assert_eq!(zero_points, [0, 0]);
    let half = |scale: f32| f16::from_f32(scale).to_f32();
    let (values, scales, zero_points) = weight(&quantised(Scheme::Signed), "inner.weight");
    assert_eq!((values, scales), (as_bytes([50, -127, 127, 5]), vec![half(1.27 / 127.0), half(2.54 / 127.0)]));
    assert_eq!(zero_points, [0, 0]);
    let (_, scales, zero_points) = weight(&quantised(Scheme::Float8), "inner.weight");
    assert_eq!((scales, zero_points), (vec![half(1.27 / 448.0), half(2.54 / 448.0)], vec![0, 0]));
}

#[test]
fn a_bias_for_cpus_has_the_scales_of_input_and_weight_multiplied() {
    let (values, scales, zero_points) = weight(&quantised(Scheme::Unsigned), "inner.bias");
    let input = 4.0_f32 / 255.0;
    assert_eq!(scales, [1.27 / 127.0 * input, 2.54 / 127.0 * input]);
    // 0.25 / (0.01 · 4 / 255) = 1593.75, and −1 / (0.02 · 4 / 255) = −3187.5.
    let values: Vec<i32> = values.chunks_exact(4).map(|b| i32::from_le_bytes(b.try_into().unwrap())).collect();
    assert!(values[0] == 1594 && (values[1] == -3187 || values[1] == -3188), "{values:?}");
    assert_eq!(zero_points, [0; 8]);
}

#[test]
fn weights_alone_are_signed_with_a_scale_for_each_output_channel() {
    let made = quantise_weights(&model(), &["enter/Conv".to_owned()].into()).unwrap();
    let (values, scales, zero_points) = weight(&made, "inner.weight");
    assert_eq!(values, [50_i8, -127, 127, 5].map(|value| value as u8));
    assert_eq!((scales, zero_points), (vec![1.27 / 127.0, 2.54 / 127.0], vec![0, 0]));
    assert!(made.weights["enter.weight"].data_type() == DataType::F32);
}

#[test]
fn a_value_of_unknown_range_is_named() {
    let none = |_: &str| None;
    let chosen = ["inner/Conv".to_owned()].into();
    for scheme in [Scheme::Unsigned, Scheme::Signed, Scheme::Float8] {
        let error = quantise_layers(&model(), scheme, ChannelScales::InWeights, &chosen, &BTreeSet::new(), &none);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("expected the range of `enter/Conv`"), "{error}");
    }
}

#[test]
fn scales_of_channels_can_be_behind_a_convolution() {
    let f32s = |model: &Model, name: &str| model.weights[name].to_f32s().unwrap();
    for (scheme, most) in [(Scheme::Signed, 127.0), (Scheme::Float8, 448.0)] {
        let plain = quantised(scheme);
        let made = quantised_with(scheme, ChannelScales::BehindLayers);
        let one = made.nodes.iter().find(|node| node.outputs[0] == "inner.weight/DequantizeLinear").unwrap();
        assert!(!one.attributes.contains_key("axis"));
        let [values, scale, zero_point] = [0, 1, 2].map(|input| &made.weights[&one.inputs[input]]);
        assert!(scale.dims().is_empty() && zero_point.dims().is_empty());
        // The quantised weights are those with a scale for each channel.
        assert_eq!(values.to_bytes().unwrap().into_owned(), weight(&plain, "inner.weight").0, "{scheme:?}");
        let scale = scale.to_f32s().unwrap()[0];
        assert_eq!(scale, f16::from_f32(1.27 / most).to_f32());
        // Convolution without bias, its channels' factors, and the bias; the output keeps its name.
        let convolution = made.nodes.iter().find(|node| node.name == "inner/Conv").unwrap();
        assert_eq!(convolution.inputs.len(), 2);
        let product = node(&made, "Mul", &convolution.outputs[0]);
        let factors = &made.weights[&product.inputs[1]];
        assert_eq!((factors.dims(), f32s(&made, &product.inputs[1])), (&[1, 2, 1, 1][..], vec![1.0, 2.0]));
        let sum = node(&made, "Add", &product.outputs[0]);
        assert_eq!(
            (made.weights[&sum.inputs[1]].dims(), f32s(&made, &sum.inputs[1])),
            (&[1, 2, 1, 1][..], BIAS.into())
        );
        let output = &plain.nodes.iter().find(|node| node.name == "inner/Conv").unwrap().outputs[0];
        assert_eq!(&sum.outputs[0], output);
    }
    // Kernels for processors fuse what is in the weights.
    let [in_weights, behind] =
        [ChannelScales::InWeights, ChannelScales::BehindLayers].map(|scales| quantised_with(Scheme::Unsigned, scales));
    assert_eq!(in_weights.nodes, behind.nodes);
}

#[test]
fn a_channel_of_weights_near_0_does_not_shrink_the_values_of_the_others() {
    let trace = Trace::new("dead", 9, 20);
    let x = trace.input("image", TensorType::new(DataType::F32, [1, 2, 4, 4]));
    let weight = trace.weight("weight", f32s(&[2, 2, 1, 1], &[1e-9, 0.0, 2.54, 0.5]));
    trace.output("output", &x.conv(&weight, None, &ConvOptions::same(1)));
    let model = trace.finish().unwrap();
    let chosen = model.nodes.iter().map(|node| node.name.clone()).collect();
    let range = |_: &str| Some([-1.0, 1.0]);
    let behind = ChannelScales::BehindLayers;
    let made = quantise_layers(&model, Scheme::Signed, behind, &chosen, &BTreeSet::new(), &range).unwrap();
    let weight_of = |operator: &str, input: usize| {
        let found =
            made.nodes.iter().find(|node| node.operator == operator && made.weights.contains_key(&node.inputs[input]));
        made.weights[&found.unwrap().inputs[input]].to_f32s().unwrap()
    };
    let factors = weight_of("Mul", 1);
    assert!((255.0..=257.0).contains(&factors[1]) && factors[0] <= 1.0, "{factors:?}");
    // Without a bias, the Mul makes the output.
    assert!(!made.nodes.iter().any(|node| node.operator == "Add"));
}
