//! Engines of networks that take tensors: what is built, the passed gates, and what is refused.

use end_to_end::{assert_verified, build_engine, manifest_in, repository, run, words};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use tileforge_contract::Contract;
use tileforge_exporter::{Checkpoint, Shapes, arch::registry, export, synthesise};
use tileforge_graph::{DataType, Model, Weight, WeightStorage, save};

/// A profile of small sizes for every task, with one precision.
fn profile(folder: &Path, precision: &str, psnr_db: f64) -> PathBuf {
    let text = format!(
        "name: few-bits\nprovider: cpu\nprecision: {precision}\ntasks:\n  \
         vae_encoder: {{ tiles: [32x32] }}\n  vae_decoder: {{ tiles: [8x8] }}\n  \
         unet: {{ tiles: [8x8, 16x8], batch: 2 }}\n  realtime: {{ tiles: [32x32] }}\n\
         floors:\n  psnr_db: {psnr_db}\n  cosine: 0.9\n  speed: 0\n"
    );
    let path = folder.join("few-bits.yaml");
    fs::write(&path, text).unwrap();
    path
}

/// The contract of an architecture's tiny network.
fn contract_of(architecture: &str) -> Contract {
    let entry = registry().iter().find(|entry| entry.name == architecture).unwrap();
    entry.presets().into_iter().find(|(name, _)| *name == "tiny").unwrap().1.contract()
}

/// The tiny network of an architecture as a graph, with dynamic sizes where possible, after a change to its weights.
fn graph(folder: &Path, architecture: &str, change: impl Fn(&mut Model)) -> PathBuf {
    let checkpoint = folder.join("checkpoint.safetensors");
    let entry = registry().iter().find(|entry| entry.name == architecture).unwrap();
    let (_, tiny) = entry.presets().into_iter().find(|(name, _)| *name == "tiny").unwrap();
    synthesise(tiny.as_ref(), DataType::F32, 1, &checkpoint).unwrap();
    let fixed = architecture == "DepthAnything";
    let shapes = if fixed { tiny.example_shapes() } else { Shapes::default() };
    let mut model = export(&Checkpoint::open(&checkpoint).unwrap(), &shapes, &BTreeMap::new()).unwrap().model;
    change(&mut model);
    let path = folder.join(format!("{architecture}.onnx"));
    save(&model, &path, WeightStorage::Copy).unwrap();
    path
}

#[test]
fn every_task_has_engines_in_every_precision_of_a_cpu() {
    let work = tempfile::tempdir().unwrap();
    // The floors of INT8 are one to two decibels below the values that these networks of few weights reach.
    let tasks = [
        ("UNet2DConditionModel", "unet", json!([2, 4, 8, 8]), 35.0),
        ("AutoencoderKLDecoder", "vae_decoder", json!([1, 4, 8, 8]), 31.0),
        ("AutoencoderKLEncoder", "vae_encoder", json!([1, 3, 32, 32]), 37.0),
        ("CLIPText", "text_encoder", Json::Null, 40.0),
        ("DepthAnything", "depth", json!([1, 3, 42, 56]), 28.0),
        ("SimpleOptimizedUNet", "realtime", json!([1, 3, 32, 32]), 43.0),
    ];
    for (architecture, task, shape, int8_floor) in tasks {
        let model = graph(work.path(), architecture, |_| {});
        let contract: Json = serde_json::from_str(&contract_of(architecture).to_json().unwrap()).unwrap();
        assert_eq!(contract["task"], task);
        for (precision, floor) in [("fp32", 120.0), ("fp16", 60.0), ("int8", int8_floor)] {
            let profile = profile(work.path(), precision, floor);
            let _ = build_engine(work.path(), &model, &profile, &[]).success();
            let manifest = manifest_in(work.path());
            assert_eq!(manifest["contract"], contract, "{task}");
            let inputs = manifest["graphs"][0]["inputs"].as_object().unwrap();
            assert!(shape.is_null() || inputs.values().any(|found| *found == shape), "{task}: {inputs:?}");
            let source = manifest.get("calibration").map(|calibration| calibration["source"].clone());
            let made = if ["vae_encoder", "depth", "realtime"].contains(&task) {
                "built-in pictures"
            } else {
                "random tensors"
            };
            assert_eq!(source, (precision != "fp32").then(|| json!(made)), "{task}");
            assert_verified(work.path());
        }
        // The runtime reads the contract that the architecture wrote.
        let inspect = |more: &str| {
            let line = words(&[&"inspect", &"--engine", &work.path().join("engine")]);
            run("runtime", line.into_iter().chain(more.split_whitespace().map(Into::into))).success()
        };
        assert_eq!(inspect("--json").json()["contract"], contract);
        let shown = inspect("").stdout;
        let tensors = contract["inputs"].as_array().unwrap().iter().chain(contract["outputs"].as_array().unwrap());
        assert!(shown.contains(task) && tensors.clone().count() >= 2, "{shown}");
        for tensor in tensors {
            assert!(shown.contains(tensor["name"].as_str().unwrap()), "{shown}");
        }
    }
}

