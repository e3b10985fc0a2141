//! `engine-builder lint`: would TensorRT take this graph?

use super::failure::{CommandResult, Failure, result, result_json};
use super::libraries::Libraries;
use super::named;
use super::talk::Shown;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use tileforge_engine::{Engine, exchange};
use tileforge_engine_builder::lint::{LintReport, Severity, Target, lint, lint_with_builder};
use tileforge_engine_builder::rtx::PlanBuilder;
use tileforge_engine_builder::{Error, Progress};
use tileforge_exporter::foreign::{self, Survey};
use tileforge_graph::Model;
use tileforge_tensorrt::ComputeCapability;
use tileforge_terminal::{counted, report};

/// Show what TensorRT would refuse in a graph, and layers that could be faster.
#[derive(clap::Args)]
#[command(after_help = "Errors end with exit code 4; warnings and hints do not.\n\nExamples:\n  engine-builder lint \
        model.onnx --target tensorrt-10\n  engine-builder lint model-fp16.onnx --target tensorrt-rtx --capability 8.9")]
pub(super) struct Arguments {
    /// An ONNX graph, or the directory or name of an engine, whose first graph is judged
    #[arg(value_name = "MODEL.onnx|ENGINE")]
    model: PathBuf,
    /// The TensorRT that has to take it. tensorrt-10 and -11 are judged by their tables of operators; for tensorrt-rtx,
    /// NVIDIA's builder builds a plan
    #[arg(long, value_parser = targets())]
    target: Target,
    /// tensorrt-rtx: the compute capabilities of the plan
    #[arg(long, value_name = "X.Y", value_delimiter = ',', default_value = "8.6,8.9,12.0")]
    capability: Vec<ComputeCapability>,
    /// Print all findings as JSON
    #[arg(long)]
    json: bool,
}

fn targets() -> impl TypedValueParser<Value = Target> {
    PossibleValuesParser::new(Target::ALL.map(Target::name)).try_map(|name| name.parse::<Target>())
}

pub(super) fn run(arguments: &Arguments, libraries: &Libraries) -> CommandResult {
    let path = &graph_of(&arguments.model)?;
    // A file of another program is linted in the form that it would have in an engine.
    let model = match foreign::is_foreign(path)? {
        true => {
            if !arguments.json {
                tell(&Survey::of(path)?, path);
            }
            foreign::open(path)?.model
        }
        false => tileforge_graph::load(path)?,
    };
    let report = match arguments.target {
        Target::TensorRtRtx => by_builder(&model, &arguments.capability, libraries)?,
        table => lint(&model, table),
    };
    if arguments.json {
        result_json(&report)?;
    } else {
        let lines: String = report.findings.iter().map(|finding| format!("{finding}\n")).collect();
        let [errors, warnings, hints] =
            [Severity::Error, Severity::Warning, Severity::Hint].map(|severity| report.of(severity).count());
        let hints = if hints == 0 { String::new() } else { format!(", {}", counted(hints, "hint")) };
        let (errors, warnings) = (counted(errors, "error"), counted(warnings, "warning"));
        result(&format!("{lines}{}: {errors}, {warnings}{hints}", report.target))?;
    }
    Ok(report.check_shown(&path.to_string_lossy())?)
}

/// Reports the facts about another program's file, and how to build an engine from it.
fn tell(survey: &Survey, path: &Path) {
    for (name, fact) in survey.facts() {
        report(&format!("{name:<16} {fact}"));
    }
    report(&format!("{:<16} {}", "not said", survey.missing()));
    let task = survey.task();
    report(&format!("{:<16} `engine-builder build {} --task {task} --profile NAME -o ENGINE`", "next", path.display()));
}

/// The file of a graph: the path itself, or the first graph of the engine with this path or name.
fn graph_of(path: &Path) -> Result<PathBuf, Failure> {
    if path.extension().is_some_and(|extension| extension == "onnx") || path.is_file() {
        return Ok(path.to_owned());
    }
    let engine = Engine::open(&named::engine(path)?)?;
    let graph = engine.manifest().graphs.first().map(|graph| engine.path_of(&graph.file));
    graph.ok_or_else(|| Failure::Usage(format!("{}: the engine has no graph", path.display())))
}

/// Lints with the builder beside ONNX Runtime's library.
fn by_builder(model: &Model, capabilities: &[ComputeCapability], libraries: &Libraries) -> Result<LintReport, Failure> {
    let environment = libraries.environment()?;
    let builder = PlanBuilder::beside(environment.library(), &libraries.plan_program()?).map_err(Error::Plan)?;
    let scratch = exchange::temporary(&std::env::temp_dir())?;
    let shown = Shown::default();
    let report = lint_with_builder(model, &builder, capabilities, scratch.path(), &mut |step| {
        if step.step == 0 {
            shown.begin(&step.phase, step.steps as usize);
        } else {
            shown.step();
        }
        ControlFlow::Continue(())
    });
    shown.finish();
    Ok(report?)
}
