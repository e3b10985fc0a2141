//! Depth and real-time networks give the same outputs as their reference implementations (`tests/golden-systems`).

use end_to_end::{GoldenComponent, golden_systems};
use ndarray::ArrayD;
use std::collections::BTreeMap;
use std::path::Path;
use tileforge_exporter::{Checkpoint, Shapes, export};
use tileforge_graph::WeightStorage;

/// Largest absolute error over the range of the reference's output.
const TOLERANCE: f32 = 2e-5;

fn golden(folder: &Path) -> Vec<GoldenComponent> {
    let all = golden_systems(folder);
    assert!(all.len() >= 15, "only {} golden inputs", all.len());
    all
}

fn check(
    golden: &GoldenComponent,
    shapes: &Shapes,
    hints: &BTreeMap<String, String>,
    inputs: &BTreeMap<String, ArrayD<f32>>,
) -> f32 {
    let export = export(&Checkpoint::open(&golden.checkpoint).unwrap(), shapes, hints)
        .unwrap_or_else(|e| panic!("{}: {e}", golden.name));
    let error = golden.error_of(&export.model, WeightStorage::Copy, inputs);
    assert!(error <= TOLERANCE, "{}: {error}", golden.name);
    error
}

#[test]
fn fixed_shapes_match_the_reference() {
    let folder = tempfile::tempdir().unwrap();
    for golden in golden(folder.path()) {
        let error = check(&golden, &golden.shapes(), &BTreeMap::new(), &golden.inputs);
        println!("{:<60} {error:.1e}", golden.name);
    }
}

#[test]
fn dynamic_shapes_match_the_reference() {
    let folder = tempfile::tempdir().unwrap();
    let all = golden(folder.path());
    // Graphs of depth networks have one size.
    let dynamic: Vec<&GoldenComponent> = all.iter().filter(|golden| golden.inputs.contains_key("frame")).collect();
    assert!(dynamic.len() >= 8);
    for golden in dynamic {
        let _ = check(golden, &Shapes::default(), &BTreeMap::new(), &golden.inputs);
    }
}

/// A graph with built-in normalisation gives the same output for a picture from 0 to 1.
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
        let _ = check(golden, &golden.shapes(), &hints, &inputs);
        seen += 1;
    }
    assert!(seen >= 7);
}
