//! The time of operators and layers within the engine, by ONNX Runtime's profile.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::json;
use tileforge_engine::Engine;
use tileforge_files::unfinished;
use tileforge_runtime::host::{Host, HostOptions, Service};
use tileforge_runtime::upscale::Upscaler;
use tileforge_runtime::{Error, Result};
use tileforge_session::{Assigned, Environment};
use tileforge_terminal::{print, print_json, report};

use super::super::failure::{CommandResult, Failure};
use super::arguments::Arguments;
use super::measure::{header_of, upscale};
use super::whole::{self, is_whole};

/// Layers that are shown.
const SHOWN: usize = 20;

/// The most events in ONNX Runtime's profile of a session; later events are missing.
const EVENTS_MAXIMUM: usize = 1_000_000;

/// One event of a profile.
#[derive(Deserialize)]
struct Event {
    #[serde(default)]
    cat: String,
    name: String,
    /// When it began, in microseconds.
    #[serde(default)]
    ts: u64,
    /// Microseconds.
    #[serde(default)]
    dur: u64,
    #[serde(default)]
    args: Details,
}

/// The details of an operator's event; events of other kinds have none.
#[derive(Default, Deserialize)]
struct Details {
    #[serde(default)]
    op_name: Option<String>,
}

impl Event {
    /// An operator's computation.
    fn is_operator(&self) -> bool {
        self.cat == "Node" && self.name.ends_with("_kernel_time")
    }

    /// A run of the whole graph.
    fn is_run(&self) -> bool {
        self.cat == "Session" && self.name == "model_run"
    }

    fn operator(&self) -> String {
        self.args.op_name.as_deref().unwrap_or("unknown").to_owned()
    }

    fn layer(&self) -> String {
        format!("{} {}", self.operator(), self.name.trim_end_matches("_kernel_time"))
    }
}

/// Runs pictures one after the other, and shows the profile of the graphs that run for their size.
pub(super) fn run(arguments: &Arguments, environment: &Environment, engine: &Engine) -> CommandResult {
    let parent = std::env::temp_dir();
    let folder =
        unfinished::folder_in(&parent).map_err(|source| Failure::file(&parent, "create a folder in it", source))?;
    let mut options = arguments.running.options();
    // One stream only: several would wait for each other within the operators.
    options.placement.streams = Some(1);
    options.placement.devices.truncate(1);
    options.placement.session.profile = Some(folder.path().join("profile"));
    if is_whole(engine) {
        let (graph, all) = (whole::graph_of(engine, arguments.size)?, arguments.warm_up + arguments.runs);
        let assigned = whole::run_profiled(environment, engine, graph, options.placement, all)?;
        return show(arguments, engine, &graph.file, &assigned, folder.path());
    }
    let host = Host::new(environment, HostOptions::default());
    let upscaler = Service::new(&host, Upscaler::new(&host, engine, options)?, 1);
    let header = header_of(arguments.picture());
    for _ in 0..arguments.warm_up {
        upscale(&upscaler, &header)?;
    }
    let made = (0..arguments.runs).map(|_| upscale(&upscaler, &header)).collect::<Result<Vec<_>>>()?;
    let statistics = made.last().ok_or_else(|| Error::Internal("bench".into()))?;
    // A session writes its profile when it is closed.
    upscaler.shutdown();
    let what = format!("pictures of {} in tiles of {}", arguments.picture(), statistics.tile);
    show(arguments, engine, &what, &statistics.assigned, folder.path())
}

