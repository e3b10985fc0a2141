//! Engines of several parts through the programs: diffusion pipelines in diffusers' layout, signed and packed as one
//! engine.

use end_to_end::{Outcome, Weight, copy_weights, names_in, new_key, repository, run, words};
use safetensors::tensor::Dtype;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// The vocabulary size of the golden text encoders, and the width of their states.
const VOCABULARY: usize = 99;
const WIDTH: usize = 16;

/// Copies weights. The network then takes texts of this width.
fn copy_widened(from: &Path, to: &Path, width: usize) {
    copy_weights(from, to, |name, Weight { shape, data, .. }| {
        if name.ends_with("attn2.to_k.weight") || name.ends_with("attn2.to_v.weight") {
            let row = data.len() / shape[0];
            let wide = row / shape[1] * width;
            *data =
                data.chunks(row).flat_map(|row| row.iter().cycle().take(wide).copied().collect::<Vec<_>>()).collect();
            shape[1] = width;
        }
    });
}

/// Multiplies a text encoder's states by a factor.
fn multiply_states(encoder: &Path, factor: f32) {
    let path = encoder.join("model.safetensors");
    copy_weights(&path, &path, |name, Weight { kind, data, .. }| {
        if name.contains("final_layer_norm.") {
            assert_eq!(*kind, Dtype::F32);
            for value in data.as_chunks_mut::<4>().0 {
                *value = (f32::from_le_bytes(*value) * factor).to_le_bytes();
            }
        }
    });
}

fn change(path: &Path, change: impl FnOnce(&mut Value)) {
    let mut value: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    change(&mut value);
    fs::write(path, value.to_string()).unwrap();
}

/// A pipeline's folder with golden components that fit together: Stable Diffusion's, or SDXL's.
fn pipeline(folder: &Path, is_xl: bool) -> PathBuf {
    let root = folder.join(if is_xl { "xl" } else { "sd" });
    let class = if is_xl { "StableDiffusionXLPipeline" } else { "StableDiffusionPipeline" };
    let mut index = json!({ "_class_name": class, "safety_checker": [null, null], "image_encoder": [null, null] });
    let mut components = vec![
        ("unet", "UNet2DConditionModel", if is_xl { "unet-xl" } else { "unet" }),
        ("vae", "AutoencoderKL", "vae"),
        ("text_encoder", "CLIPTextModel", if is_xl { "text-quick-gelu" } else { "text" }),
    ];
    if is_xl {
        components.push(("text_encoder_2", "CLIPTextModelWithProjection", "text-projection"));
    }
    let width = if is_xl { 2 * WIDTH } else { WIDTH };
    for (name, class, case) in components {
        let (from, to) = (repository(&format!("tests/golden-diffusers/{case}")), root.join(name));
        fs::create_dir_all(&to).unwrap();
        for file in names_in(&from).into_iter().filter(|file| !file.contains("golden")) {
            if name == "unet" && file.ends_with(".safetensors") {
                copy_widened(&from.join(&file), &to.join(&file), width);
            } else {
                fs::copy(from.join(&file), to.join(&file)).unwrap();
            }
        }
        index[name] = json!(["library", class]);
        if let Some(number) = name.strip_prefix("text_encoder") {
            let tokenizer = root.join(format!("tokenizer{number}"));
            write_tokenizer(&tokenizer, VOCABULARY);
            index[format!("tokenizer{number}")] = json!(["transformers", "CLIPTokenizer"]);
        }
    }
    change(&root.join("unet/config.json"), |config| config["cross_attention_dim"] = json!(width));
    fs::create_dir(root.join("scheduler")).unwrap();
    let scheduler = json!({ "_class_name": "EulerDiscreteScheduler" });
    fs::write(root.join("scheduler/scheduler_config.json"), scheduler.to_string()).unwrap();
    index["scheduler"] = json!(["diffusers", "EulerDiscreteScheduler"]);
    fs::write(root.join("model_index.json"), index.to_string()).unwrap();
    root
}

