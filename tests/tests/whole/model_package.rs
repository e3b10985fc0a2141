//! Engines as model packages, opened by ONNX Runtime's own API.

use end_to_end::model_package::open_and_run;
use end_to_end::{GoldenPipelines, Graph, copied_engine, demo_engine, names_in, run, words};
use ndarray::Array4;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tileforge_engine::digest::sha256;
use tileforge_session::SessionOptions;

fn pack(engines: &[&Path], package: &Path) -> end_to_end::Outcome {
    let engines = engines.iter().map(|engine| OsString::from(*engine));
    let line = words(&[&"pack", &"--format", &"model-package", &"-o", &package]);
    run("engine-builder", line.into_iter().chain(engines))
}

fn manifest(package: &Path) -> Value {
    serde_json::from_slice(&fs::read(package.join("manifest.json")).unwrap()).unwrap()
}

/// A copy of the demo's engine with another manifest.
fn changed(folder: &Path, name: &str, change: impl Fn(&mut Value)) -> PathBuf {
    fs::create_dir(folder.join(name)).unwrap();
    let engine = copied_engine(&folder.join(name));
    let mut manifest = manifest(&engine);
    change(&mut manifest);
    fs::write(engine.join("manifest.json"), manifest.to_string()).unwrap();
    engine
}

#[test]
fn onnx_runtime_opens_a_package_and_computes_what_the_engine_does() {
    let work = tempfile::tempdir().unwrap();
    let package = work.path().join("package");
    let for_gpu = changed(work.path(), "gpu", |manifest| {
        manifest["target"]["profile"] = json!("h100");
        manifest["target"]["provider"] = json!("tensorrt");
    });
    let packed = pack(&[&for_gpu, demo_engine()], &package).success();
    assert_eq!(packed.stdout.trim(), package.display().to_string());
    assert_eq!(names_in(&package), ["h100", "manifest.json", "small-tiles"]);

    let values: Vec<f32> = (0..3 * 24 * 24).map(|index| (index % 97) as f32 / 97.0).collect();
    let opened = open_and_run(&package, "model-1x3x24x24", ("image", &[1, 3, 24, 24], &values), "upscaled").unwrap();
    // One CPU variant, from the engine that was built for the CPU.
    let variants = [
        ("h100", "TensorrtExecutionProvider"),
        ("h100-cuda", "CUDAExecutionProvider"),
        ("small-tiles", "CPUExecutionProvider"),
    ];
    let variants: Vec<(String, String)> =
        variants.iter().map(|(name, provider)| ((*name).to_owned(), (*provider).to_owned())).collect();
    let components = ["model-1x3x24x24", "model-1x3x96x96"].map(|name| (name.to_owned(), variants.clone()));
    assert_eq!(opened.components, components);
    assert_eq!(opened.variant, "small-tiles");

    let mut graph = Graph::open(&demo_engine().join("model-1x3x24x24.onnx"), &SessionOptions::default()).unwrap();
    let input = Array4::from_shape_vec((1, 3, 24, 24), values).unwrap();
    let expected = graph.run(&[("image", input.view().into_dyn())]).unwrap().remove(0).1;
    // Our session computes convolutions with kernels of its own, by which results differ in rounding.
    let differences = opened.output.iter().zip(&expected).map(|(one, other)| (one - other).abs());
    assert!(opened.output.len() == expected.len() && differences.fold(0.0, f32::max) < 1e-5);
}

#[test]
fn files_are_stored_once_and_a_package_repeats() {
    let work = tempfile::tempdir().unwrap();
    let engine = copied_engine(work.path());
    let [one, other] = ["one", "other"].map(|name| work.path().join(name));
    let _ = pack(&[&engine], &one).success();
    let _ = pack(&[&engine], &other).success();
    assert!(fs::read(one.join("manifest.json")).unwrap() == fs::read(other.join("manifest.json")).unwrap());
    // Hard links to the engine's files. The engine's self-test and manifest are left out: ONNX Runtime does not use
    // them.
    let names = ["model-1x3x24x24.onnx", "model-1x3x96x96.onnx", "model.weights"];
    assert_eq!(names_in(&one.join("small-tiles")), names);
    for name in names {
        let inode = |path: PathBuf| fs::metadata(path).unwrap().ino();
        assert_eq!(inode(one.join("small-tiles").join(name)), inode(engine.join(name)), "{name}");
    }
    let variant = &manifest(&one)["components"]["model-1x3x24x24"]["variants"]["small-tiles"];
    assert_eq!(
        (&variant["variant_directory"], &variant["executor_info"]),
        (&json!("small-tiles"), &json!({ "ort": { "model_file": "model-1x3x24x24.onnx" } }))
    );
}

