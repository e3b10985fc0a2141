//! Pipeline engines of the networks in `tests/golden-pipelines`.

use crate::programs::{edit_manifest, run_with_cache_in, words};
use crate::{copy_folder, repository};
use serde_json::{Map, Value, json};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use tileforge_engine::MANIFEST_FILE;
use tileforge_engine::digest::sha256_file;

/// A profile for CPU engines in full precision. Its sizes are the default: in latent pixels for the network (`SIDE`),
/// and in pixels for the autoencoder.
const PROFILE: &str = "\
name: small
provider: cpu
precision: fp32
tasks:
  unet: { tiles: [SIDExSIDE] }
  vae_encoder: { tiles: [64x64] }
  vae_decoder: { tiles: [8x8] }
floors:
  psnr_db: 100
  cosine: 0.999999
";

/// The golden pipelines and their runs (`tests/golden-pipelines/README.md`).
#[derive(Debug)]
pub struct GoldenPipelines {
    table: Value,
}

/// One or several pictures, and the options that they are made with.
#[derive(Debug)]
pub struct GoldenRun {
    /// The run's name.
    pub name: String,
    /// The pipeline's name.
    pub pipeline: String,
    /// Options of `runtime generate`, where `{inputs}` and `{made}` stand for folders.
    pub options: Vec<String>,
    /// The names of the reference's pictures; empty for a run that gives a latent.
    pub pictures: Vec<String>,
    /// The name of the reference's latent.
    pub latent: Option<String>,
}

fn folder() -> PathBuf {
    repository("tests/golden-pipelines")
}

impl GoldenPipelines {
    /// Reads the table of pipelines and runs.
    pub fn read() -> Self {
        let bytes = fs::read(folder().join("pictures/runs.json")).unwrap();
        Self { table: serde_json::from_slice(&bytes).unwrap() }
    }

    /// The folder of the references' pictures and latents.
    pub fn pictures() -> PathBuf {
        folder().join("pictures")
    }

    /// The folder of the pictures that runs start from.
    pub fn inputs() -> PathBuf {
        folder().join("inputs")
    }

    /// All runs, in an order in which the inputs of each run exist.
    pub fn runs(&self) -> Vec<GoldenRun> {
        let texts = |value: &Value| -> Vec<String> {
            value.as_array().into_iter().flatten().map(|text| text.as_str().unwrap().to_owned()).collect()
        };
        let run = |run: &Value| GoldenRun {
            name: run["name"].as_str().unwrap().to_owned(),
            pipeline: run["pipeline"].as_str().unwrap().to_owned(),
            options: texts(&run["options"]),
            pictures: texts(&run["pictures"]),
            latent: run["latent"].as_str().map(ToOwned::to_owned),
        };
        self.table["runs"].as_array().unwrap().iter().map(run).collect()
    }

    /// Builds `work/NAME`, the engine of the pipeline of this name, unless it exists.
    pub fn engine(&self, work: &Path, name: &str) -> PathBuf {
        self.engine_with(work, name, &[])
    }

    /// The same, with more options of `engine-builder build`.
    pub fn engine_with(&self, work: &Path, name: &str, more: &[&str]) -> PathBuf {
        let engine = work.join(name);
        if engine.exists() {
            return engine;
        }
        let row = &self.table["pipelines"][name];
        let (source, profile) = (self.write_folder(work, name), work.join("small.yaml"));
        let side = row["latent"].as_u64();
        fs::write(&profile, PROFILE.replace("SIDE", &side.unwrap_or(8).to_string())).unwrap();
        let mut line = words(&[&"build", &source, &"--profile", &profile, &"-o", &engine]);
        if side.is_none() {
            // A requested size applies to the network and the autoencoder.
            line.extend(words(&[&"--size", &"64x64"]));
        }
        if let Some(tokens) = row["tokens"].as_u64() {
            line.extend(words(&[&"--tokens", &tokens.to_string()]));
        }
        line.extend(more.iter().map(OsString::from));
        let _ = run_with_cache_in(work, "engine-builder", line).success();
        engine
    }

    /// Writes `work/NAME.folder`, the pipeline in diffusers' layout.
    pub fn write_folder(&self, work: &Path, name: &str) -> PathBuf {
        let row = &self.table["pipelines"][name];
        let root = work.join(format!("{name}.folder"));
        fs::create_dir_all(&root).unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let mut index = json!({ "_class_name": text(&row["class"]) + "Pipeline" });
        for (part, network) in row["parts"].as_object().unwrap() {
            copy_folder(&folder().join(text(network)), &root.join(part));
            let config: Value =
                serde_json::from_slice(&fs::read(root.join(part).join("config.json")).unwrap()).unwrap();
            let class = config["_class_name"].as_str().or(config["architectures"][0].as_str()).unwrap();
            index[part] = json!([if class.starts_with("CLIP") { "transformers" } else { "diffusers" }, class]);
            if let Some(case) = self.table["tokenizers"].get(part) {
                let tokenizer = part.replace("text_encoder", "tokenizer");
                copy_folder(&repository("tests/golden-tokenizer").join(text(case)), &root.join(&tokenizer));
                fs::remove_file(root.join(&tokenizer).join("expected.json")).unwrap();
                index[&tokenizer] = json!(["transformers", "CLIPTokenizer"]);
            }
        }
        for key in ["force_zeros_for_empty_prompt", "requires_aesthetics_score"] {
            if let Some(value) = row.get(key) {
                index[key] = value.clone();
            }
        }
        index["scheduler"] = json!(["diffusers", row["scheduler"]["_class_name"]]);
        fs::create_dir_all(root.join("scheduler")).unwrap();
        fs::write(root.join("scheduler/scheduler_config.json"), row["scheduler"].to_string()).unwrap();
        fs::write(root.join("model_index.json"), index.to_string()).unwrap();
        root
    }
}

/// Writes the manifest of a pipeline engine again after a change of its files: missing files are no longer listed.
pub fn list_again(directory: &Path) {
    edit_manifest(directory, |manifest| {
        let listed = |of: &Value, file: &dyn Fn(&str) -> PathBuf| -> Map<String, Value> {
            let names = of.as_object().unwrap().keys().filter(|name| file(name).exists());
            let digest = |name: &str| serde_json::to_value(sha256_file(&file(name)).unwrap()).unwrap();
            names.map(|name| (name.clone(), digest(name))).collect()
        };
        let parts = listed(&manifest["parts"], &|name| directory.join(name).join(MANIFEST_FILE));
        let files = listed(&manifest["files"], &|name| directory.join(name));
        (manifest["parts"], manifest["files"]) = (parts.into(), files.into());
    });
}

/// Changes the manifest of a pipeline engine, and lists its files again.
pub fn with_manifest(directory: &Path, change: impl FnOnce(&mut Value)) {
    edit_manifest(directory, change);
    list_again(directory);
}
