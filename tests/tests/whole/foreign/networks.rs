//! Networks of spandrel, written by both of PyTorch's exporters.

use super::{TOLERANCE, build, contract_in, error_of, golden, made};
use end_to_end::{environment, manifest_in, repository, run, words};
use ndarray::ArrayD;
use std::collections::BTreeMap;
use std::path::Path;
use tileforge_exporter::foreign::{self, Survey};
use tileforge_graph::{WeightStorage, save};
use tileforge_session::{Cancel, OptimisationLevel, Session, SessionOptions, Tensor};

/// Checks a network's files from both exporters, in both precisions, with fixed and with free sizes.
fn check(network: &str, scale: usize, radius: impl Into<Option<u32>>) {
    let (work, radius) = (tempfile::tempdir().unwrap(), radius.into());
    for exporter in ["torchscript", "dynamo"] {
        for precision in ["fp32", "fp16"] {
            for sizes in ["static", "dynamic"] {
                let case = format!("{network}-{exporter}-{precision}-{sizes}");
                let error = error_of(work.path(), &case, [0.0, 1.0], &["--task", "upscale"]);
                assert!(error <= TOLERANCE, "{case}: {error:e}");
                let contract = contract_in(work.path());
                assert_eq!(contract["task"], "upscale", "{case}");
                assert_eq!(contract["inputs"][0]["axes"][1]["channels"], 3, "{case}");
                let steps = [&contract["inputs"], &contract["outputs"]]
                    .map(|side| side[0]["axes"][2]["height"]["step"].clone());
                let steps = steps.map(|step| step.as_u64().unwrap());
                assert_eq!(steps[1], steps[0] * scale as u64, "{case}");
                // A small picture of fixed size shows nothing about a network that sees more than half of it.
                if sizes == "dynamic" {
                    assert_eq!(contract["receptive_field"]["radius"].as_u64(), radius.map(u64::from), "{case}");
                }
                assert_eq!(
                    contract["safe_precisions"].as_array().unwrap().len(),
                    if precision == "fp16" { 2 } else { 1 }
                );
            }
        }
    }
}

#[test]
fn rrdbnet() {
    // Three dense blocks of five convolutions, the convolutions around them, and two enlargements before three more.
    check("rrdbnet", 4, 19);
}

#[test]
fn compact() {
    check("compact", 2, 4);
}

#[test]
fn span() {
    check("span", 2, 21);
}

#[test]
fn plksr() {
    check("plksr", 2, 7);
}

#[test]
fn swinir() {
    check("swinir", 2, None);
}

/// The largest change in the pixels beyond the receptive field, and in the pixels at its edge.
fn changes(case: &str) -> (usize, f32, f32) {
    let path = golden(case);
    let survey = Survey::of(&path).unwrap();
    let (radius, scale) = (survey.receptive_field.unwrap().radius, survey.scale.unwrap());
    let side = 2 * radius + 9;
    let centre = side / 2;
    let graph = foreign::open(&path).unwrap().model;
    let input = graph.inputs[0].name.clone();
    let graph = graph.specialised(&BTreeMap::from([(input.clone(), vec![1, 3, side, side])])).unwrap();
    let work = tempfile::tempdir().unwrap();
    let file = work.path().join("model.onnx");
    save(&graph, &file, WeightStorage::Copy).unwrap();
    // Node by node: kernels that compute tiles round a result by all values of its tile.
    let options = SessionOptions { optimisation: OptimisationLevel::Disabled, ..SessionOptions::default() };
    let mut session = Session::open(&environment(), &file, &options).unwrap();
    let mut run = |picture: &ArrayD<f32>| {
        let picture = Tensor::from(picture.clone());
        let made = session.run(&[(&input, &picture)], &Cancel::default()).unwrap();
        made.into_iter().next().unwrap().1.into_f32().unwrap()
    };
    let noise = |at: usize| ((at * 7919 % 1009) as f32) / 1009.0;
    let picture = ArrayD::from_shape_vec(vec![1, 3, side, side], (0..3 * side * side).map(noise).collect()).unwrap();
    let before = run(&picture);
    let (mut outside, mut edge) = (0.0_f32, 0.0_f32);
    // With small weights, a small change does not reach the edge, and a large change saturates sigmoids.
    for change in [-1e8, -1e4, 1e4, 1e8] {
        let mut changed = picture.clone();
        (0..3).for_each(|channel| changed[[0, channel, centre, centre]] += change);
        for ((at, before), after) in before.indexed_iter().zip(&run(&changed)) {
            let away = |at: usize| (at / scale).abs_diff(centre);
            let difference = (before - after).abs();
            match away(at[2]).max(away(at[3])) {
                distance if distance > radius => outside = outside.max(difference),
                distance if distance == radius => edge = edge.max(difference),
                _ => {}
            }
        }
    }
    (radius, outside, edge)
}

