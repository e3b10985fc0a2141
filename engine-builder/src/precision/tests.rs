//! The graphs that recipes make of a few layers, with given statistics instead of measured ones.

use super::RangeMethod;
use super::islands::{outside_f16, touching};
use super::quality::emulation;
use super::recipe::{Recipe, default_layers, for_cpu};
use super::statistics::Histograms;
use crate::Result;
use std::collections::BTreeSet;
use tileforge_contract::Precision;
use tileforge_contract::Provider;
use tileforge_graph::rewrite::Scheme;
use tileforge_graph::{Attribute, ConvOptions, DataType, Model, Node, TensorType, Trace, Weight, WeightStorage, save};
use tileforge_session::{Cancel, Session, SessionOptions, Tensor};

pub(super) const LAYERS: [&str; 4] = ["enter", "grow", "shrink", "leave"];

pub(super) fn f32s(dims: &[usize], values: &[f32]) -> Weight {
    Weight::from_bytes(
        DataType::F32,
        dims.to_vec(),
        values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>(),
    )
    .unwrap()
}

fn values_of(weight: &Weight) -> Vec<f32> {
    weight.cast(DataType::F32).unwrap().to_f32s().unwrap()
}

/// Four convolutions of two channels in a row. The second has these filters and this bias, the third has weights of a
/// thousandth.
pub(super) fn chain(filters: [f32; 4], bias: [f32; 2]) -> Model {
    let trace = Trace::new("chain", 9, 20);
    let mut x = trace.input("image", TensorType::new(DataType::F32, [1, 2, 4, 4]));
    for name in LAYERS {
        let size = if name == "shrink" { 1e-3 } else { 1.0 };
        let (filters, bias) = if name == "grow" {
            (filters, bias)
        } else {
            ([0.3, -0.2, 0.1, 0.4].map(|value| value * size), [0.0, 0.1])
        };
        let [filters, bias] = [("weight", &[2, 2, 1, 1][..], &filters[..]), ("bias", &[2], &bias)]
            .map(|(kind, dims, values)| trace.weight(&format!("{name}.{kind}"), f32s(dims, values)));
        x = x.conv(&filters, Some(&bias), &ConvOptions::same(1));
    }
    trace.output("upscaled", &x);
    trace.finish().unwrap()
}

/// The model with its two inner layers in 8 bits; `value` has the range `low` to `high`, and all other values −1 to 1.
fn converted(
    model: &Model,
    (precision, provider): (Precision, Provider),
    value: &str,
    [low, high]: [f32; 2],
) -> Result<Model> {
    let mut statistics = Histograms::new();
    for name in model.nodes.iter().map(|node| node.outputs[0].as_str()).chain(["image"]) {
        let extremes = if name == value { [low, high] } else { [-1.0, 1.0] };
        statistics.entry(name.to_owned()).or_default().add(&extremes);
    }
    let outside = outside_f16(model, &statistics)?;
    let recipe = Recipe { precision, provider, range: RangeMethod::MinMax, statistics, outside };
    recipe.apply(model, &["grow/Conv", "shrink/Conv"].map(str::to_owned).into())
}

#[test]
fn weights_in_fp16_lose_nothing_of_a_checkpoint_in_fp16() {
    // An enlargement whose convolution becomes one convolution for each phase, with sums of filters.
    let trace = Trace::new("enlarging", 9, 20);
    let x = trace.input("image", TensorType::new(DataType::F32, [1, 128, 4, 4]));
    let filters: Vec<f32> = (0..2 * 128 * 9).map(|place| (place as f32 * 0.37).sin()).collect();
    let stored = f32s(&[2, 128, 3, 3], &filters).cast(DataType::F16).unwrap().cast(DataType::F32).unwrap();
    let filters = trace.weight("filters", stored);
    let last = trace.weight("last", f32s(&[2, 2, 1, 1], &[0.1, 0.2, 0.3, 0.4]));
    let x = x.upsample_nearest(2).conv(&filters, None, &ConvOptions::same(3));
    trace.output("upscaled", &x.conv(&last, None, &ConvOptions::same(1)));
    let model = trace.finish().unwrap();
    let (precision, none) = (Precision::Fp16Weights, BTreeSet::new());
    let recipe = |provider| {
        let (range, statistics, outside) = (RangeMethod::MinMax, Histograms::new(), BTreeSet::new());
        Recipe { precision, provider, range, statistics, outside }
    };
    let made = recipe(Provider::Cpu).apply(&model, &none).unwrap();
    let phases: Vec<_> = made.weights.iter().filter(|(name, _)| name.starts_with("filters")).collect();
    assert_eq!(phases.len(), 4);
    assert!(phases.iter().all(|(_, weight)| weight.data_type() == DataType::F32), "{phases:?}");
    // For a provider without this form, weights stay as stored. FP32 weights of the checkpoint are rounded.
    let plain = recipe(Provider::OpenVino).apply(&model, &none).unwrap();
    let found =
        |model: &Model, name: &str| model.weights.iter().find(|(found, _)| found.starts_with(name)).unwrap().1.clone();
    let filters = found(&plain, "filters");
    assert_eq!((filters.data_type(), values_of(&filters)), (DataType::F16, values_of(&model.weights["filters"])));
    for model in [&made, &plain] {
        assert_eq!(found(model, "last").data_type(), DataType::F16);
    }
}

