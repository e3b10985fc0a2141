//! Files with pictures in another form than ours, files with fewer facts, and files without pictures.

use super::{TOLERANCE, build, contract_in, error_of, floats, golden};
use end_to_end::{manifest_in, repository, run, words};
use std::collections::BTreeMap;
use std::fs;
use tileforge_contract::DataType;
use tileforge_runtime::tensor_file::{Stored, write};

#[test]
fn pictures_in_rows_of_pixels_and_files_that_are_wrong_about_shapes() {
    let work = tempfile::tempdir().unwrap();
    for (case, radius) in
        [("nhwc", Some(3)), ("liar", Some(2)), ("opset-9", Some(2)), ("pooled", None), ("quantised", Some(1))]
    {
        let error = error_of(work.path(), case, [0.0, 1.0], &["--task", "upscale"]);
        assert!(error <= TOLERANCE, "{case}: {error:e}");
        assert_eq!(contract_in(work.path())["receptive_field"]["radius"].as_u64(), radius, "{case}");
    }
}

#[test]
fn operators_without_a_rule_pass_through() {
    let work = tempfile::tempdir().unwrap();
    let error = error_of(work.path(), "passed-through", [0.0, 1.0], &["--task", "upscale"]);
    assert!(error <= TOLERANCE, "{error:e}");
    let arguments = words(&[&"lint", &golden("passed-through"), &"--target", &"tensorrt-10"]);
    let linted = run("engine-builder", arguments);
    assert!(linted.stderr.contains("Einsum") && linted.stderr.contains("NCHW"), "{linted:?}");
}

#[test]
fn bytes_with_blue_first_are_said_by_one_option() {
    let work = tempfile::tempdir().unwrap();
    let options = ["--task", "upscale", "--channel-order", "bgr"];
    // The values are bytes: one level of 255.
    let error = error_of(work.path(), "bytes-bgr", [0.0, 255.0], &options);
    assert!(error <= 1.0 / 255.0, "{error:e}");
    let contract = contract_in(work.path());
    assert_eq!(contract["inputs"][0]["meaning"]["range"], serde_json::json!([0.0, 255.0]));
    assert_eq!(contract["inputs"][0]["axes"][2]["height"]["step"], 2, "{contract}");
}

#[test]
fn range_and_normalisation_become_part_of_the_engine() {
    let work = tempfile::tempdir().unwrap();
    let case = "compact-torchscript-fp32-dynamic";
    let data = floats(&golden(case).with_file_name("golden.safetensors"));
    // The file's picture is (value − 0.5) / 0.25 of ours, and the output is converted back.
    let picture = data["image.0"].mapv(|value| value * 0.25 + 0.5);
    let size = format!("{}x{}", picture.shape()[3], picture.shape()[2]);
    let options = ["--task", "upscale", "--mean", "0.5", "--deviation", "0.25,0.25,0.25", "--size", &size];
    let _ = build(work.path(), &golden(case), "tests/profiles/small-tiles.yaml", &options).success();
    let made = super::made(work.path(), &picture);
    let expected = data["made.0"].mapv(|value| value * 0.25 + 0.5);
    assert!(end_to_end::error_over_range(&made, &expected) <= TOLERANCE);
    let _ = build(
        work.path(),
        &golden(case),
        "tests/profiles/small-tiles.yaml",
        &["--task", "upscale", "--input-range", "-1:1"],
    )
    .success();
    assert_eq!(contract_in(work.path())["inputs"][0]["meaning"]["range"], serde_json::json!([-1.0, 1.0]));
}

#[test]
fn networks_without_pictures_take_tensors() {
    let work = tempfile::tempdir().unwrap();
    let _ = build(work.path(), &golden("tensors"), "tests/profiles/small-tiles.yaml", &["--task", "tensors"]).success();
    let contract = contract_in(work.path());
    // Integers stay integers at the input and become floats at the output, because gates compare floats.
    assert_eq!((&contract["inputs"][1]["type"], &contract["outputs"][1]["type"]), (&"i64".into(), &"f32".into()));
    assert_eq!(contract["inputs"][0]["axes"], serde_json::json!(["batch", { "fixed": 8 }]));
    assert_eq!(contract["outputs"][0]["axes"], serde_json::json!(["batch", { "fixed": 5 }]));
    let data = golden("tensors").with_file_name("golden.safetensors");
    let (input, output) = (work.path().join("in.safetensors"), work.path().join("out.safetensors"));
    let features = &floats(&data)["features"];
    let rows = |row: usize| features.index_axis(ndarray::Axis(0), row).iter().flat_map(|v| v.to_le_bytes()).collect();
    // The engine's graph takes one sample in a run.
    for (row, label) in [2_i64, 0, 3].into_iter().enumerate() {
        let of = |data_type, shape, bytes| Stored { data_type, shape, bytes };
        let given = [
            ("features".to_owned(), of(DataType::F32, vec![1, 8], rows(row))),
            ("labels".to_owned(), of(DataType::I64, vec![1], label.to_le_bytes().to_vec())),
        ];
        write(&input, &given, &BTreeMap::new()).unwrap();
        let arguments =
            words(&[&"run", &"--engine", &work.path().join("engine"), &"--input", &input, &"--output", &output]);
        let _ = run("runtime", arguments).success();
        let (found, expected) = (floats(&output), &floats(&data)["scores"]);
        for (found, expected) in found["scores"].iter().zip(expected.index_axis(ndarray::Axis(0), row)) {
            assert!((found - expected).abs() < 1e-5, "{found} {expected}");
        }
    }
}

