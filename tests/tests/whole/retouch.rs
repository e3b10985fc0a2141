//! Exported networks for faces and for inpainting give the same outputs as the reference implementation.

use end_to_end::golden_retouches;
use std::collections::BTreeMap;
use tileforge_exporter::{Checkpoint, Shapes, Task, export_task};
use tileforge_graph::WeightStorage;

/// Largest absolute error over the range of the reference's output.
const TOLERANCE: f32 = 2e-5;

#[test]
fn fixed_shapes_match_the_reference() {
    let all = golden_retouches();
    assert!(all.len() >= 7, "only {} golden inputs", all.len());
    for golden in &all {
        let checkpoint = Checkpoint::open(&golden.checkpoint).unwrap();
        let task: Task = golden.graph.parse().unwrap();
        let export = export_task(&checkpoint, Some(task), &golden.shapes(), &BTreeMap::new());
        let export = export.unwrap_or_else(|error| panic!("{}: {error}", golden.name));
        let error = golden.error_of(&export.model, WeightStorage::Link, &golden.inputs);
        println!("{:<50} {error:.1e}", golden.name);
        assert!(error <= TOLERANCE, "{}: {error}", golden.name);
    }
}

#[test]
fn a_face_has_one_size_and_a_batch_of_any_length() {
    for golden in golden_retouches().iter().filter(|golden| golden.graph == "upscale") {
        let checkpoint = Checkpoint::open(&golden.checkpoint).unwrap();
        let export = export_task(&checkpoint, None, &Shapes::default(), &BTreeMap::new()).unwrap();
        let error = golden.error_of(&export.model, WeightStorage::Copy, &golden.inputs);
        assert!(error <= TOLERANCE, "{}: {error}", golden.name);
        let other = "image:1x3x40x40".parse().unwrap();
        let error = export_task(&checkpoint, None, &other, &BTreeMap::new()).unwrap_err().to_string();
        let side = golden.inputs["image"].shape()[2];
        assert!(error.contains(&format!("expected BATCHx3x{side}x{side}, found 1x3x40x40")), "{error}");
    }
}

#[test]
fn transforms_need_a_fixed_size_that_can_be_mirrored() {
    let golden = golden_retouches().into_iter().find(|golden| golden.graph == "inpaint").unwrap();
    let checkpoint = Checkpoint::open(&golden.checkpoint).unwrap();
    let error = |shapes: &str| {
        let shapes = if shapes.is_empty() { Shapes::default() } else { shapes.parse().unwrap() };
        export_task(&checkpoint, None, &shapes, &BTreeMap::new()).unwrap_err().to_string()
    };
    assert!(error("").contains("its transforms are constants"), "{}", error(""));
    let uneven = error("image:1x3x36x64");
    assert!(uneven.contains("36 is no multiple of 8"), "{uneven}");
    let small = error("image:1x3x8x64");
    assert!(small.contains('8') && small.contains("16"), "{small}");
    let differing = error("image:1x3x32x64,mask:1x1x32x32");
    assert!(differing.contains("contradicts"), "{differing}");
}
