//! `engine-builder fetch`: downloads weights.

use super::failure::{CommandResult, Failure, result};
use super::models;
use std::path::PathBuf;
use std::time::Duration;
use tileforge_engine_builder::{Hub, ModelFile, fetch};
use tileforge_terminal::{Progress, report};

/// How long a server may send nothing before the download counts as interrupted.
const TIMEOUT: Duration = Duration::from_secs(60);

const HELP: &str = "\
Examples:
  engine-builder fetch realesrgan-x4plus sdxl-vae
  MODEL_PATH=/data/models engine-builder fetch drct-l-x4

A download that was cut goes on where it stopped. Every file is compared with its published SHA-256; where none is
published, the digest of the first download is recorded beside the file and holds from then on.

HF_ENDPOINT is another address of the hub, HF_TOKEN the token for models that ask for one. With HF_HUB_OFFLINE=1
nothing is downloaded. A server that sends nothing for 60 seconds is asked again (HF_HUB_DOWNLOAD_TIMEOUT).";

/// Download the weights of models.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(super) struct Arguments {
    /// Names that `engine-builder models` lists, or paths of model files
    #[arg(required = true)]
    models: Vec<String>,
    /// The folder of models; without it the first one of MODEL_PATH, or a folder of the user's cache
    #[arg(long, value_name = "DIR")]
    into: Option<PathBuf>,
}

pub(super) fn run(arguments: &Arguments) -> CommandResult {
    let folders = models::model_folders();
    let found = arguments.models.iter().map(|name| ModelFile::find(name, &folders)).collect::<Result<Vec<_>, _>>()?;
    let folder = arguments.into.clone().or_else(|| models::weight_folders().folders.into_iter().next());
    let Some(folder) = folder else {
        let reason = "there is no home folder to keep weights in; set MODEL_PATH, or give a folder with --into";
        return Err(Failure::Usage(reason.into()));
    };
    let (hub, mut shown) = (hub()?, Progress::new());
    let mut paths = Vec::new();
    for model in &found {
        report(&format!("{}: licence of the weights: {}", model.name, model.licence));
        let fetched = fetch(model, &folder, &hub, &mut shown);
        shown.finish();
        for file in fetched? {
            let megabytes = file.downloaded as f64 / 1e6;
            let how = if file.downloaded == 0 { "was there".into() } else { format!("{megabytes:.1} MB downloaded") };
            report(&format!("{}: {how}", file.path.display()));
            paths.push(file.path.display().to_string());
        }
    }
    result(&paths.join("\n"))
}

/// The hub that the user's environment names, by the variables of Hugging Face's own programs.
fn hub() -> Result<Hub, Failure> {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let is_set = |value: String| ["1", "on", "yes", "true"].contains(&value.to_ascii_lowercase().as_str());
    let patience = match variable("HF_HUB_DOWNLOAD_TIMEOUT") {
        None => TIMEOUT,
        Some(text) => seconds(&text)?,
    };
    Ok(Hub {
        endpoint: variable("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".into()),
        token: variable("HF_TOKEN"),
        is_offline: variable("HF_HUB_OFFLINE").is_some_and(is_set),
        patience,
    })
}

/// A number of seconds that is not 0.
fn seconds(text: &str) -> Result<Duration, Failure> {
    let found = text.parse().ok().filter(|seconds| *seconds > 0).map(Duration::from_secs);
    let wrong = || format!("HF_HUB_DOWNLOAD_TIMEOUT: expected a number of seconds, 1 or more, found `{text}`");
    found.ok_or_else(|| Failure::Usage(wrong()))
}