#[test]
fn a_pixel_changes_what_the_receptive_field_says_and_nothing_else() {
    for case in [
        "rrdbnet-dynamo-fp32-dynamic",
        "compact-torchscript-fp16-dynamic",
        "span-torchscript-fp32-dynamic",
        "liar",
        "nhwc",
        "opset-9",
    ] {
        if case == "nhwc" {
            // Its picture has another order of axes; the radius follows from its convolutions.
            assert_eq!(Survey::of(&golden(case)).unwrap().receptive_field.unwrap().radius, 3);
            continue;
        }
        let (radius, outside, edge) = changes(case);
        assert!(outside == 0.0, "{case}: {radius} pixels, and a change of {outside} outside of them");
        // SPAN multiplies by sigmoids, and rounding removes the share of the last pixels. Its radius is the sum over
        // its convolutions.
        let is_seen = !case.starts_with("span");
        assert!(edge > 0.0 || !is_seen, "{case}: nothing changes {radius} pixels away");
        assert!(is_seen || radius == 21, "{case}: {radius}");
    }
}

/// A part of the photo, enlarged with tiles of the profile and in one run.
fn tiled_and_whole(work: &Path, case: &str) -> [Vec<u8>; 2] {
    let photo = work.join("photo.png");
    let (width, height) = (131_u32, 109_u32);
    let part = image::open(repository("tests/images/coffee.png")).unwrap().crop_imm(200, 150, width, height);
    part.save(&photo).unwrap();
    [None, Some(format!("{width}x{height}"))].map(|size| {
        let size: Vec<&str> = size.iter().flat_map(|size| ["--size", size]).collect();
        let more = [&["--task", "upscale"], size.as_slice()].concat();
        let _ = build(work, &golden(case), "tests/profiles/small-tiles.yaml", &more).success();
        let output = work.join("made.png");
        let arguments = words(&[&"infer", &"--engine", &work.join("engine"), &"--input", &photo, &"--output", &output]);
        let _ = run("runtime", arguments).success();
        image::open(&output).unwrap().into_rgb8().into_raw()
    })
}

#[test]
fn tiles_give_the_pixels_of_the_whole_picture() {
    let work = tempfile::tempdir().unwrap();
    for case in ["compact-dynamo-fp16-dynamic", "nhwc", "opset-9"] {
        let [tiled, whole] = tiled_and_whole(work.path(), case);
        let furthest = tiled.iter().zip(&whole).map(|(a, b)| a.abs_diff(*b)).max().unwrap();
        // Kernels round differently in other sizes, which moves a value by one level of eight bits.
        assert!(tiled.len() == whole.len() && furthest <= 1, "{case}: {furthest}");
    }
}

#[test]
fn precision_and_profile_are_the_builders_decision() {
    let work = tempfile::tempdir().unwrap();
    let model = golden("compact-torchscript-fp16-dynamic");
    let _ = build(work.path(), &model, "tests/profiles/small-tiles.yaml", &["--task", "upscale"]).success();
    assert_eq!(manifest_in(work.path())["precision"], "fp32");
    let options = ["--task", "upscale", "--precision", "fp16", "--calibration-tiles", "4"];
    let profile = repository("tests/profiles/small-tiles.yaml");
    let half = work.path().join("small-tiles.yaml");
    let text = std::fs::read_to_string(profile).unwrap().replace("psnr_db: 100", "psnr_db: 50");
    std::fs::write(&half, text.replace("cosine: 0.999999", "cosine: 0.999")).unwrap();
    let _ = build(work.path(), &model, half.to_str().unwrap(), &options).success();
    assert_eq!(manifest_in(work.path())["precision"], "fp16");
    let picture = ArrayD::from_elem(vec![1, 3, 24, 24], 0.5);
    assert_eq!(made(work.path(), &picture).shape(), [1, 3, 48, 48]);
    // Engines for RTX GPUs: without NVIDIA's builder, they are portable.
    for case in ["compact-dynamo-fp32-dynamic", "rrdbnet-torchscript-fp32-static", "swinir-torchscript-fp32-static"] {
        let options = ["--task", "upscale", "--portable", "--calibration-tiles", "2", "--size", "64x64"];
        let options = if case.ends_with("static") { &options[..5] } else { &options[..] };
        let _ = build(work.path(), &golden(case), "profiles/rtx4090.yaml", options).success();
        assert_eq!(manifest_in(work.path())["target"]["provider"], "tensorrt-rtx", "{case}");
    }
}

#[test]
fn engines_are_made_again_from_what_their_manifests_say() {
    let work = tempfile::tempdir().unwrap();
    let model = work.path().join("network.onnx");
    std::fs::copy(golden("compact-torchscript-fp32-dynamic"), &model).unwrap();
    let options = ["--task", "upscale", "--size-multiple", "2", "--size", "24x24"];
    let _ = build(work.path(), &model, "tests/profiles/small-tiles.yaml", &options).success();
    let before = manifest_in(work.path());
    assert_eq!(before["recipe"]["foreign"], serde_json::json!({ "task": "upscale", "size_multiple": 2 }));
    assert_eq!(before["contract"]["inputs"][0]["axes"][2]["height"]["step"], 2);
    let profile = repository("tests/profiles/small-tiles.yaml");
    let arguments = words(&[&"rebuild", &work.path().join("engine"), &"--model", &model, &"--profile", &profile]);
    let _ = run("engine-builder", arguments).success();
    assert_eq!(manifest_in(work.path()), before);
}