#[test]
fn a_graph_for_each_size_has_the_batch_of_the_profile() {
    let work = tempfile::tempdir().unwrap();
    let model = graph(work.path(), "UNet2DConditionModel", |_| {});
    let _ = build_engine(work.path(), &model, &profile(work.path(), "fp32", 100.0), &[]).success();
    let manifest = manifest_in(work.path());
    let shape = |graph: usize, input: &str| manifest["graphs"][graph]["inputs"][input].clone();
    assert_eq!((shape(0, "sample"), shape(1, "sample")), (json!([2, 4, 8, 8]), json!([2, 4, 16, 8])));
    assert_eq!((shape(1, "encoder_hidden_states")[1].clone(), shape(1, "timestep")), (json!(77), json!([])));
}

/// One convolution's output is beyond FP16's range, and the next normalisation brings it back, as in SDXL's decoder.
#[test]
fn an_overflow_in_an_autoencoder_becomes_an_island() {
    let work = tempfile::tempdir().unwrap();
    let planted = "decoder.up_blocks.0.resnets.0.conv1";
    let plant = |model: &mut Model| {
        let weight = model.weights.get_mut(&format!("{planted}.weight")).unwrap();
        let values: Vec<u8> = weight.to_f32s().unwrap().iter().flat_map(|value| (value * 1e6).to_le_bytes()).collect();
        *weight = Weight::from_bytes(DataType::F32, weight.dims().to_vec(), values).unwrap();
    };
    let model = graph(work.path(), "AutoencoderKLDecoder", plant);
    let _ = build_engine(work.path(), &model, &profile(work.path(), "fp16", 50.0), &[]).success();
    let islands: Vec<String> = serde_json::from_value(manifest_in(work.path())["islands"].clone()).unwrap();
    assert!(islands.contains(&format!("{planted}/Conv")), "{islands:?}");
    // Only the convolution and the normalisation after it.
    assert!(islands.iter().all(|name| name.contains("up_blocks.0.resnets.0.")) && islands.len() < 10, "{islands:?}");
    assert_verified(work.path());
    let plain = graph(work.path(), "AutoencoderKLDecoder", |_| {});
    let _ = build_engine(work.path(), &plain, &profile(work.path(), "fp16", 50.0), &[]).success();
    assert_eq!(manifest_in(work.path()).get("islands"), None);
}

