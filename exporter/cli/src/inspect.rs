//! `exporter inspect`.

use super::{CommandResult, Hints, result, result_json};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;
use tileforge_contract::{ReceptiveField, Upscale};
use tileforge_exporter::Error;
use tileforge_exporter::arch::detect_task;

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// A checkpoint (.safetensors, .pth, .pt, .ckpt, .bin), the .index.json of a sharded one, or a folder with either
    /// and its config.json
    path: PathBuf,
    #[command(flatten)]
    hints: Hints,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments) -> CommandResult {
    let checkpoint = arguments.hints.open(&arguments.path)?;
    let network = detect_task(&checkpoint, arguments.hints.task()?, &arguments.hints.map())?;
    let contract = network.contract();
    let upscale = Upscale::of(&contract).ok();
    let upscale = upscale.as_ref();
    let hyperparameters = network
        .hyperparameters()
        .map_err(|source| Error::HyperparametersJson { architecture: network.architecture(), source })?;
    let mut types: BTreeMap<&str, usize> = BTreeMap::new();
    for weight in checkpoint.tensors().values() {
        *types.entry(weight.data_type().name()).or_default() += 1;
    }
    if arguments.json {
        return result_json(&json!({
            // JSON is UTF-8, and names of files need not be.
            "path": checkpoint.path().to_string_lossy(),
            "architecture": network.architecture(),
            "task": contract.task,
            "scale": upscale.map(|upscale| upscale.scale),
            "channels": upscale.map(|upscale| upscale.channels),
            "parameters": checkpoint.parameters(),
            "tensors": checkpoint.tensors().len(),
            "data_types": types,
            "stripped_prefix": checkpoint.stripped_prefix(),
            "set_aside": checkpoint.set_aside(),
            "files": checkpoint.files().iter().map(|file| file.to_string_lossy()).collect::<Vec<_>>(),
            "hyperparameters": hyperparameters,
            "metadata": checkpoint.metadata(),
        }));
    }
    let mut lines = vec![
        ("architecture", network.architecture().to_owned()),
        (
            "task",
            upscale
                .map_or_else(|| contract.task.to_string(), |upscale| format!("{} ×{}", contract.task, upscale.scale)),
        ),
        ("channels", upscale.map_or_else(String::new, |upscale| upscale.channels.to_string())),
        ("parameters", format!("{} in {} tensors", checkpoint.parameters(), checkpoint.tensors().len())),
        (
            "data types",
            types.iter().map(|(name, count)| format!("{name} ({count} tensors)")).collect::<Vec<_>>().join(", "),
        ),
        ("files", checkpoint.files().len().to_string()),
        ("prefix", checkpoint.stripped_prefix()),
        ("set aside", checkpoint.set_aside().join(", ")),
        (
            "receptive field",
            upscale.map_or_else(String::new, |upscale| match upscale.receptive_field {
                ReceptiveField::Radius(pixels) => format!("{pixels} pixels in each direction"),
                ReceptiveField::Unbounded => "unbounded".into(),
            }),
        ),
    ];
    // The scale and the channels of an upscaler have lines of their own.
    let above = |name: &str| upscale.is_some() && ["scale", "channels"].contains(&name);
    for (name, value) in hyperparameters.as_object().into_iter().flatten().filter(|(name, _)| !above(name)) {
        lines.push((name, value.as_str().map_or_else(|| value.to_string(), str::to_owned)));
    }
    for (name, value) in checkpoint.metadata() {
        lines.push((name, format!("{value} (noted in the checkpoint)")));
    }
    let lines = lines.into_iter().filter(|(_, value)| !value.is_empty());
    result(&lines.map(|(name, value)| format!("{name:<16} {value}")).collect::<Vec<_>>().join("\n"))
}
