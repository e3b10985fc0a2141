//! `exporter export`.

use super::{Hints, print, say};
use exporter::{Checkpoint, Result, Shapes};
use graph::{LinkMethod, WeightStorage};
use std::path::PathBuf;

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// A .safetensors file, or the .safetensors.index.json of a sharded one
    path: PathBuf,
    /// Where the graph goes
    #[arg(short, long, value_name = "OUT.onnx")]
    output: PathBuf,
    /// Fixed input shapes, NAME:SIZExSIZE…, several with commas; without it batch, height and width stay dynamic
    #[arg(long, value_name = "NAME:SHAPE")]
    shapes: Option<Shapes>,
    /// Where the weights go
    #[arg(long, value_enum, default_value = "link")]
    weights: Weights,
    #[command(flatten)]
    hints: Hints,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Weights {
    /// They stay in the checkpoint, which is hard-linked beside the graph
    Link,
    /// Into one file beside the graph
    Copy,
    /// Into the graph's file, at most 2 GiB
    Inline,
}

pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let checkpoint = Checkpoint::open(&arguments.path)?;
    let export = exporter::export_task(
        &checkpoint,
        arguments.hints.component,
        &arguments.shapes.clone().unwrap_or_default(),
        &arguments.hints.map(),
    )?;
    let storage = match arguments.weights {
        Weights::Link => WeightStorage::Link,
        Weights::Copy => WeightStorage::Copy,
        Weights::Inline => WeightStorage::Inline,
    };
    let report = graph::save(&export.model, &arguments.output, storage)?;
    say(&format!("{}: {} nodes, {} parameters", export.network.architecture(), export.model.nodes.len(), checkpoint.parameters()));
    for file in &report.linked {
        let how = match file.method {
            LinkMethod::InPlace => "the graph points into it where it is",
            LinkMethod::HardLink => "hard link of the checkpoint: no weight was copied",
            LinkMethod::Reflink => "reflink of the checkpoint: no weight was copied",
            LinkMethod::Copied => "copy of the checkpoint, which is on another file system: it could not be linked",
        };
        say(&format!("{}: {how}", file.path.display()));
    }
    if let Some((path, bytes)) = &report.weights {
        say(&format!("{}: {bytes} bytes of weights", path.display()));
    }
    print(&format!("{}\n", arguments.output.display()))
}
