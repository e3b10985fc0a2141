//! `engine-builder convert`: graphs in fewer bits without calibration and without gates.

use end_to_end::{run, words};
use std::collections::BTreeMap;
use tileforge_exporter::{Checkpoint, arch::registry, export, synthesise};
use tileforge_graph::{DataType, WeightStorage, save};

#[test]
fn a_graph_of_every_architecture_converts_alone() {
    let work = tempfile::tempdir().unwrap();
    let [path, converted] = ["graph.onnx", "half.onnx"].map(|name| work.path().join(name));
    for entry in registry() {
        let checkpoint = work.path().join("checkpoint.safetensors");
        let (_, tiny) = entry.presets().into_iter().find(|(name, _)| *name == "tiny").unwrap();
        synthesise(tiny.as_ref(), DataType::F32, 1, &checkpoint).unwrap();
        let checkpoint = Checkpoint::open(&checkpoint).unwrap();
        let model = export(&checkpoint, &tiny.example_shapes(), &BTreeMap::new()).unwrap().model;
        save(&model, &path, WeightStorage::Link).unwrap();
        for (precision, data_type) in [("fp16", DataType::F16), ("bf16", DataType::Bf16)] {
            let arguments: [&dyn AsRef<std::ffi::OsStr>; 6] =
                [&"convert", &path, &"--precision", &precision, &"-o", &converted];
            let _ = run("engine-builder", words(&arguments)).success();
            let half = tileforge_graph::load(&converted).unwrap();
            assert!(half.weights.values().any(|weight| weight.data_type() == data_type), "{}", entry.name);
            assert!(
                half.outputs.iter().zip(&model.outputs).all(|(half, port)| half == port),
                "{}: {:?}",
                entry.name,
                half.outputs
            );
            if precision == "fp16" {
                let session = end_to_end::Graph::open(&converted, &tileforge_session::SessionOptions::default());
                let _ = session.unwrap_or_else(|e| panic!("{}: {e}", entry.name));
            }
        }
    }
    let convert = |more: &[&dyn AsRef<std::ffi::OsStr>]| {
        run("engine-builder", words(&[&[&"convert" as &dyn AsRef<_>, &path, &"-o", &converted], more].concat()))
    };
    let _ = convert(&[&"--precision", &"fp8"]).failure(1, &["expected fp16, bf16 or int8, found fp8"]);
    let _ = convert(&[&"--precision", &"fp16", &"--island", &"nothing"]).failure(1, &["it has no node `nothing`"]);
}

/// 8-bit weights in every layer of a half-precision checkpoint, read by DequantizeLinear. They are close to the
/// originals and have half the bytes.
#[test]
fn weights_alone_go_to_8_bits() {
    let work = tempfile::tempdir().unwrap();
    let [path, converted, checkpoint] =
        ["graph.onnx", "int8.onnx", "checkpoint.safetensors"].map(|name| work.path().join(name));
    let unet = registry().iter().find(|entry| entry.name == "UNet2DConditionModel").unwrap();
    let (_, tiny) = unet.presets().into_iter().find(|(name, _)| *name == "tiny").unwrap();
    synthesise(tiny.as_ref(), DataType::F16, 1, &checkpoint).unwrap();
    let model =
        export(&Checkpoint::open(&checkpoint).unwrap(), &tiny.example_shapes(), &BTreeMap::new()).unwrap().model;
    save(&model, &path, WeightStorage::Link).unwrap();
    let island = "conv_out/Conv";
    let arguments = words(&[&"convert", &path, &"--precision", &"int8", &"--island", &island, &"-o", &converted]);
    let _ = run("engine-builder", arguments).success();
    let found = tileforge_graph::load(&converted).unwrap();
    let layers: Vec<_> =
        found.nodes.iter().filter(|node| matches!(node.operator.as_str(), "Conv" | "Gemm" | "MatMul")).collect();
    let read = |name: &str| found.nodes.iter().find(|node| node.outputs[0] == name).unwrap();
    let mut checked = 0;
    for layer in layers.iter().filter(|layer| found.nodes.iter().any(|node| node.outputs[0] == layer.inputs[1])) {
        let source = read(&layer.inputs[1]);
        if layer.name == island || source.operator != "DequantizeLinear" {
            assert!(source.operator != "DequantizeLinear", "{}", layer.name);
            continue;
        }
        let [values, scales, zero_points] = [0, 1, 2].map(|input| &found.weights[&source.inputs[input]]);
        assert_eq!((values.data_type(), scales.dims()), (DataType::I8, zero_points.dims()));
        // The original weight, after its Cast.
        let name = layer.inputs[1].strip_suffix("/DequantizeLinear").unwrap();
        let original = model.weights.get(name).unwrap_or_else(|| {
            &model.weights[&model.nodes.iter().find(|node| node.outputs[0] == name).unwrap().inputs[0]]
        });
        let (original, values, scales) = (
            original.cast(DataType::F32).unwrap().to_f32s().unwrap(),
            values.to_bytes().unwrap(),
            scales.to_f32s().unwrap(),
        );
        let Some(tileforge_graph::Attribute::Int(axis)) = source.attributes.get("axis") else { panic!("{source:?}") };
        let inner: usize = found.weights[&source.inputs[0]].dims()[*axis as usize + 1..].iter().product();
        for (at, (value, quantised)) in original.iter().zip(values.iter()).enumerate() {
            let scale = scales[at / inner % scales.len()];
            assert!((value - f32::from(*quantised as i8) * scale).abs() <= 0.501 * scale, "{name} at {at}");
        }
        checked += 1;
    }
    assert!(checked > 20, "{checked} layers");
    // Biases and normalisations stay in half precision.
    assert!(found.weights.values().any(|weight| weight.data_type() == DataType::F16));
}
