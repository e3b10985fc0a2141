//! Where the time goes within the engine, by ONNX Runtime's profile.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use runtime::engine::Engine;
use runtime::engine::manifest::Interface;
use runtime::ladder::Ladder;
use runtime::session::Session;
use runtime::{Error, Result};
use serde::Deserialize;
use serde_json::json;

use super::super::CommandResult;
use super::super::output::{print, print_json};
use super::Arguments;

/// Layers that are shown.
const SHOWN: usize = 20;

/// One event of a profile; those of other kinds lack the operator.
#[derive(Deserialize)]
struct Event {
    #[serde(default)]
    cat: String,
    name: String,
    /// Microseconds.
    #[serde(default)]
    dur: u64,
    #[serde(default)]
    args: BTreeMap<String, serde_json::Value>,
}

pub(super) fn run(arguments: &Arguments, engine: &Engine) -> CommandResult {
    let interface = engine.manifest().images()?;
    let options = arguments.running.options();
    let tile = options.tile;
    let chosen = |graph: &&runtime::engine::Graph| tile.is_none_or(|tile| graph.tile(interface) == tile);
    let graph = engine.manifest().graphs.iter().filter(chosen).max_by_key(|graph| graph.tile(interface).pixels());
    let graph =
        graph.ok_or_else(|| Error::Tiling(format!("the engine has no tiles of {}", tile.map_or("any".into(), |tile| tile.to_string()))))?;
    let folder =
        tempfile::tempdir().map_err(|source| Error::File { path: std::env::temp_dir(), action: "create a folder in it", source })?;
    let mut placement = options.placement;
    placement.session.profile = Some(folder.path().join("profile"));
    let mut session = Ladder::new(engine, placement)?.session(graph, 0)?;
    let shapes = (&graph.inputs[&interface.input], &graph.outputs[&interface.output]);
    let events = events(&mut session, interface, shapes, arguments.runs + arguments.warm_up)?;
    let (operators, layers) = (by(&events, |event| text(event, "op_name")), by(&events, layer));
    let total: u64 = operators.iter().map(|(_, time)| time).sum();
    if arguments.json {
        let object =
            |sums: &[(String, u64)]| sums.iter().map(|(name, time)| json!({ "name": name, "microseconds": time })).collect::<Vec<_>>();
        print_json(&json!({ "graph": graph.file, "operators": object(&operators), "layers": object(&layers) }))?;
        return Ok(());
    }
    let table = |title: &str, sums: &[(String, u64)]| {
        let rows = sums.iter().take(SHOWN).map(|(name, time)| format!("{:>6.1} %  {name}", *time as f64 / total.max(1) as f64 * 100.0));
        [title.to_owned()].into_iter().chain(rows).collect::<Vec<_>>().join("\n")
    };
    let runs = f64::from(arguments.runs + arguments.warm_up);
    print(&format!(
        "{}: {:.1} ms in operators for each run\n\n{}\n\n{}",
        graph.file,
        total as f64 / 1e3 / runs,
        table("operators", &operators),
        table("layers", &layers)
    ))?;
    Ok(())
}

fn events(session: &mut Session, interface: &Interface, shapes: (&Vec<usize>, &Vec<usize>), runs: u32) -> Result<Vec<Event>> {
    let tensors = session.tensors()?;
    let (mut input, mut output) = (tensors.zeros(shapes.0)?, tensors.zeros(shapes.1)?);
    let [low, high] = interface.range;
    for (position, value) in input.as_mut_slice().iter_mut().enumerate() {
        *value = low + (high - low) * (position * 7 % 256) as f32 / 255.0;
    }
    for _ in 0..runs {
        session.run_into((&interface.input, &input), (&interface.output, &mut output))?;
    }
    let path = session.end_profile()?;
    parse(&path)
}

fn parse(path: &Path) -> Result<Vec<Event>> {
    let bytes = fs::read(path).map_err(|source| Error::File { path: path.to_owned(), action: "read", source })?;
    let events: Vec<Event> = serde_json::from_slice(&bytes).map_err(|error| Error::File {
        path: path.to_owned(),
        action: "understand",
        source: error.into(),
    })?;
    Ok(events.into_iter().filter(|event| event.cat == "Node" && event.name.ends_with("_kernel_time")).collect())
}

fn text(event: &Event, key: &str) -> String {
    event.args.get(key).and_then(|value| value.as_str()).unwrap_or("unknown").to_owned()
}

fn layer(event: &Event) -> String {
    let name = event.name.trim_end_matches("_kernel_time");
    format!("{} {name}", text(event, "op_name"))
}

/// The sum of each name, the largest first.
fn by(events: &[Event], name: impl Fn(&Event) -> String) -> Vec<(String, u64)> {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    events.iter().for_each(|event| *sums.entry(name(event)).or_default() += event.dur);
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
    sums
}
