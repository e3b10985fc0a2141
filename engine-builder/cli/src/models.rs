//! `engine-builder models`: the models that this source tree describes, and whether their weights are on this machine.

use super::failure::{CommandResult, result, result_json};
use serde::Serialize;
use std::path::{Path, PathBuf};
use tileforge_engine_builder::{ModelFile, Origin, Result, WeightFolders};
use tileforge_files::installation::installed;
use tileforge_terminal::{Progress, cache_folder, digests, report};

const HELP: &str = "\
Examples:
  engine-builder models
  engine-builder models --available --names
  engine-builder models sdxl-vae drct-l-x4 --json

Weights are looked for beside the model files, in the folders of MODEL_PATH (separated by colons), in the cache of
`engine-builder fetch`, and in the cache of Hugging Face's programs (HF_HUB_CACHE, HF_HOME).";

/// List the models that are described in `models/`, and whether their weights are on this machine.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(super) struct Arguments {
    /// Names, or paths of model files; all models without any
    models: Vec<String>,
    /// Only models whose weights are on this machine
    #[arg(long)]
    available: bool,
    /// Print their names alone, one a line; `make engines` builds an engine of this name of each
    #[arg(long, conflicts_with = "json")]
    names: bool,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments) -> CommandResult {
    let (folders, weights) = (model_folders(), weight_folders());
    let names = if arguments.models.is_empty() { ModelFile::names(&folders) } else { arguments.models.clone() };
    let mut models = names.iter().map(|name| ModelFile::find(name, &folders)).collect::<Result<Vec<ModelFile>>>()?;
    if models.is_empty() {
        report(&format!("no models were found in {}", list(&folders)));
    }
    if arguments.available {
        models.retain(|model| weights.hold(model));
    }
    if arguments.names {
        return result(&models.iter().map(|model| model.name.as_str()).collect::<Vec<_>>().join("\n"));
    }
    if arguments.json {
        let shown = |model| Shown { model, available: weights.hold(model) };
        return result_json(&models.iter().map(shown).collect::<Vec<_>>());
    }
    let line = |model: &ModelFile| {
        let size = model.size().map_or_else(|| "?".into(), |size| format!("{:.1} MB", size as f64 / 1e6));
        let place = match &model.source {
            _ if weights.hold(model) => "here",
            Some(Origin::Page(_)) => "by hand",
            Some(Origin::Hub { .. } | Origin::Folder(_)) => "to fetch",
            None => "missing",
        };
        format!("{:<24} {place:<9} {size:>9}  {}", model.name, model.description)
    };
    result(&models.iter().map(line).collect::<Vec<_>>().join("\n"))
}

/// The folders as a phrase for a sentence.
pub(super) fn list(folders: &[PathBuf]) -> String {
    folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// What `--json` prints for a model.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    model: &'a ModelFile,
    /// Whether its weights are on this machine.
    available: bool,
}

/// The folders `models/` below the current folder, beside the executable, in its installation, and in the source tree
/// that it was built in. A folder need not exist.
pub(super) fn model_folders() -> Vec<PathBuf> {
    std::iter::once("models".into()).chain(installed("models")).collect()
}

/// The folders of weights that the user's environment names.
pub(super) fn weight_folders() -> WeightFolders {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let mut folders: Vec<PathBuf> = variable("MODEL_PATH").map_or_else(Vec::new, |paths| {
        std::env::split_paths(&paths).filter(|path| !path.as_os_str().is_empty()).collect()
    });
    folders.extend(cache_folder().map(|cache| cache.join("models")));
    // The places that `huggingface_hub` documents.
    let home = variable("HF_HOME").map(PathBuf::from);
    let home = home.or_else(|| variable("XDG_CACHE_HOME").map(|cache| Path::new(&cache).join("huggingface")));
    let home = home.or_else(|| variable("HOME").map(|home| Path::new(&home).join(".cache/huggingface")));
    let hub_cache = variable("HF_HUB_CACHE").map(PathBuf::from).or_else(|| home.map(|home| home.join("hub")));
    WeightFolders { folders, hub_cache, digests: digests(Progress::new()) }
}
