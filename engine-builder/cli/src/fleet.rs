//! `engine-builder plan`: which engines a fleet of cards needs.

use super::failure::{CommandResult, result, result_json};
use super::libraries::Libraries;
use super::talk::Shown;
use super::{models, named};
use serde_json::json;
use std::path::{Path, PathBuf};
use tileforge_contract::Provider;
use tileforge_engine::exchange;
use tileforge_engine_builder::fleet::{Candidate, Entry, Evidence, Fleet, Together, assess};
use tileforge_engine_builder::request::{BuildRequest, PreparedBuild};
use tileforge_engine_builder::rtx::PlanBuilder;
use tileforge_engine_builder::{Error, Plans, Profile};
use tileforge_terminal::report;

const AFTER_HELP: &str = "\
The file lists profiles and models:
  cards: [rtx3080, rtx4090, l4]
  models: [compact-x4, x4plus.safetensors]
  sizes: [512x512]   # optional: other sizes than the profiles'

The size is the largest of the profile's that the card holds in 16 bits. The precision has 8 bits
where that plan is faster by the card's rates, whether its cache holds what fits or nothing
(docs/plans.md); gates on calibration pictures decide when the engine is built. The parts of a
pipeline are added up: all at once, and as `runtime generate --low-memory` has them.

Example:
  engine-builder plan fleet.yaml";

/// Print which engines several cards need: for each card and model the size, the precision, and the memory. NVIDIA's
/// builder builds plans for it, which needs no GPU and no calibration. Nothing is kept.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Arguments {
    /// The file that lists cards and models
    #[arg(value_name = "FLEET.yaml")]
    fleet: PathBuf,
    /// Print all candidates as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments, libraries: &Libraries) -> CommandResult {
    let fleet = Fleet::read(&arguments.fleet)?;
    let environment = libraries.environment()?;
    let program = libraries.plan_program()?;
    let has_plans = |name: &String| Profile::read(name).map(|profile| profile.provider == Provider::TensorRtRtx);
    let has_plans = fleet.cards.iter().map(has_plans).collect::<Result<Vec<_>, _>>()?.contains(&true);
    let builder = match has_plans {
        true => Some(PlanBuilder::beside(environment.library(), &program).map_err(Error::Plan)?),
        false => None,
    };
    let plans = Plans { program: Some(program), jobs: 1 };
    let scratch = exchange::temporary(&std::env::temp_dir())?;
    let shown = Shown::default();
    let mut entries = Vec::new();
    for model in &fleet.models {
        let request = BuildRequest {
            model: named::model(Path::new(model))?,
            profiles: fleet.cards.clone(),
            sizes: fleet.sizes.clone(),
            weights: models::weight_folders(),
            ..BuildRequest::default()
        };
        let prepared = PreparedBuild::new(request, &environment, &plans, &shown)?;
        entries.extend(assess(model, &prepared, builder.as_ref(), scratch.path(), &shown)?);
    }
    shown.finish();
    if arguments.json {
        return result_json(&json!({ "engines": entries, "pipelines": Together::of(&entries) }));
    }
    for refused in entries.iter().flat_map(|entry| entry.refused.iter().map(move |reason| (entry, reason))) {
        report(&format!("{}: {}: {}", refused.0.card, refused.0.name(), refused.1));
    }
    result(&text(&entries))
}

fn text(entries: &[Entry]) -> String {
    let width = |of: &dyn Fn(&Entry) -> String| entries.iter().map(|entry| of(entry).len()).max().unwrap_or(0);
    let (cards, names) = (width(&|entry| entry.card.clone()).max(4), width(&Entry::name).max(5));
    let mut lines = vec![format!(
        "{:cards$}  {:names$}  build  {:>9} {:>9} {:>18}  graph, others",
        "card", "model", "memory", "plan", "at least"
    )];
    lines.extend(entries.iter().map(|entry| {
        let start = format!("{:cards$}  {:names$}", entry.card, entry.name());
        match entry.choice() {
            Some(choice) => format!("{start}  {}", line(entry, choice)),
            None if entry.too_large.is_empty() => format!("{start}  none: refused by the builder"),
            None => format!("{start}  none: the card has no memory for {}", entry.too_large.join(", ")),
        }
    }));
    let together = Together::of(entries);
    lines.extend(together.iter().map(|all| format!("{:cards$}  {:names$}  {}", all.card, all.model, line_of_all(all))));
    lines.join("\n")
}

/// A line about all parts of a pipeline.
fn line_of_all(all: &Together) -> String {
    let plan = all.plan_bytes.map_or("–".into(), size);
    let beyond = |bytes: u64| if bytes > all.usable_bytes { ", more than the card has" } else { "" };
    let low = |bytes: u64| format!("; with --low-memory {}{}", size(bytes), beyond(bytes));
    let low = all.low_memory_bytes.map_or(String::new(), low);
    let (memory, beyond) = (size(all.memory_bytes), beyond(all.memory_bytes));
    format!("{:5}  {memory:>9} {plan:>9} {:>18}  all parts at once{beyond}{low}", "all", "")
}

/// A line about the chosen engine, with the other candidates.
fn line(entry: &Entry, choice: &Candidate) -> String {
    let plan = choice.plan_bytes.map_or("–".into(), size);
    let least = time(choice).unwrap_or("–".into());
    let others = entry.candidates.iter().filter(|other| other.precision != choice.precision);
    let others = others.filter_map(|other| Some(format!("{}: {}", other.precision, time(other)?)));
    let estimated = (choice.evidence == Evidence::Estimated).then(|| "estimated from the graph".to_owned());
    let notes: Vec<String> = std::iter::once(choice.graph.clone()).chain(others).chain(estimated).collect();
    let memory = size(choice.memory_bytes);
    format!("{:5}  {memory:>9} {plan:>9} {least:>18}  {}", choice.precision.name(), notes.join(", "))
}

/// "0.144 – 1.595 ms": the least time of a run if everything fits in the cache, and if nothing does.
fn time(candidate: &Candidate) -> Option<String> {
    let [least, uncached] = [candidate.least_microseconds()?, candidate.uncached_microseconds?];
    let milliseconds = |microseconds: u64| microseconds as f64 / 1e3;
    Some(format!("{:.3} – {:.3} ms", milliseconds(least), milliseconds(uncached)))
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.2} GB", bytes as f64 / 1e9),
    }
}