#[test]
fn a_contract_says_everything_else() {
    let work = tempfile::tempdir().unwrap();
    let contract = work.path().join("contract.json");
    let tensor = |name: &str, step: usize| {
        serde_json::json!({
            "name": name, "type": "f32",
            "axes": ["batch", { "channels": 3 }, { "height": { "step": step } }, { "width": { "step": step } }],
            "meaning": { "kind": "pixels", "range": [0.0, 1.0], "order": "rgb", "padding": "reflect" },
        })
    };
    let with = |output: serde_json::Value| {
        serde_json::json!({
            "task": "upscale", "inputs": [tensor("input", 1)], "outputs": [output],
            "receptive_field": { "radius": 4 }, "safe_precisions": ["fp32"],
        })
    };
    let model = golden("compact-dynamo-fp32-dynamic");
    let options = ["--contract", contract.to_str().unwrap()];
    fs::write(&contract, with(tensor("output", 2)).to_string()).unwrap();
    let _ = build(work.path(), &model, "tests/profiles/small-tiles.yaml", &options).success();
    assert_eq!(manifest_in(work.path())["contract"]["receptive_field"]["radius"], 4);
    fs::remove_dir_all(work.path().join("engine")).unwrap();
    // A name that the file does not have, another scale, and a missing contract.
    fs::write(&contract, with(tensor("enlarged", 2)).to_string()).unwrap();
    let _ = build(work.path(), &model, "tests/profiles/small-tiles.yaml", &options).failure(1, &["enlarged", "output"]);
    fs::write(&contract, with(tensor("output", 3)).to_string()).unwrap();
    assert_ne!(build(work.path(), &model, "tests/profiles/small-tiles.yaml", &options).code, 0);
    fs::write(&contract, "{}").unwrap();
    let _ =
        build(work.path(), &model, "tests/profiles/small-tiles.yaml", &options).failure(1, &["contract.json", "task"]);
    let both = [&options[..], &["--mean", "0.5"]].concat();
    fs::write(&contract, with(tensor("output", 2)).to_string()).unwrap();
    let _ = build(work.path(), &model, "tests/profiles/small-tiles.yaml", &both).failure(1, &["contract"]);
    assert!(!work.path().join("engine").exists());
}

#[test]
fn inspect_says_what_is_found_and_what_to_type() {
    let inspected = |case: &str| run("exporter", words(&[&"inspect", &golden(case), &"--json"])).success().json();
    let compact = inspected("compact-torchscript-fp16-dynamic");
    assert_eq!(compact["opset"], 14);
    assert_eq!(compact["producer"]["name"], "pytorch");
    assert_eq!(compact["half_precision"], true);
    assert_eq!(
        (&compact["layout"], &compact["scale"], &compact["receptive_field"]),
        (&"NCHW".into(), &2.into(), &4.into())
    );
    let rows = inspected("nhwc");
    assert_eq!((&rows["layout"], &rows["scale"], &rows["dynamic"]), (&"NHWC".into(), &2.into(), &true.into()));
    let pooled = inspected("pooled");
    assert!(pooled["unbounded_because"].as_str().unwrap().contains("whole picture"), "{pooled}");
    assert_eq!(inspected("tensors")["task"], "tensors");
    let text = run("exporter", words(&[&"inspect", &golden("nhwc")])).success().stdout;
    for word in [
        "tf2onnx",
        "opset            13",
        "NHWC",
        "×2",
        "3 pixels in each direction",
        "range of its pixels",
        "--task upscale",
    ] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[test]
fn weights_stand_beside_the_file() {
    let work = tempfile::tempdir().unwrap();
    let model = tileforge_exporter::foreign::open(&golden("rrdbnet-dynamo-fp32-dynamic")).unwrap().model;
    let path = work.path().join("network.onnx");
    tileforge_graph::save(&model, &path, tileforge_graph::WeightStorage::Copy).unwrap();
    assert!(fs::read_dir(work.path()).unwrap().count() > 1);
    let _ = build(work.path(), &path, "tests/profiles/small-tiles.yaml", &["--task", "upscale", "--size", "24x24"])
        .success();
    // Errors are reported before anything is written.
    fs::remove_dir_all(work.path().join("engine")).unwrap();
    for entry in fs::read_dir(work.path()).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.extension().is_some_and(|extension| extension != "onnx") {
            fs::OpenOptions::new().write(true).open(&entry).unwrap().set_len(100).unwrap();
        }
    }
    let failed = build(work.path(), &path, "tests/profiles/small-tiles.yaml", &["--task", "upscale"]);
    assert_eq!(failed.code, 1, "{failed:?}");
    assert!(!work.path().join("engine").exists());
    let _ = repository("");
}
