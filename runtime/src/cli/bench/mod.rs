//! `runtime bench`: how fast an engine is here, and whether that has changed.

mod arguments;
mod chart;
mod measure;
mod profile;
mod sweep;

use std::path::{Path, PathBuf};

use tileforge_engine::Engine;
use tileforge_files::{TEXT_MAXIMUM_BYTES, outputs, unfinished};
use tileforge_runtime::Result;
use tileforge_session::Environment;
use tileforge_terminal::{print, print_json};

use super::failure::{CommandResult, Failure};
use measure::{Measured, measure};

pub(crate) use arguments::Arguments;

pub(crate) fn run(arguments: &Arguments, environment: impl Fn() -> Result<Environment>) -> CommandResult {
    let environment = environment()?;
    let engines = arguments.engines.iter().map(|directory| arguments.signed.open(directory));
    let engines = engines.collect::<Result<Vec<_>, _>>()?;
    let directories: Vec<&Path> = engines.iter().map(Engine::directory).collect();
    let outputs: Vec<PathBuf> = match &arguments.report {
        Some(folder) => sweep::files(folder).into(),
        None => arguments.save.iter().cloned().collect(),
    };
    outputs::check(&outputs.iter().map(PathBuf::as_path).collect::<Vec<_>>(), &directories)
        .map_err(|error| Failure::Usage(error.to_string()))?;
    if arguments.sweep {
        return sweep::run(arguments, &environment, &engines);
    }
    let [engine] = engines.as_slice() else {
        return Err(Failure::Usage(format!("expected one --engine, found {}; several go with --sweep", engines.len())));
    };
    if arguments.profile {
        return profile::run(arguments, &environment, engine);
    }
    let base = arguments.compare.as_deref().map(read).transpose()?;
    let measured = measure(&environment, engine, arguments.running.options(), arguments.size, arguments.repeats())?;
    if let Some(path) = &arguments.save {
        let text =
            serde_json::to_vec_pretty(&measured).map_err(|error| Failure::file(path, "describe", error.into()))?;
        unfinished::write(path, &text).map_err(|source| Failure::file(path, "write", source))?;
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
    let bytes =
        tileforge_files::read(path, TEXT_MAXIMUM_BYTES).map_err(|source| Failure::file(path, "read", source))?;
    let refused = |problem: &dyn std::fmt::Display| {
        Failure::Usage(format!("{}: not figures of --save: {problem}", path.display()))
    };
    let measured: Measured = serde_json::from_slice(&bytes).map_err(|error| refused(&error))?;
    let compared = [("images_per_second", measured.images_per_second), ("latency.p50_ms", measured.latency.p50_ms)];
    // Speeds of zero would make a comparison pass that says nothing.
    match compared.iter().find(|(_, figure)| !(*figure > 0.0 && figure.is_finite())) {
        Some((name, figure)) => Err(refused(&format!("expected `{name}` above 0, found {figure}"))),
        None => Ok(measured),
    }
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
