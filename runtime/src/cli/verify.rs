//! `runtime verify`: does the engine give the same pixels here?

use serde::Serialize;
use tileforge_contract::Provider;
use tileforge_runtime::Result;
use tileforge_session::{Assigned, Environment, Ladder, selftest};
use tileforge_terminal::{print, print_json};

use super::chosen::{Chosen, Placing};
use super::failure::{CommandResult, Failure};
use super::figures::{decibels, nodes};

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

pub(crate) fn run(arguments: &Arguments, environment: impl Fn() -> Result<Environment>) -> CommandResult {
    let engine = arguments.engine.open()?;
    engine.check_nothing_unlisted()?;
    let environment = environment()?;
    let name = &engine.manifest().selftest.graph;
    let problem = || tileforge_engine::Error::Manifest { problem: format!("selftest.graph: no graph {name}") };
    let graph = engine.graph_named(name).ok_or_else(problem)?;
    let mut session = Ladder::new(&environment, &engine, arguments.placing.placement())?.session(graph, 0)?;
    let result = selftest::verify(&engine, &mut session)?;
    let assigned = session.assigned();
    if arguments.json {
        print_json(&Verified { provider: Assigned::most(assigned), assigned, report: &result })?;
    } else {
        print(&format!(
            "{}: {} files are whole; self-test {} on {}: {} (at most {:.2e}), mean {:.2e}, PSNR {}",
            engine.manifest().name,
            engine.manifest().files.len(),
            if result.passed { "passed" } else { "failed" },
            nodes(assigned),
            result.found(),
            result.tolerance,
            result.mean_error,
            decibels(result.psnr_db)
        ))?;
    }
    if result.passed {
        return Ok(());
    }
    Err(Failure::Gate(format!(
        "{}: self-test of {}: expected a largest error of {:.2e}, found {}; build the engine for this box",
        arguments.engine.directory.display(),
        result.graph,
        result.tolerance,
        result.found()
    )))
}