/// Shows the time of operators and layers, from the profiles in a folder. `what` was run.
fn show(arguments: &Arguments, engine: &Engine, what: &str, assigned: &[Assigned], folder: &Path) -> CommandResult {
    let (mut operators, mut layers, mut runs) = (Sums::default(), Sums::default(), 0);
    for path in profiles(folder)? {
        let events = read(&path)?;
        if events.len() >= EVENTS_MAXIMUM {
            report(
                "warning: ONNX Runtime's profile is full, and does not hold all pictures; choose a smaller --size or \
                 fewer --runs",
            );
        }
        let (from, counted) = after_warm_up(&events, arguments.warm_up, arguments.runs);
        runs += counted;
        for event in events.iter().filter(|event| event.is_operator() && event.ts >= from) {
            operators.add(event.operator(), event.dur);
            layers.add(event.layer(), event.dur);
        }
    }
    let (operators, layers) = (operators.sorted(), layers.sorted());
    if arguments.json {
        let object = |sums: &[(String, u64)]| {
            sums.iter().map(|(name, time)| json!({ "name": name, "microseconds": time })).collect::<Vec<_>>()
        };
        print_json(&json!({
            "engine": engine.manifest().name,
            "measured": what,
            "assigned": assigned,
            "pictures": arguments.runs,
            "runs": runs,
            "operators": object(&operators),
            "layers": object(&layers),
        }))?;
        return Ok(());
    }
    let total: u64 = operators.iter().map(|(_, time)| time).sum();
    let table = |title: &str, sums: &[(String, u64)]| {
        let rows = sums
            .iter()
            .take(SHOWN)
            .map(|(name, time)| format!("{:>6.1} %  {name}", *time as f64 / total.max(1) as f64 * 100.0));
        [title.to_owned()].into_iter().chain(rows).collect::<Vec<_>>().join("\n")
    };
    print(&format!(
        "{}: {} × {what}, {runs} runs of the graph, {:.1} ms in operators for each\n\n{}\n\n{}",
        engine.manifest().name,
        arguments.runs,
        total as f64 / 1e3 / f64::from(runs.max(1)),
        table("operators", &operators),
        table("layers", &layers)
    ))?;
    Ok(())
}

/// The files that the sessions have written.
fn profiles(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = folder.read_dir().and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let entries = entries.map_err(|source| Failure::file(folder, "list", source))?;
    Ok(entries.iter().map(fs::DirEntry::path).collect())
}

/// ONNX Runtime stops at a million events, of some hundred bytes each.
const PROFILE_MAXIMUM_BYTES: u64 = 1 << 30;

fn read(path: &Path) -> Result<Vec<Event>, Failure> {
    let bytes =
        tileforge_files::read(path, PROFILE_MAXIMUM_BYTES).map_err(|source| Failure::file(path, "read", source))?;
    serde_json::from_slice(&bytes).map_err(|error| Failure::file(path, "understand", error.into()))
}

/// The start of the first run after the warm-up, and the number of runs from then on. Each picture takes the same
/// number of runs.
fn after_warm_up(events: &[Event], warm_up: u32, measured: u32) -> (u64, u32) {
    let mut runs: Vec<u64> = events.iter().filter(|event| event.is_run()).map(|event| event.ts).collect();
    runs.sort_unstable();
    let skipped = runs.len() * warm_up as usize / (warm_up + measured) as usize;
    (runs.get(skipped).copied().unwrap_or(u64::MAX), (runs.len() - skipped) as u32)
}

/// The microseconds of each name.
#[derive(Default)]
struct Sums(BTreeMap<String, u64>);

impl Sums {
    fn add(&mut self, name: String, microseconds: u64) {
        *self.0.entry(name).or_default() += microseconds;
    }

    /// The largest first.
    fn sorted(self) -> Vec<(String, u64)> {
        let mut sums: Vec<_> = self.0.into_iter().collect();
        sums.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(cat: &str, name: &str, ts: u64) -> Event {
        Event { cat: cat.into(), name: name.into(), ts, dur: 1, args: Details::default() }
    }

    #[test]
    fn the_warm_up_is_a_share_of_the_runs() {
        // Three pictures of two runs each; a run begins before its operators.
        let events: Vec<_> = (0..6)
            .flat_map(|run| [event("Node", "conv_kernel_time", 10 * run + 1), event("Session", "model_run", 10 * run)])
            .chain([event("Session", "session_initialization", 0)])
            .collect();
        assert_eq!(after_warm_up(&events, 1, 2), (20, 4));
        assert_eq!(after_warm_up(&events, 0, 3), (0, 6));
        let kept = events.iter().filter(|event| event.is_operator() && event.ts >= 20).count();
        assert_eq!(kept, 4);
        assert_eq!(after_warm_up(&[], 1, 1), (u64::MAX, 0));
    }
}
