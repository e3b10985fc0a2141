//! `engine-builder lint`: would TensorRT take this graph?

use super::print;
use std::path::PathBuf;
use tileforge_engine_builder::lint::{Target, lint};
use tileforge_engine_builder::{Error, Result};

/// Say what TensorRT's ONNX parser would refuse in a graph.
#[derive(clap::Args)]
#[command(
    after_help = "Errors end with exit code 4; warnings do not.\n\nExamples:\n  engine-builder lint model.onnx --target tensorrt-10\n  engine-builder lint model.onnx --target tensorrt-11 --json"
)]
pub(super) struct Arguments {
    /// An ONNX graph
    #[arg(value_name = "MODEL.onnx")]
    model: PathBuf,
    /// The TensorRT that is to take it
    #[arg(long)]
    target: Target,
    /// Print all findings as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let path = &arguments.model;
    let report = lint(&tileforge_graph::load(path)?, arguments.target);
    let errors = report.errors().count();
    if arguments.json {
        let text = serde_json::to_string_pretty(&report);
        let text =
            text.map_err(|e| Error::Input { path: path.clone(), reason: format!("cannot be written as JSON: {e}") })?;
        print(&(text + "\n"))?;
    } else {
        let mut lines: String = report.findings.iter().map(|finding| format!("{finding}\n")).collect();
        lines.push_str(&format!("{}: {errors} errors, {} warnings\n", report.target, report.findings.len() - errors));
        print(&lines)?;
    }
    report.check_shown(&path.to_string_lossy())
}
