//! `runtime bench`: how fast an engine is here, and whether that has changed.

mod chart;
mod measure;
mod profile;
mod sweep;

use std::fs;
use std::path::{Path, PathBuf};

use tileforge_runtime::onnxruntime::Library;
use tileforge_runtime::tile::Size;
use tileforge_runtime::{Error, Result};

use super::chosen::{Running, Signed};
use super::output::{print, print_json};
use super::{CommandResult, Failure};
use measure::{Measured, Repeats, measure};

const EXAMPLES: &str = "\
Examples:
  runtime bench --engine engines/compact-x4
  runtime bench --engine engines/compact-x4 --save base.json
  runtime bench --engine engines/compact-x4 --compare base.json --threshold 0.95
  runtime bench --engine engines/compact-x4 --profile
  runtime bench --engine engines/model-fp16 engines/model-int8 --sweep --report sweep/

The picture is made in memory, and what becomes of it goes nowhere: no disk is measured. Compare on a quiet machine, and only
figures of one machine.";

/// Measure an engine on this box. Exits with code 4 where --compare finds it slower than the threshold.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The engine's directory; for --sweep also several, such as one for each precision.
    #[arg(long = "engine", value_name = "DIR", required = true, num_args = 1..)]
    engines: Vec<PathBuf>,
    #[command(flatten)]
    signed: Signed,
    #[command(flatten)]
    running: Running,
    /// The picture's size.
    #[arg(long, value_name = "WxH", default_value = "1024x1024", value_parser = super::chosen::size)]
    size: Size,
    /// Pictures that are measured, after the warm-up.
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Pictures before that.
    #[arg(long, value_name = "N", default_value_t = 2)]
    warm_up: u32,
    /// How often throughput is measured, with that many pictures in a row; the median counts.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    passes: u32,
    /// Write the figures to this file.
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Compare with the figures in this file.
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
    /// Least speed relative to --compare: 0.9 allows a tenth less.
    #[arg(long, value_name = "RATIO", default_value_t = 0.9)]
    threshold: f64,
    /// Show the time of each operator and of each layer in what runs for that size, by ONNX Runtime's own profile; on
    /// one stream.
    #[arg(long, conflicts_with_all = ["sweep", "save", "compare"])]
    profile: bool,
    /// Measure every tile, batch and number of streams (1, 2 and 4) of every engine.
    #[arg(long, conflicts_with_all = ["save", "compare"])]
    sweep: bool,
    /// Write the sweep's tables (Markdown, JSON) and chart (SVG) to this folder.
    #[arg(long, value_name = "DIR", requires = "sweep")]
    report: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Arguments {
    fn repeats(&self) -> Repeats {
        Repeats { warm_up: self.warm_up, runs: self.runs, passes: self.passes }
    }
}

pub(crate) fn run(arguments: &Arguments, library: impl Fn() -> Result<&'static Library>) -> CommandResult {
    library()?;
    let engines =
        arguments.engines.iter().map(|directory| arguments.signed.open(directory)).collect::<Result<Vec<_>>>()?;
    if arguments.sweep {
        return sweep::run(arguments, &engines);
    }
    let [engine] = engines.as_slice() else {
        return Err(Failure::Usage(format!("expected one --engine, found {}; several go with --sweep", engines.len())));
    };
    if arguments.profile {
        return profile::run(arguments, engine);
    }
    let base = arguments.compare.as_deref().map(read).transpose()?;
    let measured = measure(engine, arguments.running.options(), arguments.size, arguments.repeats())?;
    if let Some(path) = &arguments.save {
        let text = serde_json::to_vec_pretty(&measured).map_err(std::io::Error::from)?;
        fs::write(path, text).map_err(|source| Error::File { path: path.clone(), action: "write", source })?;
    }
    if arguments.json {
        print_json(&measured)?;
    } else {
        print(&measured.to_string())?;
    }
    match base {
        Some(base) => compare(&measured, &base, arguments),
        None => Ok(()),
    }
}

fn read(path: &Path) -> Result<Measured, Failure> {
    let bytes = fs::read(path).map_err(|source| Error::File { path: path.to_owned(), action: "read", source })?;
    serde_json::from_slice(&bytes)
        .map_err(|error| Failure::Usage(format!("{}: not figures of --save: {error}", path.display())))
}

fn compare(now: &Measured, base: &Measured, arguments: &Arguments) -> CommandResult {
    let (setting, before) = (now.setting(), base.setting());
    if setting != before {
        return Err(Failure::Usage(format!(
            "the figures to compare with are of another setting: expected {setting}, found {before}"
        )));
    }
    let throughput = now.images_per_second / base.images_per_second;
    let latency = base.latency.p50_ms / now.latency.p50_ms;
    if !arguments.json {
        print(&format!(
            "against before      throughput ×{throughput:.3}, one picture ×{latency:.3} (above 1: faster now)"
        ))?;
    }
    let worst = throughput.min(latency);
    if worst < arguments.threshold {
        return Err(Failure::Gate(format!(
            "{}: expected a speed of at least {:.2} of that before, found {worst:.3}",
            now.engine, arguments.threshold
        )));
    }
    Ok(())
}
