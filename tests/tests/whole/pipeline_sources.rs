//! Diffusion pipelines from every kind of source, up to a picture: folders, model files, adapted weights, variants of
//! weights, and several sizes.

use end_to_end::{
    GoldenPipelines, Outcome, Weight, command, copy_folder, copy_weights, names_in, repository, run, words,
};
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tileforge_engine::digest::sha256_file;

/// A layer of the golden pipelines' network, by its name in files of adaptations, and its weight.
const LAYER: &str = "lora_unet_down_blocks_0_attentions_0_transformer_blocks_0_attn2_to_k";
const WEIGHT: &str = "down_blocks.0.attentions.0.transformer_blocks.0.attn2.to_k.weight";
/// The network's weights in the layout of diffusers.
const UNET: &str = "unet/diffusion_pytorch_model.safetensors";
/// 1 as a 16-bit float in little-endian bytes.
const ONE: [u8; 2] = [0x00, 0x3C];

/// The folder of a golden pipeline.
fn folder(work: &Path, name: &str) -> PathBuf {
    GoldenPipelines::read().write_folder(work, name)
}

/// Builds an engine for pictures of 64×64, with model files' weights in `work/weights`.
fn build(work: &Path, from: &Path, engine: &Path, more: &[&str]) -> Outcome {
    let line = words(&[&"build", &from, &"--profile", &repository("profiles/cpu.yaml"), &"-o", &engine]);
    let size = if more.contains(&"--size") { &[][..] } else { &["--size", "64x64"] };
    let mut command = command("engine-builder", line.into_iter().chain(size.iter().chain(more).map(OsString::from)));
    Outcome::of(command.env("MODEL_PATH", work.join("weights")).env("HF_HUB_CACHE", work.join("none")))
}

/// The samples of a picture.
fn picture(engine: &Path) -> Vec<u8> {
    let output = engine.with_extension("png");
    let options = [&"--prompt", &"a red fox", &"--steps", &"2", &"--seed", &"0"]
        .map(|option| option as &dyn AsRef<std::ffi::OsStr>);
    let line = words(&[&"generate", &"--engine", &engine, &"--output", &output]);
    let _ = run("runtime", line.into_iter().chain(words(&options))).success();
    image::open(output).unwrap().into_rgb8().into_raw()
}

/// Sets all elements of a layer's weight.
fn set_layer(pipeline: &Path, element: [u8; 2]) {
    let path = pipeline.join(UNET);
    copy_weights(&path, &path, |name, Weight { kind, data, .. }| {
        if name == WEIGHT {
            assert_eq!(*kind, Dtype::F16);
            *data = element.repeat(data.len() / 2);
        }
    });
}

/// Writes a file of adaptations that adds 2 to every element of that weight.
fn lora(path: &Path) {
    let data = 1_f32.to_le_bytes().repeat(2 * 16);
    let view =
        |shape: [usize; 2]| TensorView::new(Dtype::F32, shape.to_vec(), &data[..4 * shape[0] * shape[1]]).unwrap();
    let tensors =
        [(format!("{LAYER}.lora_down.weight"), view([2, 16])), (format!("{LAYER}.lora_up.weight"), view([8, 2]))];
    fs::write(path, safetensors::serialize(tensors, None).unwrap()).unwrap();
}

/// Writes the model file `name` of this repository for the small weights of a pipeline's folder, and puts these
/// weights in the place of the model's weights.
fn model_file(work: &Path, name: &str, pipeline: &Path) -> PathBuf {
    let described = run("engine-builder", ["models", "--json"]).success().json();
    let mut model = described.as_array().unwrap().iter().find(|model| model["name"] == name).unwrap().clone();
    model.as_object_mut().unwrap().remove("available");
    for (file, facts) in model["files"].as_object_mut().unwrap() {
        let to = work.join("weights").join(name).join(file);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(pipeline.join(file.replace(".fp16", "")), &to).unwrap();
        *facts = json!({});
    }
    for graph in model["graphs"].as_object_mut().unwrap().values_mut() {
        graph["hyperparameters"] = json!({});
    }
    if name == "sdxl-base" {
        let config = fs::read(pipeline.join("text_encoder_2/config.json")).unwrap();
        let width = serde_json::from_slice::<Value>(&config).unwrap()["projection_dim"].to_string();
        model["graphs"]["unet"]["set"] = json!({ "text_embeds_width": width });
    }
    let path = work.join(format!("{name}.yaml"));
    // JSON is YAML.
    fs::write(&path, model.to_string()).unwrap();
    path
}

