//! `runtime infer`: pictures and frames through an engine.

mod arguments;
mod companion;
mod depth;
mod depth_arguments;
mod depth_frames;
mod each;
mod feed;
mod film_arguments;
mod films;
mod frames;
mod inpaint;
mod inpaint_arguments;
mod inputs;
mod kind;
mod made_of;
mod names;
mod picture;
mod plan;
mod purpose;
mod realtime;
mod realtime_arguments;
mod record;
mod reporter;
mod restoration;
mod restoration_arguments;
mod shard;
mod standard;
mod streams;

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use crossbeam_channel::unbounded;
use serde_json::{Value, json};
use tileforge_engine::MANIFEST_FILE;
use tileforge_engine::digest::sha256_file;
use tileforge_image::{Format, Size};
use tileforge_runtime::depth::DepthFormat;
use tileforge_runtime::host::{Host, HostOptions, Service};
use tileforge_runtime::upscale::Upscaler;
use tileforge_runtime::{Error, Result};
use tileforge_session::Environment;
use tileforge_session::peak_memory_bytes;
use tileforge_terminal::report;

pub(crate) use arguments::Arguments;
pub(crate) use frames::open as open_frames;
pub(crate) use kind::{has_frames, is_film, is_standard_stream};
pub(crate) use reporter::say;

use super::failure::{CommandResult, Failure};
use super::signals::stopped_by_signals;
use companion::companions;
use each::Each;
use feed::Feeder;
use films::{Films, Known};
use made_of::made_of;
use names::Naming;
use plan::{Assignment, Plan, assign, check_outputs, ending_for};
use purpose::Purpose;
use record::{Made, Record, With};
use reporter::Reporter;
use standard::{Piped, STANDARD_INPUT, frames_on_standard_input};

/// The most requests that wait. Pictures are opened at their turn and take no memory before it; frames do.
const WAITING: usize = 1;

