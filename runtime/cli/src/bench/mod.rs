//! `runtime bench`: how fast an engine is here, and whether that has changed.

mod arguments;
mod chart;
mod measure;
mod profile;
mod report;
mod steps;
mod sweep;
mod whole;

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tileforge_engine::Engine;
use tileforge_files::{TEXT_MAXIMUM_BYTES, outputs, unfinished};
use tileforge_runtime::Result;
use tileforge_session::Environment;
use tileforge_terminal::{print, print_json};

use super::failure::{CommandResult, Failure};
use measure::{Measured, measure};

pub(crate) use arguments::Arguments;

pub(crate) fn run(arguments: &Arguments, environment: impl Fn() -> Result<Environment>) -> CommandResult {
    if arguments.report.is_some() && !arguments.sweep && arguments.steps.is_empty() {
        return Err(Failure::Usage(
            "--report is for --sweep and --steps; --save writes the figures of one setting".into(),
        ));
    }
    let environment = environment()?;
    if !arguments.steps.is_empty() {
        return with_steps(arguments, &environment);
    }
    let engines = arguments.engines.iter().map(|directory| arguments.signed.open(directory));
    let engines = engines.collect::<Result<Vec<_>, _>>()?;
    let directories: Vec<&Path> = engines.iter().map(Engine::directory).collect();
    let outputs: Vec<PathBuf> = match &arguments.report {
        Some(folder) => report::files(folder, sweep::REPORT).into(),
        None => arguments.save.iter().cloned().collect(),
    };
    outputs::check(&outputs.iter().map(PathBuf::as_path).collect::<Vec<_>>(), &directories)?;
    if engines.iter().any(whole::is_whole)
        && let Some(option) = arguments.running.tile().map(|_| "--tile").or_else(|| arguments.running.tiling())
    {
        return Err(Failure::Usage(format!("{option} is for upscalers; --size chooses a graph of other engines")));
    }
    if arguments.sweep {
        return sweep::run(arguments, &environment, &engines);
    }
    let [engine] = engines.as_slice() else {
        return Err(Failure::Usage(format!("expected one --engine, found {}; several go with --sweep", engines.len())));
    };
    if arguments.profile {
        return profile::run(arguments, &environment, engine);
    }
    if whole::is_whole(engine) {
        let graph = whole::graph_of(engine, arguments.size)?;
        let placement = arguments.running.options().placement;
        return conclude(arguments, || {
            Ok(whole::measure(&environment, engine, graph, &placement, arguments.repeats())?)
        });
    }
    let options = || arguments.running.options();
    conclude(arguments, || Ok(measure(&environment, engine, options(), arguments.picture(), arguments.repeats())?))
}

/// Measures the engine of a diffusion pipeline.
fn with_steps(arguments: &Arguments, environment: &Environment) -> CommandResult {
    let [directory] = arguments.engines.as_slice() else {
        return Err(Failure::Usage(format!("expected one --engine, found {}", arguments.engines.len())));
    };
    if let Some(option) = arguments.running.tile().map(|_| "--tile").or_else(|| arguments.running.tiling()) {
        return Err(Failure::Usage(format!("{option} is for upscalers; --size chooses the size of other pictures")));
    }
    let pipeline = arguments.signed.open_diffusion(directory)?;
    let report = arguments.report.iter().flat_map(|folder| report::files(folder, steps::REPORT));
    let written: Vec<PathBuf> = arguments.save.iter().cloned().chain(report).collect();
    outputs::check(&written.iter().map(PathBuf::as_path).collect::<Vec<_>>(), &[directory])?;
    let placement = arguments.running.options().placement;
    conclude(arguments, || {
        let measured = steps::measure(environment, &pipeline, &placement, &arguments.pictures_in_steps())?;
        if let Some(folder) = &arguments.report {
            report::write(folder, steps::REPORT, &measured, &measured.to_string(), &measured.chart())?;
        }
        Ok(measured)
    })
}

