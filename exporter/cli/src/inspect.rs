//! `exporter inspect`: what a file or a folder is, and what to do with it.

mod graph;
mod pipeline;
mod table;

use self::table::show;
use super::failure::{CommandResult, Failure, result_json};
use super::hints::Hints;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;
use tileforge_contract::{ReceptiveField, Task, Upscale};
use tileforge_exporter::arch::detect_task;
use tileforge_exporter::checkpoint::FormatKind;
use tileforge_exporter::pipeline::Pipeline;
use tileforge_exporter::{Checkpoint, Error};

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// A checkpoint (.safetensors, .pth, .pt, .ckpt, .bin), the .index.json of a sharded one, a folder with either and
    /// its config.json, a pipeline's folder, or an ONNX graph
    path: PathBuf,
    #[command(flatten)]
    hints: Hints,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The file that makes a folder an engine.
const ENGINE: &str = "manifest.json";

pub(super) fn run(arguments: &Arguments) -> CommandResult {
    let Arguments { path, hints, .. } = arguments;
    if Pipeline::is_one(path) {
        let pipeline = Pipeline::open(path, &hints.component, hints.variant.as_deref())?;
        return of_pipeline(arguments, &pipeline);
    }
    if path.is_dir() && path.join(ENGINE).is_file() {
        let path = path.display();
        return Err(Failure::Usage(format!("{path}: this is an engine; `runtime inspect --engine {path}` shows it")));
    }
    let is_named_graph = path.extension().is_some_and(|extension| extension == "onnx") && path.is_file();
    let checkpoint = match hints.open(path) {
        Err(Failure::Export(Error::Checkpoint { .. })) if is_named_graph => return graph::run(path, arguments.json),
        Err(Failure::Export(Error::OtherFormat { found, .. })) if found.kind == FormatKind::Graph => {
            return graph::run(path, arguments.json);
        }
        opened => opened?,
    };
    if let Some(pipeline) = Pipeline::of_single_file(&checkpoint, &hints.component, None)? {
        return of_pipeline(arguments, &pipeline);
    }
    of_network(arguments, &checkpoint, hints.task()?, &hints.map())
}

/// Shows a pipeline, or its only component that was chosen.
fn of_pipeline(arguments: &Arguments, pipeline: &Pipeline) -> CommandResult {
    let Hints { component, .. } = &arguments.hints;
    match pipeline.parts() {
        [part] if !component.is_empty() => {
            let mut hints = part.hints.clone();
            hints.extend(arguments.hints.map());
            of_network(arguments, &part.checkpoint, Some(part.task), &hints)
        }
        _ => pipeline::run(&arguments.path, pipeline, arguments.json),
    }
}

fn of_network(
    arguments: &Arguments,
    checkpoint: &Checkpoint,
    task: Option<Task>,
    hints: &BTreeMap<String, String>,
) -> CommandResult {
    let network = detect_task(checkpoint, task, hints)?;
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
            "kind": "checkpoint",
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
    show(lines)
}
