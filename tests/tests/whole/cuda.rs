//! The graphs of every architecture compute the same in their form for ONNX Runtime's CUDA provider. Both run on the CPU.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use end_to_end::Graph;
use ndarray::{ArrayD, IxDyn};
use tileforge_graph::{DataType, Model, WeightStorage, for_cuda, load, save};
use tileforge_session::{OptimisationLevel, SessionOptions};

use super::shape_inference::each_small_model;

/// Of the output's range.
const TOLERANCE: f32 = 1e-5;

/// The outputs for inputs that are the same for each call.
fn outputs(path: &Path, model: &Model) -> Vec<(String, ArrayD<f32>)> {
    let value = |place: usize| ((place * 37 % 101) as f32) / 101.0;
    let input = |dims: Vec<usize>| {
        let count = dims.iter().product();
        ArrayD::from_shape_vec(IxDyn(&dims), (0..count).map(value).collect()).unwrap()
    };
    let inputs: BTreeMap<&str, ArrayD<f32>> =
        model.inputs.iter().map(|port| (port.name.as_str(), input(port.ty.fixed_dims().unwrap()))).collect();
    // Node by node, so that nothing but the forms differs.
    let options = SessionOptions { optimisation: OptimisationLevel::Disabled, ..SessionOptions::default() };
    let mut graph = Graph::open(path, &options).unwrap();
    graph.run(&inputs.iter().map(|(name, value)| (*name, value.view())).collect::<Vec<_>>()).unwrap()
}

/// What keeps a node from running on the GPU.
fn left_to_the_processor(model: &Model) -> Vec<String> {
    let is_late = model.opsets.iter().any(|opset| opset.domain.is_empty() && opset.version >= 22);
    let stays = model.nodes.iter().filter(|node| match node.operator.as_str() {
        "InstanceNormalization" | "MaxPool" => is_late,
        "ConvTranspose" => node.ints("pads").is_some_and(|pads| pads[..pads.len() / 2] != pads[pads.len() / 2..]),
        "Pad" => node.inputs.len() > 3,
        _ => false,
    });
    stays.map(|node| node.operator.clone()).collect()
}

#[test]
fn every_architecture_computes_the_same_in_its_form_for_cuda() {
    let folder = tempfile::tempdir().unwrap();
    let (plain, adapted) = (folder.path().join("plain.onnx"), folder.path().join("adapted.onnx"));
    let mut replaced = BTreeSet::new();
    each_small_model(&[DataType::F32], |name, model| {
        let found = left_to_the_processor(&model);
        if found.is_empty() {
            return;
        }
        replaced.extend(found);
        save(&model, &plain, WeightStorage::Inline).unwrap();
        std::fs::write(&adapted, for_cuda(&std::fs::read(&plain).unwrap(), &plain).unwrap()).unwrap();
        assert_eq!(left_to_the_processor(&load(&adapted).unwrap()), [""; 0], "{name}");
        for ((output, expected), (_, found)) in outputs(&plain, &model).into_iter().zip(outputs(&adapted, &model)) {
            let (low, high) =
                expected.iter().fold((f32::MAX, f32::MIN), |(low, high), &value| (low.min(value), high.max(value)));
            let error = (&expected - &found).iter().fold(0.0_f32, |most, value| most.max(value.abs()));
            assert!(error <= TOLERANCE * (high - low), "{name}: {output}: {error}");
        }
    });
    assert_eq!(replaced.into_iter().collect::<Vec<_>>(), ["ConvTranspose", "InstanceNormalization", "MaxPool", "Pad"]);
}