fn write_tokenizer(folder: &Path, vocabulary: usize) {
    fs::create_dir_all(folder).unwrap();
    // Letters are unknown to the tokenizer, and unknown tokens become the end token.
    let mut tokens: Vec<String> = (2..vocabulary).map(|token| format!("t{token}")).collect();
    tokens.extend(["<|startoftext|>", "<|endoftext|>"].map(ToOwned::to_owned));
    let tokens: BTreeMap<String, usize> = tokens.into_iter().zip(0..).collect();
    fs::write(folder.join("vocab.json"), json!(tokens).to_string()).unwrap();
    fs::write(folder.join("merges.txt"), "#version: 0.2\n").unwrap();
    fs::write(folder.join("special_tokens_map.json"), r#"{ "pad_token": "t2" }"#).unwrap();
}

fn build(from: &Path, engine: &Path, more: &[&str]) -> Outcome {
    let profile = repository("profiles/cpu.yaml");
    let line = words(&[&"build", &from, &"--profile", &profile, &"-o", &engine]);
    run("engine-builder", line.into_iter().chain(more.iter().map(OsString::from)))
}

fn inspected(engine: &Path) -> Value {
    run("runtime", words(&[&"inspect", &"--engine", &engine, &"--json"])).success().json()
}

/// The shapes of an input of a part, one for each graph.
fn shapes(manifest: &Value, part: &str, input: &str) -> Vec<Vec<u64>> {
    let shape = |graph: &Value| serde_json::from_value(graph["inputs"][input].clone()).unwrap();
    manifest["parts"][part]["graphs"].as_array().unwrap().iter().map(shape).collect()
}

#[test]
fn a_pipelines_folder_becomes_one_engine() {
    let work = tempfile::tempdir().unwrap();
    let (from, engine) = (pipeline(work.path(), false), work.path().join("engine"));
    let told = build(&from, &engine, &["--size", "32x16", "--batch", "2", "--tokens", "11,22"]).success();
    assert!(told.stderr.contains("unet: UNet2DConditionModel, fp32") && told.stderr.contains("in 4 parts"));
    let parts = ["text_encoder", "unet", "vae_decoder", "vae_encoder"];
    let mut names: Vec<&str> = parts.into_iter().chain(["manifest.json", "model_index.json"]).collect();
    names.extend(["scheduler", "tokenizer"]);
    names.sort_unstable();
    assert_eq!(names_in(&engine), names);
    assert_eq!(names_in(&engine.join("tokenizer")), ["merges.txt", "special_tokens_map.json", "vocab.json"]);
    for file in ["model_index.json", "scheduler/scheduler_config.json", "tokenizer/vocab.json"] {
        assert_eq!(fs::read(engine.join(file)).unwrap(), fs::read(from.join(file)).unwrap());
    }
    let manifest = inspected(&engine);
    let diffusion = json!({
        "class": "StableDiffusionPipeline", "force_zeros_for_empty_prompt": false, "requires_aesthetics_score": false,
        "roles": {
            "denoiser": "unet", "decoder": "vae_decoder", "encoder": "vae_encoder",
            "texts": [{ "part": "text_encoder", "tokenizer": "tokenizer" }],
            "conditions": {
                "encoder_hidden_states": [{ "part": "text_encoder", "output": "last_hidden_state" }],
            },
        },
    });
    assert_eq!(manifest["diffusion"], diffusion);
    // The autoencoder halves once. Texts of two lengths have a graph each, for up to two pictures with guidance.
    assert_eq!(shapes(&manifest, "unet", "encoder_hidden_states"), [[4, 11, 16], [4, 22, 16]].map(Vec::from));
    assert!(shapes(&manifest, "unet", "sample").iter().all(|shape| *shape == [4, 4, 8, 16]));
    assert_eq!(shapes(&manifest, "vae_decoder", "latent_sample"), [[1, 4, 8, 16]]);
    assert_eq!(shapes(&manifest, "vae_encoder", "sample"), [[1, 3, 16, 32]]);
    assert_eq!(shapes(&manifest, "text_encoder", "input_ids"), [[2, 11]]);
    let graphs = ["unet", "text_encoder"].map(|part| manifest["parts"][part]["graphs"].as_array().unwrap());
    for graph in graphs.into_iter().flatten() {
        assert!(graph["any_batch"] == true && graph["file"].as_str().unwrap().starts_with("model-any"), "{graph}");
        let [one, all] = ["values_bytes_of_one", "values_bytes"].map(|key| graph[key].as_u64().unwrap());
        assert!(0 < one && one < all, "{graph}");
    }
    // All parts have made a picture together.
    let gates = manifest["gates"].as_array().unwrap();
    assert_eq!(gates.iter().map(|gate| &gate["name"]).collect::<Vec<_>>(), ["finite", "psnr_db"]);
    assert!(gates.iter().all(|gate| gate["graph"] == "picture"));
    // Guidance makes errors at most ten times as large.
    assert_eq!(gates[1]["floor"], 80.0);
    assert!(gates[1]["value"].as_f64().unwrap() > 80.0, "{gates:?}");
    assert!(told.stderr.contains("a picture of 32×16 by all parts") && told.stderr.contains("gate picture: psnr_db"));
    let shown = run("runtime", words(&[&"inspect", &"--engine", &engine])).success().stdout;
    assert!(shown.contains("gate             psnr_db on picture: "), "{shown}");
    assert!(shown.contains("StableDiffusionPipeline") && shown.contains("part             unet, unet"), "{shown}");
    let of_any_batch = "timestep [any] with at most 4 samples to out_sample [any, 4, 8, 16]";
    assert!(shown.contains(of_any_batch) && shown.contains("input_ids [any, 11] with at most 2 samples"), "{shown}");
    let verified = run("runtime", words(&[&"verify", &"--engine", &engine, &"--json"])).success().json();
    assert!(verified["passed"] == true && verified["parts"].as_object().unwrap().len() == 4, "{verified}");
    let judged = run("runtime", words(&[&"doctor", &"--engine", &engine, &"--json"])).success().json();
    assert_eq!(judged["engine"].as_array().unwrap().iter().map(|each| &each["part"]).collect::<Vec<_>>(), parts);
    let warmed = run("runtime", words(&[&"warm", &"--engine", &engine, &"--json"])).success().json();
    assert_eq!(warmed["warmed"].as_array().unwrap().len(), 5);
    // Autoencoders are found among the parts; commands for one network list them.
    let picture = repository("tests/images/coffee.png");
    let roundtrip = words(&[&"roundtrip", &"--engine", &engine, &"--input", &picture, &"--json"]);
    assert!(run("runtime", roundtrip).success().json()["psnr_db"].is_number());
    let _ = run("runtime", words(&[&"bench", &"--engine", &engine]))
        .failure(1, &["one of the parts text_encoder, unet, vae_decoder, vae_encoder", "give the folder of one"]);
    let part = engine.join("text_encoder");
    let _ = run("runtime", words(&[&"bench", &"--engine", &part, &"--runs", &"1", &"--passes", &"1"])).success();
}

/// A profile for GPUs in 16 bits, whose engines are portable.
const HALF: &str = "\
name: half
gpu: Some GPU
driver_names: [Some GPU]
architecture: Ada Lovelace
compute_capability: 8.9
memory: 24 GB
bandwidth: 1008 GB/s
provider: cuda
precision: fp16
floors: { psnr_db: 40, cosine: 0.99 }
tasks:
  unet: { tiles: [8x8] }
  vae_encoder: { tiles: [16x16] }
  vae_decoder: { tiles: [8x8] }
";

#[test]
fn networks_that_hold_alone_and_not_together_are_refused() {
    let work = tempfile::tempdir().unwrap();
    let (from, engine) = (pipeline(work.path(), false), work.path().join("engine"));
    let half = work.path().join("half.yaml");
    fs::write(&half, HALF).unwrap();
    let line = words(&[&"build", &from, &"--profile", &half, &"--size", &"16x16", &"-o", &engine]);
    let build = || run("engine-builder", line.iter().cloned());
    let _ = build().success();
    let gates = &inspected(&engine)["gates"];
    assert_eq!((&gates[1]["name"], &gates[1]["floor"]), (&json!("psnr_db_emulated"), &json!(20.0)), "{gates}");
    fs::remove_dir_all(&engine).unwrap();
    // The text encoder computes such large states in FP32. The network was calibrated on smaller states, so FP16
    // cannot hold its values for these.
    multiply_states(&from.join("text_encoder"), 1e6);
    let _ = build().failure(4, &["picture: finite is 0.00, expected at least 1.00"]);
    assert_eq!(names_in(work.path()), ["half.yaml", "sd"]);
}

/// The plans do not run on a CPU. The gates measure the graphs that the plans are built from, rounded as the GPU
/// rounds them.
#[cfg(feature = "rtx")]
#[test]
fn pipelines_for_rtx_gpus_have_plans_of_all_parts_and_a_measured_picture() {
    let work = tempfile::tempdir().unwrap();
    let from = pipeline(work.path(), false);
    let profiles =
        ["rtx4090", "rtx5090"].map(|name| repository(&format!("profiles/{name}.yaml")).to_str().unwrap().to_owned());
    let output = work.path().join("{profile}");
    let line = words(&[&"build", &from, &"--profile", &profiles.join(","), &"--size", &"16x16", &"-o", &output]);
    let told = run("engine-builder", line.into_iter().chain(words(&[&"--require-compiled"]))).success();
    assert_eq!(told.stderr.matches("a picture of 16×16 by all parts").count(), 2, "{}", told.stderr);
    for (name, capability) in [("rtx4090", "8.9"), ("rtx5090", "12.0")] {
        let engine = work.path().join(name);
        let manifest = inspected(&engine);
        // The floor is the networks' floor, 60 dB, minus the loss by guidance.
        let gates = manifest["gates"].as_array().unwrap();
        let [finite, psnr_db] = gates.as_slice() else { panic!("{gates:?}") };
        assert_eq!(finite, &json!({ "name": "finite", "graph": "picture", "value": 1.0, "floor": 1.0 }));
        assert_eq!((&psnr_db["name"], &psnr_db["floor"]), (&json!("psnr_db_emulated"), &json!(40.0)), "{gates:?}");
        // FP16 rounds: an engine measured in FP32 would be closer.
        assert!((40.0..100.0).contains(&psnr_db["value"].as_f64().unwrap()), "{gates:?}");
        let parts = manifest["parts"].as_object().unwrap();
        assert_eq!(parts.keys().collect::<Vec<_>>(), ["text_encoder", "unet", "vae_decoder", "vae_encoder"]);
        let mut graphs = 0;
        for (part, manifest) in parts {
            assert_eq!(manifest["target"]["provider"], "tensorrt-rtx", "{part}");
            let mut gates = manifest["gates"].as_array().unwrap().iter();
            assert!(gates.any(|gate| gate["name"] == "psnr_db_emulated"), "{part}: {manifest}");
            for graph in manifest["graphs"].as_array().unwrap() {
                let plan = &graph["plan"];
                assert_eq!(plan["compute_capabilities"], json!([capability]), "{part}: {graph}");
                let bytes = fs::read(engine.join(part).join(plan["file"].as_str().unwrap())).unwrap();
                assert!(bytes.starts_with(b"vtrt"), "{part}: {graph}");
                graphs += 1;
            }
        }
        // One picture without and with guidance.
        assert_eq!(shapes(&manifest, "unet", "sample"), [[1, 4, 8, 8], [2, 4, 8, 8]]);
        assert_eq!(graphs, 5);
        let shown = run("runtime", words(&[&"inspect", &"--engine", &engine])).success().stdout;
        let plan = format!("plan of TensorRT for RTX 1.7.1.116 for compute {capability}");
        assert_eq!(shown.matches(&plan).count(), graphs, "{shown}");
        assert!(shown.contains("gate             psnr_db_emulated on picture: "), "{shown}");

        // On a machine without such a GPU, the CPU runs the graphs, but does not count as the GPU.
        let line = words(&[&"verify", &"--engine", &engine, &"--json"]);
        let verified = run("runtime", &line).success();
        assert!(verified.stderr.contains("steps down from tensorrt-rtx to "), "{}", verified.stderr);
        let verified = verified.json();
        assert!(verified["passed"] == true && verified["parts"].as_object().unwrap().len() == 4, "{verified}");
        let on_gpu = line.into_iter().chain(words(&[&"--provider", &"tensorrt-rtx"]));
        let _ = run("runtime", on_gpu).failure(3, &["refused, because tensorrt-rtx: "]);
        let picture = work.path().join("picture.png");
        let line = words(&[&"generate", &"--engine", &engine, &"--prompt", &"a fox", &"--output", &picture]);
        let _ = run("runtime", line.into_iter().chain(words(&[&"--steps", &"2"]))).success();
        assert_eq!(image::open(&picture).unwrap().into_rgb8().dimensions(), (16, 16));
        fs::remove_file(picture).unwrap();
    }
    // The manifests list every plan as one of their files.
    let plans = work.path().join("rtx4090/unet/tensorrt-rtx");
    let name = names_in(&plans).into_iter().find(|name| name.ends_with(".plan")).unwrap();
    fs::write(plans.join(&name), b"vtrt").unwrap();
    let _ = run("runtime", words(&[&"verify", &"--engine", &work.path().join("rtx4090")])).failure(1, &[&name]);
}

#[test]
fn one_signature_covers_a_shipped_pipeline() {
    let work = tempfile::tempdir().unwrap();
    let (from, engine) = (pipeline(work.path(), true), work.path().join("engine"));
    let built = build(&from, &engine, &["--size", "16x16", "--json"]).success().json();
    assert_eq!(built["parts"].as_object().unwrap().len(), 5);
    assert_eq!(built["diffusion"]["force_zeros_for_empty_prompt"], true);
    let [private, public] = new_key(work.path(), "ours");
    let _ = run("engine-builder", words(&[&"sign", &engine, &"--key", &private])).success();
    let (archive, unpacked) = (work.path().join("engine.tar"), work.path().join("unpacked"));
    let _ = run("engine-builder", words(&[&"pack", &engine, &"-o", &archive])).success();
    let unpack = words(&[&"unpack", &archive, &"-o", &unpacked, &"--require-signature", &public]);
    let _ = run("runtime", unpack).success();
    let equal = run("engine-builder", words(&[&"diff", &engine, &unpacked])).success().stdout;
    assert_eq!(equal.trim(), "the engines are equal");
    let signed = |engine: &Path, more: &[&str]| {
        let line = words(&[&"verify", &"--engine", &engine, &"--require-signature", &public]);
        run("runtime", line.into_iter().chain(more.iter().map(OsString::from)))
    };
    let _ = signed(&unpacked, &[]).success();
    // The pipeline's signature covers a part, which has no signature of its own.
    let _ = signed(&unpacked, &["--part", "unet"]).success();
    let _ = signed(&unpacked.join("unet"), &[]).failure(1, &["a signature is required"]);
    let manifest = unpacked.join("vae_decoder/manifest.json");
    change(&manifest, |manifest| manifest["model"]["licence"] = json!("MIT"));
    let _ = signed(&unpacked, &[]).failure(1, &["vae_decoder/manifest.json: expected"]);
    // The same inputs give the same bytes.
    let again = work.path().join("again").join("engine");
    let _ = build(&from, &again, &["--size", "16x16"]).success();
    let differences = run("engine-builder", words(&[&"diff", &engine, &again, &"--json"])).success().json();
    assert_eq!(differences, json!([]));
}

#[test]
fn a_pipeline_in_one_file_takes_everything_else_from_a_folder() {
    let work = tempfile::tempdir().unwrap();
    let (described, engine) = (pipeline(work.path(), true), work.path().join("engine"));
    let single = work.path().join("single.safetensors");
    copy_widened(&repository("tests/golden-diffusers/single-file-xl/checkpoint.safetensors"), &single, 2 * WIDTH);
    let _ = build(&single, &engine, &[]).failure(1, &["a whole pipeline in one file", "--config"]);
    let config = described.to_str().unwrap();
    let _ = build(&single, &engine, &["--config", config, "--size", "16x16"]).success();
    let manifest = inspected(&engine);
    assert_eq!(manifest["parts"].as_object().unwrap().len(), 5);
    assert!(manifest["files"].as_object().unwrap().contains_key("tokenizer_2/vocab.json"));
    // A network for texts of another width belongs to another pipeline.
    let foreign = repository("tests/golden-diffusers/single-file-xl/checkpoint.safetensors");
    change(&described.join("unet/config.json"), |config| config["cross_attention_dim"] = json!(12));
    let expected = ["texts of width 12", "text_encoder and text_encoder_2 gives 32", "of one pipeline"];
    let _ = build(&foreign, &work.path().join("other"), &["--config", config]).failure(1, &expected);
}

#[test]
fn what_does_not_belong_together_is_refused_and_nothing_is_written() {
    let work = tempfile::tempdir().unwrap();
    let refused = |is_xl: bool, spoil: &dyn Fn(&Path), more: &[&str], code: i32, expected: &[&str]| {
        let folder = tempfile::tempdir_in(work.path()).unwrap();
        let from = pipeline(folder.path(), is_xl);
        spoil(&from);
        let _ = build(&from, &folder.path().join("engine"), more).failure(code, expected);
        assert_eq!(names_in(folder.path()), [if is_xl { "xl" } else { "sd" }]);
    };
    let without = |name: &'static str| {
        move |from: &Path| {
            change(&from.join("model_index.json"), |index| drop(index.as_object_mut().unwrap().remove(name)));
        }
    };
    let size = ["--size", "16x16"];
    refused(false, &without("unet"), &size, 1, &["sd: expected the component `unet`, found none"]);
    refused(false, &without("vae"), &size, 1, &["expected the component `vae`"]);
    refused(false, &without("text_encoder"), &size, 1, &["expected the component `text_encoder`"]);
    let remove = |name: &'static str| move |from: &Path| fs::remove_dir_all(from.join(name)).unwrap();
    refused(false, &remove("unet"), &size, 1, &["sd/unet: cannot read the folder"]);
    refused(false, &remove("scheduler"), &size, 1, &["sd/scheduler: cannot read the folder"]);
    let delete = |name: &'static str| move |from: &Path| fs::remove_file(from.join(name)).unwrap();
    let expected = ["expected the file scheduler/scheduler_config.json, found none"];
    refused(false, &delete("scheduler/scheduler_config.json"), &size, 1, &expected);
    let expected = ["expected vocab.json and merges.txt, or tokenizer.json, in tokenizer"];
    refused(false, &delete("tokenizer/merges.txt"), &size, 1, &expected);
    let swap = |one: &'static str, other: &'static str| {
        move |from: &Path| {
            fs::rename(from.join(one), from.join("x")).unwrap();
            fs::rename(from.join(other), from.join(one)).unwrap();
            fs::rename(from.join("x"), from.join(other)).unwrap();
        }
    };
    let expected = ["of the class CLIPTextModel, as model_index.json says of", "found CLIPTextModelWithProjection"];
    refused(true, &swap("text_encoder", "text_encoder_2"), &size, 1, &expected);
    refused(false, &swap("unet", "vae"), &size, 1, &["of the class UNet2DConditionModel", "found AutoencoderKL"]);
    let unknown = |from: &Path| {
        change(&from.join("scheduler/scheduler_config.json"), |config| config["_class_name"] = json!("OtherScheduler"));
    };
    refused(false, &unknown, &size, 1, &["scheduler_config.json", "unknown scheduler class \"OtherScheduler\""]);
    // The picture's gate uses its own scheduler; the pipeline's scheduler is also checked.
    for (key, value, words) in [
        ("sigma_min", json!(0), ["sigma_min is 0", "expected a positive number"]),
        ("num_train_timesteps", json!(1), ["num_train_timesteps is 1", "expected a whole number from 2 to"]),
        ("prediction_type", json!("guess"), ["prediction_type is \"guess\"", "expected epsilon or"]),
    ] {
        let never = |from: &Path| {
            change(&from.join("scheduler/scheduler_config.json"), |config| config[key] = value.clone());
        };
        refused(false, &never, &size, 1, &["scheduler_config.json", words[0], words[1]]);
    }
    let other = |from: &Path| write_tokenizer(&from.join("tokenizer"), VOCABULARY + 1);
    refused(false, &other, &size, 1, &["expected a vocabulary of 99 tokens, as text_encoder has it, found one of 100"]);
    let typed = |from: &Path| {
        change(&from.join("model_index.json"), |index| index["requires_aesthetics_score"] = json!("yes"));
    };
    refused(false, &typed, &size, 1, &["requires_aesthetics_score: expected true or false, found \"yes\""]);
    let nothing = |_: &Path| ();
    refused(false, &nothing, &["--size", "36x16"], 1, &["no width of 36 is possible; the next one that is has 40"]);
    refused(false, &nothing, &["--set", "a=1"], 2, &["leave --set, --chunk and --frames out"]);
    refused(false, &nothing, &["--component", "vae"], 2, &["expected one of text_encoder, unet"]);
    refused(false, &nothing, &["--calibration", "/"], 2, &["expected folders in it, named after the parts"]);
    let upscaler = repository("models/compact-x4.yaml");
    let _ = build(&upscaler, &work.path().join("engine"), &["--batch", "2"])
        .failure(2, &["only a pipeline takes a batch", "leave --batch out"]);
}