#[test]
fn a_model_file_gives_the_picture_of_its_folder() {
    let work = tempfile::tempdir().unwrap();
    for (name, golden) in [("sd15", "sd"), ("sdxl-base", "xl")] {
        let from = folder(work.path(), golden);
        let (one, other) = (work.path().join(golden), work.path().join(name));
        let _ = build(work.path(), &from, &one, &[]).success();
        let described = model_file(work.path(), name, &from);
        let _ = build(work.path(), &described, &other, &[]).success();
        assert!(picture(&one) == picture(&other), "{name}");
        let _ = build(work.path(), &described, &work.path().join("x"), &["--variant", "fp16"])
            .failure(2, &["leave --variant and --config out"]);
    }
}

#[test]
fn adaptations_are_merged_into_folders_and_model_files() {
    let work = tempfile::tempdir().unwrap();
    let from = folder(work.path(), "sd");
    set_layer(&from, [0, 0]);
    let described = model_file(work.path(), "sd15", &from);
    let by_hand = work.path().join("by-hand.folder");
    copy_folder(&from, &by_hand);
    set_layer(&by_hand, ONE);
    let style = work.path().join("style.safetensors");
    lora(&style);
    let half = format!("{}:0.5", style.display());
    let made = |name: &str, from: &Path, more: &[&str]| {
        let engine = work.path().join(name);
        let _ = build(work.path(), from, &engine, more).success();
        picture(&engine)
    };
    let expected = made("by-hand", &by_hand, &[]);
    assert!(made("plain", &from, &[]) != expected);
    assert!(made("adapted", &from, &["--lora", &half]) == expected);
    assert!(made("adapted-model", &described, &["--lora", &half]) == expected);
    // Rebuilt from the manifests: the adaptations are found beside the engine's other inputs.
    for (name, from) in [("adapted", &from), ("adapted-model", &described)] {
        let engine = work.path().join(name);
        let before = fs::read(engine.join("manifest.json")).unwrap();
        let rebuild = |more: &[&dyn AsRef<std::ffi::OsStr>]| {
            let line = [&"rebuild" as &dyn AsRef<std::ffi::OsStr>, &engine, &"--model", from];
            let mut command = command("engine-builder", words(&[&line, more].concat()));
            Outcome::of(
                command.env("MODEL_PATH", work.path().join("weights")).env("HF_HUB_CACHE", work.path().join("x")),
            )
        };
        let told = rebuild(&[]).success().stderr;
        assert!(told.contains("all files are the same as before"), "{told}");
        assert!(fs::read(engine.join("manifest.json")).unwrap() == before);
        let other = work.path().join("other.safetensors");
        let text = fs::read(&style).unwrap();
        fs::write(&other, [&text[..text.len() - 4], &2_f32.to_le_bytes()].concat()).unwrap();
        let _ = rebuild(&[&"--lora", &other]).failure(1, &["style.safetensors: expected SHA-256"]);
    }
    // A file for a network of other sizes.
    let wrong = folder(work.path(), "xl");
    let refused = ["style.safetensors", "2 tensors are of no layer"];
    let _ = build(work.path(), &wrong, &work.path().join("x"), &["--lora", &half]).failure(1, &refused);
    assert!(!work.path().join("x").exists());
}