#[test]
fn calibration_takes_tensors_from_files() {
    let work = tempfile::tempdir().unwrap();
    let folder = work.path().join("latents");
    fs::create_dir(&folder).unwrap();
    let model = graph(work.path(), "AutoencoderKLDecoder", |_| {});
    let profile = profile(work.path(), "int8", 20.0);
    let arguments = ["--calibration", folder.to_str().unwrap()];
    let _ = build_engine(work.path(), &model, &profile, &arguments)
        .failure(1, &["latents: expected .safetensors files with the tensors latent_sample"]);
    let write = |name: &str, shape: [usize; 4]| {
        let bytes: Vec<u8> =
            (0..shape.iter().product()).flat_map(|at: usize| (at as f32 * 0.37).sin().to_le_bytes()).collect();
        let tensor = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, shape.to_vec(), &bytes).unwrap();
        safetensors::serialize_to_file([(name, tensor)], None, &folder.join("0.safetensors")).unwrap();
    };
    write("latent", [1, 4, 8, 8]);
    let _ = build_engine(work.path(), &model, &profile, &arguments)
        .failure(1, &["0.safetensors: expected a tensor `latent_sample`, found none"]);
    write("latent_sample", [1, 4, 8, 9]);
    let _ = build_engine(work.path(), &model, &profile, &arguments)
        .failure(1, &["`latent_sample`: expected the shape [1, 4, 8, 8], found [1, 4, 8, 9]"]);
    write("latent_sample", [1, 4, 8, 8]);
    let _ = build_engine(work.path(), &model, &profile, &arguments).success();
    let calibration = &manifest_in(work.path())["calibration"];
    assert_eq!((&calibration["source"], &calibration["tiles"]), (&json!("folder"), &json!(1)));
}

#[test]
fn what_has_no_pictures_is_not_inferred() {
    let work = tempfile::tempdir().unwrap();
    let model = graph(work.path(), "AutoencoderKLDecoder", |_| {});
    let _ = build_engine(work.path(), &model, &profile(work.path(), "fp32", 100.0), &[]).success();
    let (picture, output) = (repository("tests/images/coffee.png"), work.path().join("large.png"));
    let engine = work.path().join("engine");
    let expected = ["expected a model of task upscale, found vae_decoder", "runtime decode"];
    let _ = run("runtime", words(&[&"infer", &"--engine", &engine, &"--input", &picture, &"--output", &output]))
        .failure(1, &expected);
    assert!(!output.exists());
    let _ = run("runtime", words(&[&"evaluate", &"--engine", &engine, &"--input", &picture])).failure(1, &expected);
}

#[test]
fn sizes_that_nobody_says_are_asked_for() {
    let work = tempfile::tempdir().unwrap();
    let model = graph(work.path(), "SimpleOptimizedUNet", |_| {});
    let upscalers = repository("tests/profiles/small-tiles.yaml");
    let _ = build_engine(work.path(), &model, &upscalers, &[])
        .failure(1, &["the profile small-tiles has no shapes for task realtime", "fixed shapes"]);
    let checkpoint = work.path().join("checkpoint.safetensors");
    let _ = build_engine(work.path(), &checkpoint, &upscalers, &[])
        .failure(1, &["the profile small-tiles has no shapes for task realtime", "give a profile that has them"]);
    assert!(!work.path().join("engine").exists());
}

#[test]
fn a_checkpoint_of_any_task_becomes_an_engine_at_once() {
    let work = tempfile::tempdir().unwrap();
    let profile = profile(work.path(), "fp32", 100.0);
    for architecture in ["SimpleOptimizedUNet", "UNet2DConditionModel", "CLIPText", "AutoencoderKLDecoder"] {
        let _ = graph(work.path(), architecture, |_| {});
        let checkpoint = work.path().join("checkpoint.safetensors");
        let _ = build_engine(work.path(), &checkpoint, &profile, &[]).success();
        let contract: Json = serde_json::from_str(&contract_of(architecture).to_json().unwrap()).unwrap();
        assert_eq!(manifest_in(work.path())["contract"], contract, "{architecture}");
        assert_verified(work.path());
    }
    let checkpoint = work.path().join("checkpoint.safetensors");
    let _ = build_engine(work.path(), &checkpoint, &profile, &["--component", "unet"])
        .failure(1, &["no known architecture fits", "none has one of their names"]);
}
