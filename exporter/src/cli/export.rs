//! `exporter export`.

use super::{Hints, print, say};
use std::path::PathBuf;
use tileforge_exporter::lora::{self, Lora};
use tileforge_exporter::pipeline::Pipeline;
use tileforge_exporter::{Error, Export, Result, Shapes};
use tileforge_graph::{LinkMethod, SaveReport, WeightStorage};

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// A .safetensors file, the .safetensors.index.json of a sharded one, a folder with either and its config.json, or
    /// a pipeline's folder
    path: PathBuf,
    /// Where the graph goes; of a pipeline, the folder for all its graphs
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
    /// Fixed input shapes, NAME:SIZExSIZE…, several with commas; without it batch, height and width stay dynamic
    #[arg(long, value_name = "NAME:SHAPE")]
    shapes: Option<Shapes>,
    /// Where the weights go
    #[arg(long, value_enum, default_value = "link")]
    weights: Weights,
    /// A file of low-rank adaptations (kohya's or diffusers' names) to merge into the weights, FILE or FILE:SCALE; may
    /// be repeated
    #[arg(long, value_name = "FILE[:SCALE]")]
    lora: Vec<Lora>,
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
    let (path, hints) = (&arguments.path, &arguments.hints);
    if Pipeline::is_one(path) {
        return run_pipeline(arguments, Pipeline::open(path, &hints.component, hints.variant.as_deref())?);
    }
    let mut checkpoint = hints.open(path)?;
    if let Some(pipeline) = Pipeline::of_single_file(&checkpoint, &hints.component)? {
        return run_pipeline(arguments, pipeline);
    }
    let shapes = arguments.shapes.clone().unwrap_or_default();
    if !arguments.lora.is_empty() {
        // A component alone is known by its task.
        let task = tileforge_exporter::arch::detect_task(&checkpoint, hints.task()?, &hints.map())?
            .contract()
            .task
            .to_string();
        arguments.say_elsewhere(&lora::merge(&mut [(&task, &mut checkpoint)], &arguments.lora)?);
    }
    let export = tileforge_exporter::export_task(&checkpoint, hints.task()?, &shapes, &hints.map())?;
    let report = tileforge_graph::save(&export.model, &arguments.output, arguments.storage())?;
    describe("", &export, &report);
    print(&format!("{}\n", arguments.output.display()))
}

fn run_pipeline(arguments: &Arguments, mut pipeline: Pipeline) -> Result<()> {
    arguments.say_elsewhere(&pipeline.merge(&arguments.lora)?);
    let (shapes, hints, storage) =
        (arguments.shapes.clone().unwrap_or_default(), arguments.hints.map(), arguments.storage());
    if arguments.output.extension().is_some_and(|extension| extension == "onnx") {
        let part = pipeline.save_one(&arguments.output, &shapes, &hints, storage)?;
        describe("", &part.export, &part.report);
        return print(&format!("{}\n", arguments.output.display()));
    }
    if pipeline.parts().len() != 1 && !(shapes.is_empty() && hints.is_empty()) {
        return Err(Error::Option("--shapes and --set are of one graph: say which with --component NAME".into()));
    }
    let reports = pipeline.save(&arguments.output, &shapes, &hints, storage)?;
    for (name, class) in pipeline.left_out() {
        say(&format!("{name}: left out; no graph is made of a {class}, and the pipeline runs without"));
    }
    for part in &reports {
        describe(&format!("{}: ", part.name), &part.export, &part.report);
    }
    let names: Vec<String> = reports
        .iter()
        .map(|part| format!("{}\n", arguments.output.join(&part.name).join("model.onnx").display()))
        .collect();
    print(&names.concat())
}

fn describe(name: &str, export: &Export, report: &SaveReport) {
    let parameters = export.model.metadata.get("tileforge.parameters").map_or("", String::as_str);
    say(&format!(
        "{name}{}: {} nodes, {parameters} parameters",
        export.network.architecture(),
        export.model.nodes.len()
    ));
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
}

impl Arguments {
    /// Says how many tensors of each file of adaptations are of components that are not exported.
    fn say_elsewhere(&self, counts: &[usize]) {
        for (lora, count) in self.lora.iter().zip(counts).filter(|(_, count)| **count > 0) {
            say(&format!("{}: {count} tensors are of components that are not exported", lora.path.display()));
        }
    }

    fn storage(&self) -> WeightStorage {
        match self.weights {
            Weights::Link => WeightStorage::Link,
            Weights::Copy => WeightStorage::Copy,
            Weights::Inline => WeightStorage::Inline,
        }
    }
}