#[test]
fn a_variant_of_the_weights_is_chosen() {
    let work = tempfile::tempdir().unwrap();
    let from = folder(work.path(), "sd");
    let plain = work.path().join("plain");
    let _ = build(work.path(), &from, &plain, &[]).success();
    let _ = build(work.path(), &from, &work.path().join("x"), &["--variant", "fp16"])
        .failure(1, &["expected weights named", "model.fp16.safetensors"]);
    let of_variant = |file: &str| file.replace(".safetensors", ".fp16.safetensors");
    for file in [UNET, "vae/diffusion_pytorch_model.safetensors", "text_encoder/model.safetensors"] {
        fs::copy(from.join(file), from.join(of_variant(file))).unwrap();
    }
    set_layer(&from, ONE);
    let (chosen, other) = (work.path().join("chosen"), work.path().join("other"));
    let _ = build(work.path(), &from, &chosen, &["--variant", "fp16"]).success();
    let _ = build(work.path(), &from, &other, &[]).success();
    assert!(picture(&chosen) == picture(&plain));
    assert!(picture(&chosen) != picture(&other));
    let part = run("runtime", words(&[&"inspect", &"--engine", &chosen, &"--part", &"unet", &"--json"]));
    let digest = sha256_file(&from.join(of_variant(UNET))).unwrap().sha256;
    assert_eq!(part.success().json()["model"]["checkpoint_sha256"], digest);
}

/// The bytes of all weights, where shared files count once, and the bytes of all other files.
fn bytes_on_disk(engine: &Path) -> [u64; 2] {
    let (mut seen, mut bytes) = (Vec::new(), [0, 0]);
    for part in ["text_encoder", "unet", "vae_decoder", "vae_encoder"] {
        for name in names_in(&engine.join(part)) {
            let facts = fs::metadata(engine.join(part).join(&name)).unwrap();
            if !seen.contains(&facts.ino()) {
                seen.push(facts.ino());
                bytes[usize::from(name != "model.weights")] += facts.len();
            }
        }
    }
    bytes
}

#[test]
fn sizes_of_one_engine_share_their_weights() {
    let work = tempfile::tempdir().unwrap();
    let from = folder(work.path(), "sd");
    let [one, several] = ["one", "several"].map(|name| work.path().join(name));
    let _ = build(work.path(), &from, &one, &[]).success();
    let _ = build(work.path(), &from, &several, &["--size", "64x64,128x64,64x128", "--batch", "2"]).success();
    let ([weights, others], [shared, more]) = (bytes_on_disk(&one), bytes_on_disk(&several));
    // Three times as many sizes and twice as many batches. Graphs are small compared with the weights of published
    // models: for Stable Diffusion 1.5, each size adds 0.1 % of the weights' bytes.
    assert_eq!(weights, shared);
    assert!((2 * others..6 * others).contains(&more), "{others} and {more} bytes");
    assert_eq!(picture(&one).len(), 64 * 64 * 3);
    let large = work.path().join("large.png");
    let line = words(&[&"generate", &"--engine", &several, &"--output", &large, &"--prompt", &"a fox"]);
    let options = words(&[&"--steps", &"2", &"--size", &"64x128", &"--count", &"2"]);
    let _ = run("runtime", line.into_iter().chain(options)).success();
    let made = image::open(work.path().join("large-2.png")).unwrap();
    assert_eq!((made.width(), made.height()), (64, 128));
}

/// Small networks are slower in 8 bits: their speed has no floor.
const SMALL: &str = "\
name: small
provider: cpu
precision: fp32
tasks:
  unet: { tiles: [8x8] }
  vae_encoder: { tiles: [64x64] }
  vae_decoder: { tiles: [8x8] }
floors: { psnr_db: 100, cosine: 0.999999, speed: 0 }
";

#[test]
fn eight_bits_are_for_the_parts_that_take_the_time() {
    let work = tempfile::tempdir().unwrap();
    let (from, engine) = (folder(work.path(), "sd"), work.path().join("engine"));
    let small = work.path().join("small.yaml");
    fs::write(&small, SMALL).unwrap();
    // An option for 8 bits applies to the parts in 8 bits.
    let line =
        words(&[&"build", &from, &"--profile", &small, &"--precision", &"int8", &"--all-layers", &"-o", &engine]);
    let _ = run("engine-builder", line).success();
    let manifest = run("runtime", words(&[&"inspect", &"--engine", &engine, &"--json"])).success().json();
    let precision = |part: &str| manifest["parts"][part]["precision"].as_str().unwrap().to_owned();
    assert_eq!([precision("unet"), precision("vae_decoder")], ["int8", "int8"]);
    assert_eq!([precision("text_encoder"), precision("vae_encoder")], ["fp32", "fp32"]);
    assert_eq!(manifest["gates"][1]["floor"], 15.0);
    assert_eq!(picture(&engine).len(), 64 * 64 * 3);
}
