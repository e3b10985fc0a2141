//! Depth and real-time networks give what their reference implementations give (`tests/golden-systems`).
#![allow(clippy::unwrap_used, clippy::panic)]

use end_to_end::repository;
use exporter::arch::registry;
use exporter::{Checkpoint, Shapes, export, synthesise};
use graph::{DataType, WeightStorage, save};
use ndarray::ArrayD;
use runtime::session::{Session, SessionOptions};
use safetensors::SafeTensors;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Largest absolute error over the range of the reference's output.
const TOLERANCE: f32 = 2e-5;

struct Golden {
    name: String,
    checkpoint: PathBuf,
    inputs: BTreeMap<String, ArrayD<f32>>,
    outputs: BTreeMap<String, ArrayD<f32>>,
}

/// Every golden input, with its checkpoint synthesised in `folder`.
fn golden(folder: &Path) -> Vec<Golden> {
    let entries = |folder: PathBuf| folder.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let cases = entries(repository("tests/golden-systems")).filter(|path| path.is_dir());
    let mut files: Vec<PathBuf> = cases.flat_map(entries).filter(|path| path.to_string_lossy().ends_with(".golden.safetensors")).collect();
    files.sort();
    let mut all = Vec::new();
    for file in files {
        let bytes = std::fs::read(&file).unwrap();
        let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
        let metadata = header.metadata().clone().unwrap();
        let [architecture, preset, seed] = ["architecture", "preset", "seed"].map(|key| metadata[key].clone());
        let checkpoint = folder.join(format!("{architecture}-{preset}-{seed}.safetensors"));
        if !checkpoint.exists() {
            let entry = registry().iter().find(|entry| entry.name == architecture).unwrap();
            let (_, network) = entry.presets().into_iter().find(|(name, _)| *name == preset).unwrap();
            synthesise(network.as_ref(), DataType::F32, seed.parse().unwrap(), &checkpoint).unwrap();
        }
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let of = |kind: &str| {
            let named =
                tensors.names().into_iter().filter_map(|name| Some((name.strip_prefix(kind)?.to_owned(), tensors.tensor(name).unwrap())));
            named
                .map(|(name, tensor)| {
                    let values = tensor.data().chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
                    (name, ArrayD::from_shape_vec(tensor.shape().to_vec(), values).unwrap())
                })
                .collect()
        };
        let name = format!("{architecture}-{preset}/{}", file.file_name().unwrap().to_string_lossy());
        all.push(Golden { name, checkpoint, inputs: of("input."), outputs: of("output.") });
    }
    assert!(all.len() >= 15, "only {} golden inputs", all.len());
    all
}

fn check(golden: &Golden, shapes: &Shapes, hints: &BTreeMap<String, String>, inputs: &BTreeMap<String, ArrayD<f32>>) -> f32 {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    let export = export(&Checkpoint::open(&golden.checkpoint).unwrap(), shapes, hints).unwrap_or_else(|e| panic!("{}: {e}", golden.name));
    save(&export.model, &path, WeightStorage::Copy).unwrap();
    let mut session = Session::open(&path, &SessionOptions::default()).unwrap_or_else(|e| panic!("{}: {e}", golden.name));
    let inputs: Vec<_> = inputs.iter().map(|(name, array)| (name.as_str(), array.view())).collect();
    let outputs = session.run(&inputs).unwrap_or_else(|e| panic!("{}: {e}", golden.name));
    assert_eq!(outputs.len(), golden.outputs.len(), "{}", golden.name);
    let mut worst = 0.0_f32;
    for (name, found) in &outputs {
        let expected = &golden.outputs[name];
        assert_eq!(found.shape(), expected.shape(), "{} {name}", golden.name);
        let (low, high) = expected.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(l, h), v| (l.min(*v), h.max(*v)));
        let largest = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max) / (high - low);
        assert!(largest <= TOLERANCE, "{} {name}: {largest}", golden.name);
        worst = worst.max(largest);
    }
    worst
}

fn shapes(inputs: &BTreeMap<String, ArrayD<f32>>) -> Shapes {
    let dims = |array: &ArrayD<f32>| array.shape().iter().map(ToString::to_string).collect::<Vec<_>>().join("x");
    inputs.iter().map(|(name, array)| format!("{name}:{}", dims(array))).collect::<Vec<_>>().join(",").parse().unwrap()
}

#[test]
fn fixed_shapes_match_the_reference() {
    let folder = tempfile::tempdir().unwrap();
    for golden in golden(folder.path()) {
        let error = check(&golden, &shapes(&golden.inputs), &BTreeMap::new(), &golden.inputs);
        println!("{:<60} {error:.1e}", golden.name);
    }
}

#[test]
fn dynamic_shapes_match_the_reference() {
    let folder = tempfile::tempdir().unwrap();
    let all = golden(folder.path());
    // The graphs of depth networks are of one size.
    let dynamic: Vec<&Golden> = all.iter().filter(|golden| golden.inputs.contains_key("frame")).collect();
    assert!(dynamic.len() >= 8);
    for golden in dynamic {
        let _ = check(golden, &Shapes::default(), &BTreeMap::new(), &golden.inputs);
    }
}

/// An image of 0 … 1 goes into a graph that normalises it, and the same comes out.
#[test]
fn preprocessing_can_be_in_the_graph() {
    let folder = tempfile::tempdir().unwrap();
    let (mean, deviation) = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]);
    let mut seen = 0;
    for golden in golden(folder.path()).iter().filter(|golden| golden.inputs.contains_key("pixel_values")) {
        let mut inputs = golden.inputs.clone();
        let pixels = inputs.get_mut("pixel_values").unwrap();
        pixels.indexed_iter_mut().for_each(|(place, value)| *value = *value * deviation[place[1]] + mean[place[1]]);
        let hints = BTreeMap::from([("preprocess".to_owned(), "in-graph".to_owned())]);
        let _ = check(golden, &shapes(&golden.inputs), &hints, &inputs);
        seen += 1;
    }
    assert!(seen >= 7);
}