pub(crate) fn run(arguments: &Arguments, environment: impl Fn() -> Result<Environment>) -> CommandResult {
    let started = Instant::now();
    let purpose = Purpose::open(arguments)?;
    let (inputs, piped) = piped(arguments, purpose.gives_depth())?;
    let ending = |input: &Path| {
        let format = arguments.format;
        if purpose.gives_depth() && !has_frames(input, arguments.raw) {
            depth::ending(arguments).into()
        } else {
            ending_for(input, arguments.raw, format)
        }
    };
    let scale = purpose.scale(arguments).map(|scale| scale.to_string());
    let suffix = scale.as_ref().map_or_else(|| purpose.suffix().to_owned(), |scale| format!("x{scale}"));
    let naming = Naming { engine: purpose.engine().to_owned(), scale, suffix, ending: &ending };
    let Plan { mut assignments, folder, left_out } =
        assign(&inputs, arguments.output(), arguments.recursive, arguments.shard, &naming)?;
    if !left_out.is_empty() {
        report(&format!("left out: {}", left_out.join("; ")));
    }
    // An output that would overwrite an input is reported first, before other problems of its name.
    let beside: Vec<PathBuf> = assignments.iter().flat_map(|pair| companions(&pair.input, arguments)).collect();
    let read = [arguments.engine.directory()].into_iter().chain(beside.iter().map(PathBuf::as_path));
    let read = read.chain(arguments.restoration.noise.as_deref());
    check_outputs(&assignments, &read.collect::<Vec<_>>())?;
    purpose.check(&assignments, arguments)?;
    if arguments.output().is_none() && !arguments.resume {
        check_free(&assignments)?;
    }
    make_folders(&assignments, folder.as_deref())?;
    let all = assignments.len();
    let mut record = record_of(arguments, &purpose, &assignments, folder.as_deref())?;
    let made_again = match record.as_mut().filter(|_| arguments.resume) {
        Some(record) => leave_out_finished(record, &mut assignments, arguments),
        None => Vec::new(),
    };
    let skipped = all - assignments.len();
    if arguments.resume {
        for (output, reason) in &made_again {
            report(&format!("{}: made again: {reason}", output.display()));
        }
        if skipped > 0 {
            let finished = if skipped == 1 { "1 is finished" } else { &format!("{skipped} are finished") };
            report(&format!("{finished}: made of the same input, by the same engine, with the same options"));
        }
    }
    if let Some(record) = &mut record {
        for Assignment { input, .. } in &assignments {
            record.begin(&made_of(input, arguments).iter().map(PathBuf::as_path).collect::<Vec<_>>());
        }
    }
    let films = {
        let size = |size: Size| purpose.size_of(size, arguments);
        let with = arguments.resume.then(|| with_of(arguments, &purpose)).transpose()?;
        let with = with.map(|with| format!("{with:?}"));
        Films::open(&assignments, arguments, &films::Made { colours: purpose.colours(), size: &size, with })?
    };
    let record = record.map(RefCell::new);
    let engine_seconds = started.elapsed().as_secs_f64();
    let environment = environment()?;
    let cancel = stopped_by_signals();
    let known = Known { piped: &piped, films: &films };
    let each = |record| {
        let (fail_fast, json) = (arguments.fail_fast, arguments.json);
        Each { arguments, assignments: &assignments, all, cancel: &cancel, fail_fast, json, record }
    };
    let engine = match &purpose {
        Purpose::Upscale(engine) => engine,
        Purpose::Depth(engine) => {
            if let Some(frames) = assignments.iter().find(|pair| has_frames(&pair.input, arguments.raw)) {
                return depth_frames::run(arguments, engine, &environment, frames, &films, &cancel, started);
            }
            return depth::run(arguments, engine, &environment, &each(record), &piped, started);
        }
        Purpose::Inpaint(engine) => {
            return inpaint::run(arguments, engine, &environment, &each(record), &piped, started);
        }
        Purpose::RealTime(engine) => {
            return realtime::run(arguments, engine, &environment, &assignments, &cancel, known, started);
        }
        Purpose::Restoration(pipeline) => {
            return restoration::run(arguments, pipeline, &environment, &each(record), known, started);
        }
    };
    let host = Host::new(&environment, HostOptions::default());
    let upscaler = Service::new(&host, Upscaler::new(&host, engine, arguments.running.options())?, WAITING);

    let mut reporter = Reporter::new(arguments, &assignments, all, &cancel, record);
    let fed = thread::scope(|scope| {
        let (items, submitted) = unbounded();
        let (assignments, piped) = (&assignments, &piped);
        let (upscaler, cancel, films) = (&upscaler, &cancel, &films);
        let feeder = Feeder { upscaler, assignments, arguments, piped, films, cancel, items };
        let feeding = scope.spawn(move || feeder.run());
        submitted.iter().for_each(|item| reporter.report(item));
        feeding.join().unwrap_or_else(|_| Err(Error::Internal("feed".into())))
    });
    let (stopped, cancelled, unprinted) = (reporter.stopped, reporter.cancelled, reporter.unprinted.take());
    let (files, mut failures) = reporter.finish();
    if let Some(error) = unprinted {
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
        let (upscaler, library) = (upscaler.task(), environment.library());
        let everything = json!({
            "provider": upscaler.location().provider,
            "verdict": upscaler.location().verdict,
            "used": (!stopped).then(|| upscaler.used()),
            "engine": engine.manifest().name,
            "onnxruntime": library.version(),
            "files": files,
            "skipped": skipped,
            "made_again": made_again.iter().map(again).collect::<Vec<_>>(),
            "left_out": left_out,
            "failed": failures.len(),
            "peak_memory_bytes": peak_memory_bytes(),
            "engine_seconds": engine_seconds,
            "load_seconds": library.load_time().as_secs_f64(),
            "session_seconds": upscaler.location().opening.as_secs_f64(),
            "total_seconds": started.elapsed().as_secs_f64(),
        });
        say(arguments.output(), &format!("{everything:#}"))?;
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

/// The inputs, and the pictures among them that come through pipes. These are read to files now, because pictures are
/// decoded from files.
fn piped(arguments: &Arguments, is_depth: bool) -> Result<(Vec<PathBuf>, Piped), Failure> {
    let inputs = arguments.inputs();
    if arguments.raw.is_some() {
        return Ok((inputs.to_vec(), Piped::default()));
    }
    if matches!(inputs, [only] if is_standard_stream(only)) {
        let output = arguments.output().filter(|output| !is_standard_stream(output));
        // The output's name decides what the input is, without waiting for its first bytes.
        let is_picture = match output {
            Some(output) => {
                let is_map = is_depth && DepthFormat::of_name(output).is_ok();
                arguments.format.is_some() || Format::of_name(output).is_ok() || is_map
            }
            None => arguments.format.is_some() || !frames_on_standard_input(),
        };
        return if is_picture {
            Ok((vec![STANDARD_INPUT.into()], Piped::standard_input()?))
        } else {
            Ok((inputs.to_vec(), Piped::default()))
        };
    }
    let pictures = inputs.iter().map(PathBuf::as_path).filter(|input| !has_frames(input, None));
    Ok((inputs.to_vec(), Piped::named(pictures)?))
}

/// Refuses automatically chosen names of existing files.
fn check_free(assignments: &[Assignment]) -> CommandResult {
    let taken = assignments.iter().find(|pair| fs::symlink_metadata(&pair.output).is_ok());
    match taken.filter(|pair| !is_standard_stream(&pair.output)) {
        None => Ok(()),
        Some(Assignment { output, .. }) => Err(Failure::Usage(format!(
            "{}: is there already; choose a name with --output, or replace it by giving this one, or leave out what \
             is finished with --resume",
            output.display()
        ))),
    }
}

/// Makes the folders that outputs go to.
fn make_folders(assignments: &[Assignment], folder: Option<&Path>) -> CommandResult {
    // For a single file, the folder must exist, as with other programs.
    let several = assignments.len() > 1;
    let parents = assignments.iter().filter(|_| several || folder.is_some()).filter_map(|pair| pair.output.parent());
    let mut made: Option<&Path> = None;
    for parent in folder.into_iter().chain(parents.filter(|parent| !parent.as_os_str().is_empty())) {
        if made != Some(parent) {
            fs::create_dir_all(parent).map_err(|source| Failure::file(parent, "create the folder", source))?;
            made = Some(parent);
        }
    }
    Ok(())
}

/// The record of the output folder. A single named output has no record, unless requested.
fn record_of(
    arguments: &Arguments,
    purpose: &Purpose,
    assignments: &[Assignment],
    folder: Option<&Path>,
) -> Result<Option<Record>, Failure> {
    let outputs: Vec<&Path> = assignments.iter().map(|pair| pair.output.as_path()).collect();
    let is_file = |output: &&Path| !is_standard_stream(output);
    let parent = outputs.first().copied().filter(is_file).and_then(Path::parent);
    let folder = folder.or(parent.filter(|_| arguments.resume));
    let Some(folder) = folder else { return Ok(None) };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    Ok(Some(Record::of(folder, with_of(arguments, purpose)?, &outputs)))
}

/// What outputs are made with.
fn with_of(arguments: &Arguments, purpose: &Purpose) -> Result<With, Failure> {
    let engine = sha256_file(&purpose.directory().join(MANIFEST_FILE))?.sha256;
    Ok(With { engine, options: arguments.making() })
}

/// Leaves out finished outputs, and prints which existing outputs are made again.
fn leave_out_finished(
    record: &mut Record,
    assignments: &mut Vec<Assignment>,
    arguments: &Arguments,
) -> Vec<(PathBuf, String)> {
    let mut again = Vec::new();
    assignments.retain(|Assignment { input, output }| {
        let inputs = made_of(input, arguments);
        match record.made(output, &inputs.iter().map(PathBuf::as_path).collect::<Vec<_>>()) {
            Made::Finished => false,
            Made::Missing => true,
            Made::Otherwise(reason) => {
                again.push((output.clone(), reason));
                true
            }
        }
    });
    again
}

fn again((output, reason): &(PathBuf, String)) -> Value {
    json!({ "output": output.to_string_lossy(), "reason": reason })
}