const FOR_GPUS: [(Precision, Provider); 2] =
    [(Precision::Int8, Provider::TensorRt), (Precision::Fp8, Provider::TensorRt)];

fn quantised_nodes(model: &Model) -> impl Iterator<Item = &Node> {
    model.nodes.iter().filter(|node| matches!(node.operator.as_str(), "QuantizeLinear" | "DequantizeLinear"))
}

#[test]
fn scales_are_normal_numbers_of_fp16() {
    // A filter of zeros beside one of small weights, after an activation of zeros.
    let filters = [0.0, 0.0, 0.013, -0.005];
    let model = chain(filters, [0.5, 0.0]);
    for target in FOR_GPUS {
        let made = converted(&model, target, "enter/Conv", [0.0, 0.0]).unwrap();
        let scales: Vec<&Weight> = quantised_nodes(&made).map(|node| &made.weights[&node.inputs[1]]).collect();
        // Two activations, quantised and dequantised, and two weights.
        assert_eq!(scales.len(), 6);
        for scales in &scales {
            assert_eq!(scales.data_type(), DataType::F16);
            assert!(values_of(scales).iter().all(|scale| *scale >= 2_f32.powi(-14)), "{:?}", values_of(scales));
        }
        assert_eq!(crate::lint::lint(&made, crate::lint::Target::TensorRt10).errors().count(), 0);
        if target.0 == Precision::Int8 {
            let of_filters =
                |node: &&Node| made.weights.get(&node.inputs[0]).is_some_and(|values| values.dims() == [2, 2, 1, 1]);
            let node = quantised_nodes(&made).find(of_filters).unwrap();
            let (values, scales) =
                (made.weights[&node.inputs[0]].to_bytes().unwrap(), values_of(&made.weights[&node.inputs[1]]));
            for (at, (quantised, value)) in values.iter().zip(filters).enumerate() {
                let (scale, found) = (scales[at / 2], f32::from(*quantised as i8) * scales[at / 2]);
                assert!((found - value).abs() <= 0.5 * scale, "{value} as {quantised} of {scale}");
            }
        }
    }
}

#[test]
fn values_that_fp16_cannot_hold_are_quantised_from_fp32_and_dequantised_to_it() {
    let model = chain([0.3; 4], [0.0; 2]);
    for target in FOR_GPUS {
        let made = converted(&model, target, "grow/Conv", [-1e5, 1e5]).unwrap();
        let found = |operator: &str, input: &str| {
            let reads = |node: &&Node| node.operator == operator && node.inputs[0] == input;
            made.nodes
                .iter()
                .find(reads)
                .unwrap_or_else(|| panic!("no {operator} of {input} in {:?}", made.nodes))
                .clone()
        };
        let quantise = found("QuantizeLinear", "grow/Conv");
        let dequantise = found("DequantizeLinear", &quantise.outputs[0]);
        let type_of = |name: &str| made.type_of(name).unwrap().data_type;
        let types = ["grow/Conv", &quantise.inputs[1], &dequantise.inputs[1], &dequantise.outputs[0], "shrink/Conv"]
            .map(type_of);
        assert_eq!(types, [DataType::F32; 5]);
        // The weights that scale such values back are below FP16's normal numbers.
        let weight = made.nodes.iter().find(|node| node.outputs[0] == "shrink.weight/DequantizeLinear").unwrap();
        let scales = values_of(&made.weights[&weight.inputs[1]]);
        assert!(type_of(&weight.inputs[1]) == DataType::F32 && scales.iter().all(|scale| *scale < 1e-5), "{scales:?}");
        // Values that FP16 can hold stay in FP16.
        assert_eq!(type_of(&found("QuantizeLinear", "enter/Conv").inputs[1]), DataType::F16);
        assert_eq!(type_of("enter/Conv"), DataType::F16);
    }
}

