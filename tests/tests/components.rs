//! Exported components of diffusion pipelines give what diffusers and transformers give.
#![allow(clippy::unwrap_used, clippy::panic)]

use end_to_end::{GoldenComponent, golden_components};
use exporter::{Checkpoint, Shapes, export_task};
use graph::{WeightStorage, save};
use ndarray::ArrayD;
use runtime::session::{Session, SessionOptions};
use std::collections::{BTreeMap, BTreeSet};

/// Largest absolute error over the range of the reference's output.
const TOLERANCE: f32 = 2e-5;

/// A hyperparameter that only the other components of a pipeline tell.
fn hints(golden: &GoldenComponent) -> BTreeMap<String, String> {
    let width = golden.inputs.get("text_embeds").map(|embeds| embeds.shape()[1].to_string());
    width.into_iter().map(|width| ("text_embeds_width".to_owned(), width)).collect()
}

/// The shapes of a golden input, as `--shapes` has them; of a scalar there is nothing to say.
fn shapes(golden: &GoldenComponent) -> Shapes {
    let dims = |array: &ArrayD<f32>| array.shape().iter().map(ToString::to_string).collect::<Vec<_>>().join("x");
    let named = golden.inputs.iter().filter(|(_, array)| array.ndim() > 0);
    named.map(|(name, array)| format!("{name}:{}", dims(array))).collect::<Vec<_>>().join(",").parse().unwrap()
}

fn check(golden: &GoldenComponent, shapes: &Shapes, storage: WeightStorage) -> f32 {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    let checkpoint = Checkpoint::open(&golden.checkpoint).unwrap();
    let export = export_task(&checkpoint, Some(golden.graph.parse().unwrap()), shapes, &hints(golden));
    save(&export.unwrap_or_else(|e| panic!("{}: {e}", golden.name)).model, &path, storage).unwrap();
    // What was written can be read again, with all types as they were inferred.
    graph::load(&path).unwrap_or_else(|e| panic!("{}: {e}", golden.name));
    let mut session = Session::open(&path, &SessionOptions::default()).unwrap_or_else(|e| panic!("{}: {e}", golden.name));
    let inputs: Vec<_> = golden.inputs.iter().map(|(name, array)| (name.as_str(), array.view())).collect();
    let outputs = session.run(&inputs).unwrap_or_else(|e| panic!("{}: {e}", golden.name));
    let names: BTreeSet<&String> = outputs.iter().map(|(name, _)| name).collect();
    assert_eq!(names, golden.outputs.keys().collect(), "{}", golden.name);
    let mut worst = 0.0_f32;
    for (name, found) in &outputs {
        let expected = &golden.outputs[name];
        assert_eq!(found.shape(), expected.shape(), "{} {name}", golden.name);
        let (low, high) = expected.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(l, h), v| (l.min(*v), h.max(*v)));
        let largest = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(largest / (high - low) <= TOLERANCE, "{} {name}: {}", golden.name, largest / (high - low));
        worst = worst.max(largest / (high - low));
    }
    worst
}

#[test]
fn fixed_shapes_match_the_reference() {
    let all = golden_components();
    for golden in &all {
        println!("{:<50} {:.1e}", golden.name, check(golden, &shapes(golden), WeightStorage::Link));
    }
    assert!(all.len() >= 19, "only {} golden inputs", all.len());
}

#[test]
fn dynamic_shapes_match_the_reference() {
    for golden in &golden_components() {
        // A text encoder's graph is of one number of tokens: the one that its tokenizer pads to, if nothing else is said.
        let tokens = golden.inputs.get("input_ids").filter(|ids| ids.shape()[1] != 11).map(|_| shapes(golden));
        let _ = check(golden, &tokens.unwrap_or_default(), WeightStorage::Copy);
    }
}
