//! `engine-builder lint`: would TensorRT take this graph?

use super::{CommandResult, result, result_json};
use std::path::PathBuf;
use tileforge_engine_builder::lint::{Target, lint};

/// Show what TensorRT's ONNX parser would refuse in a graph.
#[derive(clap::Args)]
#[command(after_help = "Errors end with exit code 4; warnings do not.\n\nExamples:\n  engine-builder lint model.onnx \
        --target tensorrt-10\n  engine-builder lint model.onnx --target tensorrt-11 --json")]
pub(super) struct Arguments {
    /// An ONNX graph
    #[arg(value_name = "MODEL.onnx")]
    model: PathBuf,
    /// The TensorRT that has to take it
    #[arg(long)]
    target: Target,
    /// Print all findings as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments) -> CommandResult {
    let path = &arguments.model;
    let report = lint(&tileforge_graph::load(path)?, arguments.target);
    let errors = report.errors().count();
    if arguments.json {
        result_json(&report)?;
    } else {
        let lines: String = report.findings.iter().map(|finding| format!("{finding}\n")).collect();
        let warnings = report.findings.len() - errors;
        result(&format!("{lines}{}: {errors} errors, {warnings} warnings", report.target))?;
    }
    Ok(report.check_shown(&path.to_string_lossy())?)
}