#[test]
fn a_channel_of_zero_weights_keeps_its_bias() {
    for bias in [[0.5, -0.25], [1e4, -1e-6]] {
        let model = chain([0.0, 0.0, 1e-30, 0.0], bias);
        for range in [[-1.0, 1.0], [0.0, 0.0]] {
            let made = converted(&model, (Precision::Int8, Provider::Cpu), "enter/Conv", range).unwrap();
            let layer = made.nodes.iter().find(|node| node.name == "grow/Conv").unwrap();
            let source = |input: usize| made.nodes.iter().find(|node| node.outputs[0] == layer.inputs[input]).unwrap();
            let scales = [0, 1, 2].map(|input| values_of(&made.weights[&source(input).inputs[1]]));
            let values = made.weights[&source(2).inputs[0]].to_bytes().unwrap();
            for (channel, bytes) in values.chunks_exact(4).enumerate() {
                let quantised = i32::from_le_bytes(bytes.try_into().unwrap());
                // Kernels use the product of the scales as the scale of the bias.
                let scale = f64::from(scales[0][0]) * f64::from(scales[1][channel]);
                assert!((scale / f64::from(scales[2][channel]) - 1.0).abs() < 1e-6, "{scales:?}");
                let error = (f64::from(quantised) * scale - f64::from(bias[channel])).abs();
                assert!(error <= 1e-6 * f64::from(bias[channel].abs()), "{quantised} of {scale} for {}", bias[channel]);
                assert!(quantised.unsigned_abs() <= 1 << 30);
            }
        }
    }
}

#[test]
fn a_weight_with_nan_is_named() {
    let model = chain([0.3, f32::NAN, 0.2, 0.1], [0.0; 2]);
    for target in [FOR_GPUS[0], FOR_GPUS[1], (Precision::Int8, Provider::Cpu)] {
        let error = converted(&model, target, "", [0.0; 2]).unwrap_err().to_string();
        assert!(error.contains("`grow.weight`: found values that are infinite or NaN"), "{error}");
    }
}

#[test]
fn tokens_are_never_in_fp16() {
    let trace = Trace::new("tokens", 9, 20);
    let ids = trace.input("ids", TensorType::new(DataType::I64, [1, 4]));
    let table = trace.weight("table.weight", f32s(&[3, 2], &[0.1; 6]));
    trace.output("embeddings", &table.gather_by(&ids, 0).scale(2.0));
    let model = trace.finish().unwrap();
    let mut statistics = Histograms::new();
    statistics.entry("ids".into()).or_default().add(&[49_407.0]);
    assert_eq!(outside_f16(&model, &statistics).unwrap(), BTreeSet::new());
    let made = model.nodes[0].outputs[0].clone();
    statistics.entry(made.clone()).or_default().add(&[49_407.0]);
    let outside = outside_f16(&model, &statistics).unwrap();
    assert_eq!(outside, BTreeSet::from([made]));
    assert!(touching(&model, &outside).contains(&model.nodes[0].name));
}

/// Scale and zero point of the QuantizeLinear that reads a value.
fn quantisation(model: &Model, value: &str) -> (DataType, f32, DataType, Vec<u8>) {
    let reads = |node: &&Node| node.operator == "QuantizeLinear" && node.inputs[0] == value;
    let node = model.nodes.iter().find(reads).unwrap_or_else(|| panic!("nothing quantises {value}"));
    let [scale, zero_point] = [1, 2].map(|input| &model.weights[&node.inputs[input]]);
    let zeros = zero_point.to_bytes().unwrap().into_owned();
    (scale.data_type(), values_of(scale)[0], zero_point.data_type(), zeros)
}