/// Figures that can be compared with other figures of the same setting.
trait Comparable: Serialize + DeserializeOwned + fmt::Display {
    fn engine(&self) -> &str;
    /// What figures must share to be comparable.
    fn setting(&self) -> String;
    /// Pictures or runs per second.
    fn throughput(&self) -> f64;
    /// The median time of one picture or run.
    fn median_ms(&self) -> f64;
    /// The name of the throughput's field.
    const THROUGHPUT: &'static str;
    /// The name of the median time's field.
    const MEDIAN: &'static str = "latency.p50_ms";
    /// The unit that takes the median time: "picture".
    const UNIT: &'static str;
}

impl Comparable for Measured {
    fn engine(&self) -> &str {
        &self.engine
    }

    fn setting(&self) -> String {
        Measured::setting(self)
    }

    fn throughput(&self) -> f64 {
        self.images_per_second
    }

    fn median_ms(&self) -> f64 {
        self.latency.p50_ms
    }

    const THROUGHPUT: &'static str = "images_per_second";
    const UNIT: &'static str = "picture";
}

impl Comparable for whole::Measured {
    fn engine(&self) -> &str {
        &self.engine
    }

    fn setting(&self) -> String {
        whole::Measured::setting(self)
    }

    fn throughput(&self) -> f64 {
        self.runs_per_second
    }

    fn median_ms(&self) -> f64 {
        self.latency.p50_ms
    }

    const THROUGHPUT: &'static str = "runs_per_second";
    const UNIT: &'static str = "run";
}

impl Comparable for steps::Measured {
    fn engine(&self) -> &str {
        &self.engine
    }

    fn setting(&self) -> String {
        steps::Measured::setting(self)
    }

    fn throughput(&self) -> f64 {
        self.pictures_per_second
    }

    fn median_ms(&self) -> f64 {
        self.step_ms
    }

    const THROUGHPUT: &'static str = "pictures_per_second";
    const MEDIAN: &'static str = "step_ms";
    const UNIT: &'static str = "step";
}

/// Measures, prints, and then saves or compares the figures, as the arguments request.
fn conclude<M: Comparable>(arguments: &Arguments, measure: impl FnOnce() -> Result<M, Failure>) -> CommandResult {
    let base = arguments.compare.as_deref().map(read::<M>).transpose()?;
    let measured = measure()?;
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

fn read<M: Comparable>(path: &Path) -> Result<M, Failure> {
    // Checked before the measurement, which takes minutes.
    let refused = |problem: &dyn fmt::Display| {
        Failure::Usage(format!(
            "{}: not figures of --save: {problem}; measure what to compare with first, as in `runtime bench --engine \
             OTHER --save base.json`, for the same options",
            path.display()
        ))
    };
    let bytes =
        tileforge_files::read(path, TEXT_MAXIMUM_BYTES).map_err(|source| Failure::file(path, "read", source))?;
    let measured: M = serde_json::from_slice(&bytes).map_err(|error| refused(&error))?;
    let compared = [(M::THROUGHPUT, measured.throughput()), (M::MEDIAN, measured.median_ms())];
    // Speeds of zero would make every comparison pass.
    match compared.iter().find(|(_, figure)| !(*figure > 0.0 && figure.is_finite())) {
        Some((name, figure)) => Err(refused(&format!("expected `{name}` above 0, found {figure}"))),
        None => Ok(measured),
    }
}

fn compare<M: Comparable>(now: &M, base: &M, arguments: &Arguments) -> CommandResult {
    let (setting, before) = (now.setting(), base.setting());
    if setting != before {
        return Err(Failure::Usage(format!(
            "the figures to compare with are of another setting: expected {setting}, found {before}; measure them \
             again with --save and the same options"
        )));
    }
    let throughput = now.throughput() / base.throughput();
    let latency = base.median_ms() / now.median_ms();
    if !arguments.json {
        print(&format!(
            "against before      throughput ×{throughput:.3}, one {} ×{latency:.3} (above 1: faster now)",
            M::UNIT
        ))?;
    }
    let worst = throughput.min(latency);
    if worst < arguments.threshold {
        return Err(Failure::Gate(format!(
            "{}: expected a speed of at least {:.2} of that before, found {worst:.3}",
            now.engine(),
            arguments.threshold
        )));
    }
    Ok(())
}
