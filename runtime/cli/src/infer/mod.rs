//! `runtime infer`: pictures and frames through an engine.

mod arguments;
mod depth;
mod depth_arguments;
mod each;
mod feed;
mod frames;
mod kind;
mod picture;
mod plan;
mod realtime;
mod realtime_arguments;
mod told;

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use crossbeam_channel::unbounded;
use serde_json::json;
use tileforge_runtime::depth::is_depth;
use tileforge_runtime::executor::Executor;
use tileforge_runtime::realtime::is_realtime;
use tileforge_runtime::upscale::Upscaler;
use tileforge_runtime::{Error, Result};
use tileforge_session::Environment;
use tileforge_session::peak_memory_bytes;

pub(crate) use arguments::Arguments;
pub(crate) use frames::open as open_frames;
pub(crate) use kind::{has_frames, is_standard_stream};
pub(crate) use told::say;

use super::failure::{CommandResult, Failure};
use super::signals::stopped_by_signals;
use each::Each;
use feed::Feeder;
use plan::{assign, check, check_outputs, name_for};
use told::Told;

/// Requests that wait: opened pictures take no memory before their turn, frames do.
const WAITING: usize = 1;

pub(crate) fn run(arguments: &Arguments, environment: impl Fn() -> Result<Environment>) -> CommandResult {
    let started = Instant::now();
    let engine = arguments.engine.open()?;
    let contract = &engine.manifest().contract;
    let (gives_depth, plays_frames) = (is_depth(contract), is_realtime(contract));
    let (mut assignments, folder) = assign(&arguments.input, &arguments.output, |input| {
        if gives_depth { depth::name_for(input, arguments) } else { name_for(input, arguments.raw) }
    })?;
    if gives_depth {
        depth::check(contract, &assignments, arguments)?;
    } else if plays_frames {
        realtime::check(&assignments, arguments)?;
        assignments.iter().try_for_each(|assignment| check(assignment, arguments))?;
    } else if let Some(option) = arguments.depth.given() {
        return Err(Failure::Usage(format!(
            "{option} is for engines that give depth; this one is for {}",
            contract.task
        )));
    } else if let Some(option) = arguments.realtime.given() {
        return Err(Failure::Usage(format!("{option} is for real-time networks; this one is for {}", contract.task)));
    } else {
        assignments.iter().try_for_each(|assignment| check(assignment, arguments))?;
    }
    let maps = depth::maps(&assignments, arguments);
    let read = [arguments.engine.directory.as_path()].into_iter().chain(maps.iter().map(PathBuf::as_path));
    check_outputs(&assignments, &read.collect::<Vec<_>>())?;
    if let Some(folder) = folder {
        fs::create_dir_all(&folder).map_err(|source| Failure::file(&folder, "create the folder", source))?;
    }
    let all = assignments.len();
    if arguments.resume {
        // Outputs are renamed when they are whole, so an empty one is not ours.
        let is_made = |output: &Path| fs::metadata(output).is_ok_and(|found| found.len() > 0);
        assignments.retain(|assignment| !is_made(&assignment.output));
    }
    let skipped = all - assignments.len();
    let engine_seconds = started.elapsed().as_secs_f64();
    let environment = environment()?;
    let cancel = stopped_by_signals();
    if gives_depth {
        let (fail_fast, json) = (arguments.fail_fast, arguments.json);
        let work = Each { assignments: &assignments, all, cancel: &cancel, fail_fast, json };
        return depth::run(arguments, &engine, &environment, &work, started);
    }
    if plays_frames {
        return realtime::run(arguments, &engine, &environment, &assignments, &cancel, started);
    }
    let executor = Executor::new(Upscaler::new(&environment, &engine, arguments.running.options())?, WAITING)?;

    let mut told = Told::new(arguments, &assignments, all, &cancel);
    let fed = thread::scope(|scope| {
        let (items, submitted) = unbounded();
        let feeder = Feeder { executor: &executor, assignments: &assignments, arguments, cancel: &cancel, items };
        let feeding = scope.spawn(move || feeder.run());
        submitted.iter().for_each(|item| told.hear(item));
        feeding.join().unwrap_or_else(|_| Err(Error::Internal("feed".into())))
    });
    let (stopped, cancelled, unheard) = (told.stopped, told.cancelled, told.unheard.take());
    let (files, mut failures) = told.finish();
    if let Some(error) = unheard {
        return Err(error.into());
    }
    match fed {
        // The first failure is what ended it.
        Err(Error::Cancelled) if stopped => {}
        Err(error) => return Err(error.into()),
        Ok(()) if cancelled && !stopped => return Err(Error::Cancelled.into()),
        Ok(()) => {}
    }
    if arguments.json {
        let (upscaler, library) = (executor.task(), environment.library());
        let everything = json!({
            "provider": upscaler.placed().provider,
            "verdict": upscaler.placed().verdict,
            "used": (!stopped).then(|| upscaler.used()),
            "engine": engine.manifest().name,
            "onnxruntime": library.version(),
            "files": files,
            "skipped": skipped,
            "failed": failures.len(),
            "peak_memory_bytes": peak_memory_bytes(),
            "engine_seconds": engine_seconds,
            "load_seconds": library.load_time().as_secs_f64(),
            "session_seconds": upscaler.placed().opening.as_secs_f64(),
            "total_seconds": started.elapsed().as_secs_f64(),
        });
        say(&arguments.output, &format!("{everything:#}"))?;
    }
    match (failures.len(), all) {
        (0, _) => Ok(()),
        (1, 1) => Err(failures.remove(0).into()),
        (failed, all) => {
            let left = assignments.len() - files.len();
            let left = if left > 0 { format!(", {left} were not finished") } else { String::new() };
            Err(Failure::Partly(format!("{failed} of {all} pictures failed{left}; see above")))
        }
    }
}