#[test]
fn a_measured_range_becomes_scale_and_zero_point() {
    let model = chain([0.3; 4], [0.0; 2]);
    let half = |scale: f32| half::f16::from_f32(scale).to_f32();
    for ([low, high], scale, zero_point) in
        [([-1.0, 3.0], 4.0 / 255.0, 64), ([-3.0, 1.0], 4.0 / 255.0, 191), ([0.0, 2.0], 2.0 / 255.0, 0)]
    {
        let made = converted(&model, (Precision::Int8, Provider::Cpu), "enter/Conv", [low, high]).unwrap();
        assert_eq!(quantisation(&made, "enter/Conv"), (DataType::F32, scale, DataType::U8, vec![zero_point]));
        let most = high.max(-low);
        for (target, (scale, data_type)) in
            FOR_GPUS.into_iter().zip([(most / 127.0, DataType::I8), (most / 448.0, DataType::F8E4M3)])
        {
            let made = converted(&model, target, "enter/Conv", [low, high]).unwrap();
            assert_eq!(quantisation(&made, "enter/Conv"), (DataType::F16, half(scale), data_type, vec![0]));
        }
    }
}

fn recipe(precision: Precision, provider: Provider) -> Recipe {
    let (statistics, outside) = (Histograms::new(), BTreeSet::new());
    Recipe { precision, provider, range: RangeMethod::MinMax, statistics, outside }
}

pub(super) fn names<'a>(layers: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
    layers.into_iter().map(|layer| format!("{layer}/Conv")).collect()
}

#[test]
fn ends_stay_out_of_8_bits_but_for_a_residual() {
    let model = chain([0.3; 4], [0.0; 2]);
    let layers = |model: &Model, scheme| {
        default_layers(model, scheme, Provider::Cpu).unwrap().into_iter().collect::<BTreeSet<_>>()
    };
    assert_eq!(layers(&model, Scheme::Unsigned), names(["enter", "grow", "shrink"]));
    assert_eq!(layers(&model, Scheme::Signed), names(["grow", "shrink"]));
    assert_eq!(layers(&model, Scheme::Float8), names(["grow", "shrink"]));
    // The image is added to the output of the last layer; in the second case it is multiplied.
    for (last, expected) in [("Add", &LAYERS[..]), ("Mul", &LAYERS[..3])] {
        let mut model = model.clone();
        let node = |name: &str, operator: &str, inputs: [&str; 2], output: &str| Node {
            name: name.into(),
            operator: operator.into(),
            domain: String::new(),
            inputs: inputs.map(str::to_owned).into(),
            outputs: vec![output.into()],
            attributes: Default::default(),
        };
        let made = std::mem::replace(&mut model.nodes[3].outputs[0], "residual".into());
        model.nodes.push(node("end", last, ["residual", "image"], &made));
        assert_eq!(layers(&model, Scheme::Unsigned), names(expected.iter().copied()), "{last}");
        assert_eq!(layers(&model, Scheme::Signed), names(["grow", "shrink"]));
    }
}

#[test]
fn layers_that_plans_compute_in_more_bits_stay_out_of_8() {
    // Inner layers with filters of 3×3 and 5×5, and one behind global pooling.
    let trace = Trace::new("sizes", 9, 20);
    let mut x = trace.input("image", TensorType::new(DataType::F32, [1, 1, 8, 8]));
    for (name, side) in [("enter", 1), ("small", 3), ("large", 5), ("leave", 1)] {
        let filters = trace.weight(&format!("{name}.weight"), f32s(&[1, 1, side, side], &vec![0.1; side * side]));
        if name == "leave" {
            let one = trace.weight("pooled.weight", f32s(&[1, 1, 1, 1], &[0.5]));
            let pooled = x.global_average_pool().conv(&one, None, &ConvOptions::same(1));
            x = &x * &pooled;
        }
        x = x.conv(&filters, None, &ConvOptions::same(side));
    }
    trace.output("upscaled", &x);
    let model = trace.finish().unwrap();
    let chosen = |scheme, provider| default_layers(&model, scheme, provider).unwrap();
    assert_eq!(chosen(Scheme::Signed, Provider::TensorRt), ["small/Conv", "large/Conv", "pooled/Conv"]);
    assert_eq!(chosen(Scheme::Signed, Provider::TensorRtRtx), ["small/Conv", "large/Conv"]);
    assert_eq!(chosen(Scheme::Float8, Provider::TensorRtRtx), ["small/Conv"]);
    assert_eq!(chosen(Scheme::Float8, Provider::TensorRt), ["small/Conv", "large/Conv", "pooled/Conv"]);
}