#[test]
fn parts_are_components_and_their_files_assets() {
    let work = tempfile::tempdir().unwrap();
    let pipeline = GoldenPipelines::read().write_folder(work.path(), "sd");
    let (engine, package) = (work.path().join("engine"), work.path().join("package"));
    let line = words(&[&"build", &pipeline, &"--profile", &"cpu", &"-o", &engine, &"--size", &"64x64"]);
    let _ = run("engine-builder", line).success();
    let _ = pack(&[&engine], &package).success();
    assert_eq!(names_in(&package), ["cpu", "manifest.json", "shared_assets"]);
    let parts = ["text_encoder", "unet", "vae_decoder", "vae_encoder"];
    assert_eq!(names_in(&package.join("cpu")), parts);
    let manifest = manifest(&package);
    let components = manifest["components"].as_object().unwrap();
    for part in parts {
        assert!(components.keys().any(|name| name.starts_with(&format!("{part}-model-"))), "{part}");
    }
    // The asset's name is the digest that ONNX Runtime's documentation describes.
    let asset = manifest["additional_metadata"]["tileforge"]["files_beside_the_parts"]["cpu"].as_str().unwrap();
    let folder = package.join("shared_assets").join(asset.replace(':', "-"));
    assert!(folder.join("tokenizer/vocab.json").exists());
    let listed = std::process::Command::new("bash")
        .args(["-c", "LC_ALL=C find . -type f | sed 's|^./||' | LC_ALL=C sort | xargs sha256sum"])
        .current_dir(&folder)
        .output()
        .unwrap();
    assert_eq!(asset, format!("sha256:{}", sha256(&listed.stdout)));

    let decoder = components.keys().find(|name| name.starts_with("vae_decoder-")).unwrap();
    let facts = &components[decoder]["variants"]["cpu"]["additional_metadata"]["tileforge"];
    let (input, shape) = facts["inputs"].as_object().unwrap().iter().next().unwrap();
    let output = facts["outputs"].as_object().unwrap().keys().next().unwrap();
    let shape: Vec<i64> = serde_json::from_value(shape.clone()).unwrap();
    let values = vec![0.5; shape.iter().product::<i64>() as usize];
    let opened = open_and_run(&package, decoder, (input, &shape, &values), output).unwrap();
    assert_eq!(opened.variant, "cpu");
    assert!(opened.output.len() == 3 * 64 * 64 && opened.output.iter().all(|value| value.is_finite()));
}

#[test]
fn what_makes_no_package_is_refused_and_leaves_nothing() {
    let work = tempfile::tempdir().unwrap();
    let package = work.path().join("package");
    let same = changed(work.path(), "same", |_| ());
    let other = changed(work.path(), "other", |manifest| {
        manifest["model"]["architecture"] = json!("another");
        manifest["target"]["profile"] = json!("other");
    });
    let outside = changed(work.path(), "outside", |manifest| manifest["target"]["profile"] = json!("../up"));
    let demo = demo_engine();
    let before = names_in(work.path());
    let _ = pack(&[demo, &same], &package).failure(1, &["for the same profile and precision"]);
    let _ = pack(&[demo, &other], &package).failure(1, &["expected an engine of the model of"]);
    let _ = pack(&[&outside], &package).failure(1, &["cannot have a folder of its profile's name `../up`"]);
    let _ = pack(&[&work.path().join("nothing")], &package).failure(1, &["no such folder"]);
    let _ = pack(&[demo], &same).failure(1, &["expected a folder that is free or empty"]);
    let _ = run("engine-builder", words(&[&"pack", &demo, &same, &"-o", &package])).failure(2, &["found 2"]);
    let weights = same.join("model.weights");
    let mut bytes = fs::read(&weights).unwrap();
    bytes[100] ^= 1;
    fs::write(&weights, bytes).unwrap();
    let _ = pack(&[&same], &package).failure(1, &["model.weights", "expected SHA-256"]);
    assert_eq!(names_in(work.path()), before);
}

/// An engine for two kinds of RTX GPUs: each plan is listed with the bytes that state which GPUs can run it.
#[cfg(feature = "rtx")]
#[test]
fn plans_carry_what_their_provider_asks_for() {
    let work = tempfile::tempdir().unwrap();
    let package = work.path().join("package");
    let profile = work.path().join("small-rtx.yaml");
    let text = fs::read_to_string(end_to_end::repository("tests/profiles/small-tiles.yaml")).unwrap();
    let text = text.replace("name: small-tiles", "name: small-rtx").replace("provider: cpu", "provider: tensorrt-rtx");
    let text = text.replace("24x24, 96x96", "24x24");
    fs::write(&profile, text + "compute_capabilities: [8.6, 8.9]\n").unwrap();
    let engine = work.path().join("engine");
    let model = end_to_end::repository("models/compact-x4.yaml");
    let line = words(&[&"build", &model, &"--profile", &profile, &"--require-compiled", &"-o", &engine]);
    let _ = run("engine-builder", line).success();
    let _ = pack(&[&engine], &package).success();
    let manifest = manifest(&package);
    let variants = &manifest["components"]["model-1x3x24x24"]["variants"];
    let rtx = &variants["small-rtx"];
    assert_eq!(rtx["ep"], "NvTensorRTRTXExecutionProvider");
    assert_eq!(rtx["executor_info"]["ort"]["model_file"], "tensorrt-rtx/model-1x3x24x24.onnx");
    let plan = fs::read(engine.join("tensorrt-rtx/model-1x3x24x24.plan")).unwrap();
    assert_eq!(rtx["compatibility_string"], tileforge_engine::digest::hexadecimal(&plan[..64]));
    assert!(package.join("small-rtx/tensorrt-rtx/model-1x3x24x24.plan").exists());
    assert_eq!(variants["small-rtx-cuda"]["ep"], "CUDAExecutionProvider");
    // Where there is no GPU, the same package runs on the CPU.
    let values = vec![0.5; 3 * 24 * 24];
    let opened = open_and_run(&package, "model-1x3x24x24", ("image", &[1, 3, 24, 24], &values), "upscaled").unwrap();
    assert_eq!(opened.variant, "small-rtx-cpu");
}
