//! Files that are damaged, wrong or hostile: each gives an error with the place and the reason, and nothing is
//! written.

use super::{build, golden};
use end_to_end::{names_in, repository, run, words};
use std::collections::BTreeMap;
use std::fs;

#[test]
fn each_wrong_file_is_a_clear_error_and_nothing_is_written() {
    let folder = repository("tests/golden-onnx/hostile");
    let expected: BTreeMap<String, Vec<String>> =
        serde_json::from_slice(&fs::read(folder.join("expected.json")).unwrap()).unwrap();
    assert!(expected.len() > 30);
    let mut failures = Vec::new();
    for (name, words_of_error) in &expected {
        let work = tempfile::tempdir().unwrap();
        let file = folder.join(format!("{name}.onnx"));
        let outcome = build(work.path(), &file, "tests/profiles/small-tiles.yaml", &["--task", "upscale"]);
        let says = words_of_error.iter().all(|word| outcome.stderr.contains(word.as_str()));
        let panicked = outcome.stderr.contains("panicked");
        if outcome.code != 1 || !says || panicked || !names_in(work.path()).is_empty() {
            failures.push(format!("{name}: {words_of_error:?}, {} {}", outcome.code, outcome.stderr));
        }
        // Inspecting it neither panics nor gets the process killed.
        let inspected = run("exporter", words(&[&"inspect", &file]));
        let linted = run("engine-builder", words(&[&"lint", &file, &"--target", &"tensorrt-10"]));
        for outcome in [inspected, linted] {
            if !(0..=4).contains(&outcome.code) || outcome.stderr.contains("panicked") {
                failures.push(format!("{name}: {} {}", outcome.code, outcome.stderr));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn a_custom_operator_is_named_with_its_node() {
    let work = tempfile::tempdir().unwrap();
    let words_of_error = ["body/deformable", "DCNv2", "mmdeploy", "custom operator"];
    let _ = build(work.path(), &golden("custom"), "tests/profiles/small-tiles.yaml", &["--task", "upscale"])
        .failure(1, &words_of_error);
    let _ = run("exporter", words(&[&"inspect", &golden("custom")])).failure(1, &words_of_error);
    assert!(names_in(work.path()).is_empty());
}

#[test]
fn what_is_said_has_to_go_together() {
    let work = tempfile::tempdir().unwrap();
    let model = golden("compact-dynamo-fp32-dynamic");
    let profile = "tests/profiles/small-tiles.yaml";
    let refused = |code: i32, options: &[&str], words: &[&str]| {
        let _ = build(work.path(), &model, profile, options).failure(code, words);
        assert!(names_in(work.path()).is_empty());
    };
    refused(2, &[], &["--task upscale", "--contract", "exporter inspect"]);
    refused(1, &["--task", "tensors", "--mean", "0.5"], &["upscale"]);
    refused(2, &["--task", "upscale", "--input-range", "1:0"], &["0:255"]);
    refused(2, &["--task", "upscale", "--mean", "1,2"], &["three"]);
    refused(2, &["--task", "unet"], &["upscale"]);
    refused(1, &["--task", "upscale", "--deviation", "0"], &["above 0"]);
    // A checkpoint already states its facts.
    let checkpoint = repository("models/compact-x4.safetensors");
    let _ = build(work.path(), &checkpoint, profile, &["--task", "upscale"]).failure(2, &["leave --task"]);
}