#[test]
fn a_recipe_knows_its_layers() {
    let model = chain([0.3; 4], [0.0; 2]);
    let chosen = names(["grow", "shrink"]);
    let (eight, sixteen) = (recipe(Precision::Int8, Provider::Cpu), recipe(Precision::Fp16, Provider::TensorRt));
    assert!(eight.is_8_bits() && recipe(Precision::Fp8, Provider::TensorRt).is_8_bits() && !sixteen.is_8_bits());
    let set = |recipe: &Recipe| recipe.layers(&model, &chosen).into_iter().collect::<BTreeSet<_>>();
    assert_eq!((set(&eight), set(&sixteen)), (chosen.clone(), names(LAYERS)));
    // In 16 bits, every other node is in FP32.
    let made = sixteen.only(&model, &["grow/Conv".to_owned()]).unwrap();
    let type_of = |made: &Model, layer: &str| {
        let node = made.nodes.iter().find(|node| node.name == format!("{layer}/Conv")).unwrap();
        made.type_of(&node.inputs[1]).unwrap().data_type
    };
    let [half, full] = [DataType::F16, DataType::F32];
    assert_eq!(LAYERS.map(|layer| type_of(&made, layer)), [full, half, full, full]);
    // The named nodes are in FP32, and the nodes with values that FP16 cannot hold.
    let outside = BTreeSet::from(["shrink.weight".to_owned()]);
    let recipe = Recipe { outside, ..sixteen };
    for named in [names(["grow"]), names(["grow", "shrink"])] {
        let made = recipe.apply(&model, &named).unwrap();
        assert_eq!(LAYERS.map(|layer| type_of(&made, layer)), [half, full, full, half]);
    }
}

#[test]
fn inputs_and_floating_point_numbers_keep_their_whole_range() {
    let model = chain([0.3; 4], [0.0; 2]);
    let values: Vec<f32> = (0..100_000).map(|at| at as f32 / 100_000.0).chain([8.0]).collect();
    let mut statistics = Histograms::new();
    for name in model.nodes.iter().map(|node| node.outputs[0].as_str()).chain(["image"]) {
        statistics.entry(name.to_owned()).or_default().add(&values);
    }
    let of = |(precision, provider), value| {
        let (statistics, outside) = (statistics.clone(), BTreeSet::new());
        let recipe = Recipe { precision, provider, range: RangeMethod::Percentile, statistics, outside };
        let made = recipe.apply(&model, &names(LAYERS)).unwrap();
        quantisation(&made, value).1
    };
    let close = |found: f32, expected: f32| assert!((found / expected - 1.0).abs() < 0.01, "{found} {expected}");
    let cpu = (Precision::Int8, Provider::Cpu);
    // On processors, layers read the padded image, and quantise what they make.
    close(of(cpu, "image/Pad"), 8.0 / 255.0);
    close(of(cpu, "enter/Conv/exact"), 1.0 / 255.0);
    close(of((Precision::Fp8, Provider::TensorRt), "enter/Conv"), 8.0 / 448.0);
}

#[test]
fn what_processors_do_not_round_is_rounded_for_the_gates() {
    let model = chain([0.3; 4], [0.0; 2]);
    let emulated = |precision, provider| {
        let made = recipe(precision, provider).apply(&model, &BTreeSet::new()).unwrap();
        emulation(&made, provider).unwrap().map(|model| run(&model))
    };
    assert_eq!(emulated(Precision::Fp32, Provider::TensorRt), None);
    assert_eq!(emulated(Precision::Fp16, Provider::Cpu), None);
    let exact = run(&model);
    let error = |found: ndarray::ArrayD<f32>| (&found - &exact).mapv(f32::abs).into_iter().fold(0.0, f32::max);
    let half = error(emulated(Precision::Fp16, Provider::TensorRt).expect("it is rounded"));
    for provider in [Provider::Cpu, Provider::TensorRt] {
        let bf16 = error(emulated(Precision::Bf16, provider).expect("it is rounded"));
        assert!(half > 1e-6 && bf16 > 3.0 * half && bf16 < 1e-2, "{half} {bf16}");
    }
}

#[test]
fn values_are_outside_fp16_beyond_its_largest_number() {
    let model = chain([0.3; 4], [0.0; 2]);
    let outside = |model: &Model, value: f32| {
        let mut statistics = Histograms::new();
        statistics.entry("grow/Conv".into()).or_default().add(&[value]);
        outside_f16(model, &statistics).unwrap().into_iter().collect::<Vec<_>>()
    };
    // Other pictures may have values that are twice as large.
    assert_eq!(outside(&model, 32_752.0), Vec::<String>::new());
    assert_eq!(outside(&model, -32_753.0), ["grow/Conv"]);
    let with = |values: &[f32]| {
        let mut model = model.clone();
        model.weights.insert("more".into(), f32s(&[values.len()], values));
        outside(&model, 1.0)
    };
    assert_eq!((with(&[]), with(&[65_504.0])), (vec![], vec![]));
    assert_eq!(with(&[1.0, -65_536.0]), ["more"]);
}

