//! `exporter export`.

use super::failure::{CommandResult, Failure, result};
use super::hints::Hints;
use std::path::{Path, PathBuf};
use tileforge_contract::PARAMETERS_KEY;
use tileforge_exporter::lora::{self, Lora};
use tileforge_exporter::pipeline::Pipeline;
use tileforge_exporter::{Export, Shapes};
use tileforge_files::outputs;
use tileforge_graph::{LinkMethod, NoLink, SaveReport, WeightStorage, Written, save_with_progress};
use tileforge_terminal::{Progress, Unit, digests, report};

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// A checkpoint (.safetensors, .pth, .pt, .ckpt, .bin), the .index.json of a sharded one, a folder with either and
    /// its config.json, or a pipeline's folder
    path: PathBuf,
    /// Where the graph goes; for a pipeline, the folder for all its graphs
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
    /// Fixed input shapes, NAME:SIZExSIZE…, several with commas; without it batch, height and width stay dynamic
    #[arg(long, value_name = "NAME:SHAPE")]
    shapes: Option<Shapes>,
    /// Where the weights go
    #[arg(long, value_enum, default_value = "link")]
    weights: Weights,
    /// Do not digest the checkpoint that the graph points into, which takes a second for each gigabyte the first time.
    /// Afterwards, only the checkpoint's size shows whether it was changed
    #[arg(long)]
    no_digest: bool,
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

pub(super) fn run(arguments: &Arguments) -> CommandResult {
    let (path, hints) = (&arguments.path, &arguments.hints);
    let adaptations = arguments.lora.iter().map(|lora| lora.path.as_path());
    let config = if path.is_dir() { path.join("config.json") } else { path.with_file_name("config.json") };
    let inputs: Vec<&Path> = adaptations.chain((!path.is_dir()).then_some(path.as_path())).chain([&*config]).collect();
    outputs::check(&[&arguments.output], &inputs).map_err(tileforge_graph::Error::Output)?;
    if Pipeline::is_one(path) {
        return run_pipeline(arguments, Pipeline::open(path, &hints.component, hints.variant.as_deref())?);
    }
    let mut checkpoint = hints.open(path)?;
    if let Some(pipeline) = Pipeline::of_single_file(&checkpoint, &hints.component, None)? {
        return run_pipeline(arguments, pipeline);
    }
    if arguments.output.extension().is_none_or(|ending| !ending.eq_ignore_ascii_case("onnx")) {
        let output = arguments.output.display();
        return Err(Failure::Usage(format!("{output}: a graph comes out; expected a name that ends in .onnx")));
    }
    let shapes = arguments.shapes.clone().unwrap_or_default();
    if !arguments.lora.is_empty() {
        // A single component is named after its task.
        let network = tileforge_exporter::arch::detect_task(&checkpoint, hints.task()?, &hints.map())?;
        let task = network.contract().task.to_string();
        arguments.report_elsewhere(&lora::merge(&mut [(&task, &mut checkpoint)], &arguments.lora)?);
    }
    let export = tileforge_exporter::export_task(&checkpoint, hints.task()?, &shapes, &hints.map())?;
    let mut shown = Shown::default();
    let digests = digests(shown.progress.clone());
    let mut progress = |written| shown.show("weights", written);
    let saved = save_with_progress(&export.model, &arguments.output, arguments.storage(), &digests, &mut progress);
    shown.finish();
    describe("", &export, &saved?);
    result(&arguments.output.display().to_string())
}

fn run_pipeline(arguments: &Arguments, mut pipeline: Pipeline) -> CommandResult {
    arguments.report_elsewhere(&pipeline.merge(&arguments.lora)?);
    let mut shown = Shown::default();
    let digests = digests(shown.progress.clone());
    let (shapes, hints, storage) =
        (arguments.shapes.clone().unwrap_or_default(), arguments.hints.map(), arguments.storage());
    if arguments.output.extension().is_some_and(|extension| extension == "onnx") {
        let mut progress = |part: &str, written| shown.show(part, written);
        let part = pipeline.save_one(&arguments.output, &shapes, &hints, storage, &digests, &mut progress);
        shown.finish();
        let part = part?;
        describe("", &part.export, &part.report);
        return result(&arguments.output.display().to_string());
    }
    if pipeline.parts().len() != 1 && !(shapes.is_empty() && hints.is_empty()) {
        let reason = "--shapes and --set are for one graph; choose it with --component NAME";
        return Err(Failure::Usage(reason.into()));
    }
    let mut progress = |part: &str, written| shown.show(part, written);
    let reports = pipeline.save(&arguments.output, &shapes, &hints, storage, &digests, &mut progress);
    shown.finish();
    let reports = reports?;
    for (name, class) in pipeline.left_out() {
        report(&format!("{name}: left out; no graph can be made of a {class}, and the pipeline runs without it"));
    }
    for part in &reports {
        describe(&format!("{}: ", part.name), &part.export, &part.report);
    }
    let names: Vec<String> =
        reports.iter().map(|part| arguments.output.join(&part.name).join("model.onnx").display().to_string()).collect();
    result(&names.join("\n"))
}

/// Shows the progress of writing weights.
#[derive(Default)]
struct Shown {
    progress: Progress,
    /// The graph whose weights are being written.
    graph: String,
}

impl Shown {
    fn show(&mut self, graph: &str, Written { bytes, total }: Written) {
        if self.graph != graph {
            self.graph = graph.to_owned();
            self.progress.begin(graph, Some(total), Unit::Bytes);
        }
        self.progress.set_total(total);
        self.progress.set(bytes);
    }

    /// Removes the progress bar.
    fn finish(&self) {
        self.progress.finish();
    }
}

fn describe(name: &str, export: &Export, saved: &SaveReport) {
    let parameters = export.model.metadata.get(PARAMETERS_KEY).map_or("", String::as_str);
    report(&format!(
        "{name}{}: {} nodes, {parameters} parameters",
        export.network.architecture(),
        export.model.nodes.len()
    ));
    for file in &saved.linked {
        let how = match file.method {
            LinkMethod::InPlace => "the graph points into it where it is",
            LinkMethod::HardLink => "hard link of the checkpoint: no weight was copied",
            LinkMethod::Reflink => "reflink of the checkpoint: no weight was copied",
            LinkMethod::Copied { reason: NoLink::OtherFileSystem } => {
                "copy of the checkpoint, which is on another file system: it could not be linked"
            }
            LinkMethod::Copied { reason: NoLink::NotPermitted } => {
                "copy of the checkpoint: this system permits no link to it, because it belongs to another user or its \
                 file system has none"
            }
            LinkMethod::Copied { .. } => "copy of the checkpoint: it could not be linked",
        };
        report(&format!("{}: {how}", file.path.display()));
    }
    if let Some((path, bytes)) = &saved.weights {
        report(&format!("{}: {bytes} bytes of weights", path.display()));
    }
}

impl Arguments {
    /// Reports how many tensors of each file of adaptations are of components that are not exported.
    fn report_elsewhere(&self, counts: &[usize]) {
        for (lora, count) in self.lora.iter().zip(counts).filter(|(_, count)| **count > 0) {
            report(&format!("{}: {count} tensors are of components that are not exported", lora.path.display()));
        }
    }

    fn storage(&self) -> WeightStorage {
        match self.weights {
            Weights::Link if self.no_digest => WeightStorage::LinkUndigested,
            Weights::Link => WeightStorage::Link,
            Weights::Copy => WeightStorage::Copy,
            Weights::Inline => WeightStorage::Inline,
        }
    }
}
