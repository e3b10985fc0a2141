//! `runtime verify`: does the engine give the same pixels here?

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use tileforge_contract::Provider;
use tileforge_engine::{Bundle, Engine};
use tileforge_runtime::Result;
use tileforge_runtime::autoencoder::CodingOptions;
use tileforge_runtime::host::{Host, HostOptions};
use tileforge_runtime::restoration::Restorer;
use tileforge_session::{Assigned, Cancel, Environment, Ladder, OtherRelease, Placement, other_releases, selftest};
use tileforge_terminal::{Placing, print, print_json};

use super::chosen::{Chosen, placement};
use super::failure::{CommandResult, Failure};
use super::figures::{decibels, nodes};

const EXAMPLES: &str = "\
Examples:
  runtime verify --engine engines/compact-x4
  runtime verify --engine engines/compact-x4 --require-signature release.pub --json";

/// Check an engine's files and run its self-test, or that of each of its parts.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(super) engine: Chosen,
    #[command(flatten)]
    placing: Placing,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// A self-test, and where it ran.
#[derive(Serialize)]
struct Verified {
    /// The provider of most nodes.
    provider: Option<Provider>,
    assigned: Vec<Assigned>,
    #[serde(flatten)]
    report: selftest::SelfTestReport,
    /// Libraries whose release here differs from the one the engine was made with.
    other_releases: Vec<OtherRelease>,
}

impl Verified {
    /// Runs the self-test of an engine.
    fn of(engine: &Engine, environment: &Environment, placement: Placement) -> Result<Self> {
        let name = &engine.manifest().selftest.graph;
        let problem = || tileforge_engine::Error::Manifest { problem: format!("selftest.graph: no graph {name}") };
        let graph = engine.graph_named(name).ok_or_else(problem)?;
        let mut session = Ladder::new(environment, engine, placement)?.session(graph, 0, &Cancel::new())?;
        let report = selftest::verify(engine, &mut session)?;
        let assigned = session.assigned().to_vec();
        let other_releases = other_releases(engine, environment);
        Ok(Self { provider: Assigned::most(&assigned), assigned, report, other_releases })
    }

    fn text(&self) -> String {
        let Self { assigned, report, .. } = self;
        format!(
            "self-test {} on {}: {} (at most {}), mean {}, PSNR {}",
            if report.passed { "passed" } else { "failed" },
            nodes(assigned),
            report.found(),
            report.tolerance,
            selftest::error_text(report.mean_error),
            decibels(report.psnr_db)
        )
    }

    /// What `place` says about itself if the self-test was missed.
    fn problem(&self, place: &Path) -> Option<String> {
        let Self { report, other_releases, .. } = self;
        let releases = other_releases.iter().map(|other| format!("; {other}")).collect::<String>();
        (!report.passed).then(|| {
            format!(
                "{}: self-test of {}: expected a largest error of {}, found {}{releases}; build the engine for \
                 this machine",
                place.display(),
                report.graph,
                report.tolerance,
                report.found()
            )
        })
    }
}

/// The self-tests of an engine's parts.
#[derive(Serialize)]
struct VerifiedParts {
    passed: bool,
    parts: BTreeMap<String, Verified>,
}

pub(crate) fn run(arguments: &Arguments, environment: impl Fn() -> Result<Environment>) -> CommandResult {
    let bundle = arguments.engine.open_bundle()?;
    bundle.check_nothing_unlisted()?;
    let (environment, placement) = (environment()?, placement(&arguments.placing));
    let (name, files) = (bundle.name(), bundle.files().len());
    let verify = |engine: &Engine| Verified::of(engine, &environment, placement.clone());
    let problems = match &bundle {
        Bundle::Engine(engine) => {
            let verified = verify(engine)?;
            if arguments.json {
                print_json(&verified)?;
            } else {
                print(&format!("{name}: {files} files are whole; {}", verified.text()))?;
            }
            verified.problem(&arguments.engine.directory).into_iter().collect::<Vec<_>>()
        }
        Bundle::Pipeline(pipeline) => {
            if !arguments.json {
                print(&format!("{name}: {files} files are whole"))?;
            }
            if pipeline.manifest().restoration.is_some() {
                let host = Host::new(&environment, HostOptions::default());
                let options = CodingOptions { placement: placement.clone(), overlap: None };
                let _ = Restorer::new(&host, pipeline, options)?;
            }
            let mut parts = BTreeMap::new();
            for (part, engine) in pipeline.parts() {
                let verified = verify(engine)?;
                if !arguments.json {
                    print(&format!("{part}: {}", verified.text()))?;
                }
                parts.insert(part.to_owned(), verified);
            }
            let problem = |(part, verified): (&String, &Verified)| verified.problem(&pipeline.path_of(part));
            let problems: Vec<_> = parts.iter().filter_map(problem).collect();
            if arguments.json {
                print_json(&VerifiedParts { passed: problems.is_empty(), parts })?;
            }
            problems
        }
    };
    if problems.is_empty() { Ok(()) } else { Err(Failure::Gate(problems.join("\n"))) }
}