/// The outputs of a model of one input for fixed input values.
fn run(model: &Model) -> ndarray::ArrayD<f32> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    save(model, &path, WeightStorage::Inline).unwrap();
    let mut session = Session::open(&crate::tests::environment(), &path, &SessionOptions::default()).unwrap();
    let dims = model.inputs[0].ty.fixed_dims().unwrap();
    let values = (0..dims.iter().product()).map(|at: usize| ((at * 37) % 101) as f32 / 50.0 - 1.0).collect();
    let values: Tensor = ndarray::ArrayD::from_shape_vec(dims, values).unwrap().into();
    session.run(&[(&model.inputs[0].name, &values)], &Cancel::new()).unwrap().remove(0).1.into_f32().unwrap()
}

#[test]
fn the_forms_for_cpus_compute_the_same() {
    let operators = |model: &Model| model.nodes.iter().map(|node| node.operator.clone()).collect::<Vec<_>>();
    let values = |count: usize| (0..count).map(|at| ((at * 29) % 17) as f32 / 17.0 - 0.4).collect::<Vec<_>>();
    let trace = Trace::new("upsampled", 9, 20);
    let image = trace.input("image", TensorType::new(DataType::F32, [2, 128, 5, 7]));
    let filters = trace.weight("filters", f32s(&[4, 128, 3, 3], &values(4 * 128 * 9)));
    let bias = trace.weight("bias", f32s(&[4], &values(4)));
    trace.output("enlarged", &image.upsample_nearest(2).conv(&filters, Some(&bias), &ConvOptions::same(3)));
    let model = trace.finish().unwrap();
    let made = for_cpu(&model).unwrap();
    assert!(!operators(&made).contains(&"Resize".to_owned()));
    let (expected, found) = (run(&model), run(&made));
    assert_eq!(found.shape(), [2, 4, 10, 14]);
    let largest = |values: ndarray::ArrayD<f32>| values.mapv(f32::abs).into_iter().fold(0.0, f32::max);
    let worst = largest(&expected - &found) / largest(expected);
    assert!(worst < 1e-6, "{worst}");

    let attention = |heads: i64, is_causal: i64| {
        let trace = Trace::new("attention", 9, 23);
        let x = trace.input("x", TensorType::new(DataType::F32, [1, 9, 8]));
        let attributes = [("q_num_heads", heads), ("kv_num_heads", heads), ("is_causal", is_causal)];
        let attributes = attributes.map(|(name, value)| (name, Attribute::from(value)));
        trace.output("seen", &trace.node("Attention", &[&x, &x, &x], attributes));
        trace.finish().unwrap()
    };
    let (model, made) = (attention(1, 0), for_cpu(&attention(1, 0)).unwrap());
    assert!(!operators(&made).contains(&"Attention".to_owned()));
    assert_eq!(run(&model), run(&made));
    for kept in [attention(2, 0), attention(1, 1)] {
        assert_eq!(for_cpu(&kept).unwrap().nodes, kept.nodes);
    }
}

#[test]
fn angles_of_sines_stay_in_fp32() {
    let trace = Trace::new("embedding", 9, 20);
    let steps = trace.input("timestep", TensorType::new(DataType::F32, [1, 2]));
    let weights = trace.weight("layer", f32s(&[2, 2], &[0.1, 0.2, 0.3, 0.4]));
    let angles = trace.node("MatMul", &[&steps, &weights], []).scale_channels(0.9);
    trace.output("embedding", &trace.node("MatMul", &[&angles.sin(), &weights], []));
    let made = super::recipe::half(&trace.finish().unwrap(), DataType::F16, &BTreeSet::new()).unwrap();
    let types: Vec<(&str, DataType)> = made
        .nodes
        .iter()
        .filter(|node| node.operator != "Cast")
        .map(|node| (node.operator.as_str(), made.type_of(&node.outputs[0]).unwrap().data_type))
        .collect();
    // The layers at both ends are in FP16; what lies between the first and the sine is not.
    let [half, full] = [DataType::F16, DataType::F32];
    assert_eq!(types, [("MatMul", half), ("BatchNormalization", full), ("Sin", full), ("MatMul", half)]);
}
