//! Exported graphs give the same pixels as the reference implementation.

use end_to_end::{Golden, Graph, PROCESSOR, error_over_range, golden_cases};
use ndarray::ArrayD;
use std::collections::BTreeMap;
use tileforge_contract::{Provider, Upscale};
use tileforge_exporter::{Checkpoint, Shapes, export};
use tileforge_graph::{WeightStorage, save};
use tileforge_session::SessionOptions;

/// Largest absolute error over the range of the reference's output.
const TOLERANCE: f32 = 2e-5;

/// The output of the exported graph with each library for processors.
fn infer(golden: &Golden, shapes: &Shapes, storage: WeightStorage) -> Vec<ArrayD<f32>> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    let checkpoint = Checkpoint::open(&golden.checkpoint).unwrap();
    let export = export(&checkpoint, shapes, &BTreeMap::new()).unwrap_or_else(|e| panic!("{}: {e}", golden.name));
    save(&export.model, &path, storage).unwrap();
    let on = |provider: Provider| {
        let options = SessionOptions { provider, ..SessionOptions::default() };
        let outputs = Graph::open(&path, &options).and_then(|mut graph| graph.run(&[("image", golden.image.view())]));
        let mut outputs = outputs.unwrap_or_else(|e| panic!("{}: {e}", golden.name));
        assert_eq!(outputs.len(), 1);
        outputs.remove(0).1
    };
    PROCESSOR.map(on).into()
}

/// Panics if an output differs from the reference's.
fn compare(golden: &Golden, found: &[ArrayD<f32>]) {
    for (found, provider) in found.iter().zip(PROCESSOR) {
        let error = error_over_range(found, &golden.upscaled);
        assert!(error <= TOLERANCE, "{} on {provider}: {error}", golden.name);
    }
}

#[test]
fn fixed_shapes_match_the_reference() {
    let cases = golden_cases();
    assert!(cases.len() >= 35, "only {} golden inputs", cases.len());
    for golden in &cases {
        let found = infer(golden, &Shapes::of("image", golden.image.shape()), WeightStorage::Link);
        compare(golden, &found);
    }
}

#[test]
fn dynamic_shapes_match_the_reference() {
    let mut seen = 0;
    for golden in golden_cases() {
        let checkpoint = Checkpoint::open(&golden.checkpoint).unwrap();
        let network = tileforge_exporter::arch::detect(&checkpoint, &BTreeMap::new()).unwrap();
        let multiple = Upscale::of(&network.contract()).unwrap().size_multiple;
        // A dynamic graph takes multiples only. The contract states this, and the runtime pads pictures to them. Some
        // graphs have only one size.
        if network.example_shapes().is_empty() && golden.image.shape()[2..].iter().all(|size| size % multiple == 0) {
            let found = infer(&golden, &Shapes::default(), WeightStorage::Copy);
            compare(&golden, &found);
            seen += 1;
        }
    }
    assert!(seen >= 33, "only {seen} golden inputs");
}
