//! `runtime verify`: does the engine give the same pixels here?

use serde::Serialize;
use tileforge_runtime::engine::selftest;
use tileforge_runtime::ladder::Ladder;
use tileforge_runtime::onnxruntime::Library;
use tileforge_runtime::provider::Provider;
use tileforge_runtime::session::Assigned;
use tileforge_runtime::{Error, Result};

use super::chosen::{Chosen, Placing, nodes};
use super::output::{decibels, print, print_json};
use super::{CommandResult, Failure};

const EXAMPLES: &str = "\
Examples:
  runtime verify --engine engines/compact-x4
  runtime verify --engine engines/compact-x4 --require-signature release.pub --json";

/// Check an engine's files and run its self-test.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    engine: Chosen,
    #[command(flatten)]
    placing: Placing,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The self-test, and where it ran.
#[derive(Serialize)]
struct Verified<'v> {
    /// That which took most nodes.
    provider: Option<Provider>,
    assigned: &'v [Assigned],
    #[serde(flatten)]
    report: &'v selftest::Report,
}

pub(crate) fn run(arguments: &Arguments, library: impl Fn() -> Result<&'static Library>) -> CommandResult {
    let engine = arguments.engine.open()?;
    library()?;
    let name = &engine.manifest().selftest.graph;
    let graph = engine.graph_named(name).ok_or_else(|| Error::Manifest(format!("no graph {name}")))?;
    let mut session = Ladder::new(&engine, arguments.placing.placement())?.session(graph, 0)?;
    let result = selftest::verify(&engine, &mut session)?;
    let assigned = session.assigned();
    if arguments.json {
        print_json(&Verified { provider: Provider::of_most_nodes(assigned), assigned, report: &result })?;
    } else {
        print(&format!(
            "{}: {} files are whole; self-test {} on {}: largest error {:.2e} (at most {:.2e}), mean {:.2e}, PSNR {}",
            engine.manifest().name,
            engine.manifest().files.len(),
            if result.passed { "passed" } else { "failed" },
            nodes(assigned),
            result.maximum_error,
            result.tolerance,
            result.mean_error,
            decibels(result.psnr_db)
        ))?;
    }
    if result.passed {
        return Ok(());
    }
    let found = if result.finite { format!("{:.2e}", result.maximum_error) } else { "NaN or infinite values".into() };
    Err(Failure::Gate(format!(
        "{}: self-test of {}: expected a largest error of {:.2e}, found {found}; build the engine for this box",
        arguments.engine.directory.display(),
        result.graph,
        result.tolerance
    )))
}
