//! `runtime infer` with a real-time network.

use std::path::Path;
use std::time::Instant;

use serde_json::json;
use tileforge_engine::Engine;
use tileforge_runtime::host::{Cancel, Host, HostOptions, Service};
use tileforge_runtime::realtime::{Player, RealtimeOptions, RealtimeRequest, StreamStatistics};
use tileforge_session::Environment;
use tileforge_session::peak_memory_bytes;
use tileforge_terminal::{Unit, counted};

use super::super::failure::{CommandResult, Failure};
use super::super::figures::nodes;
use super::super::waiting::wait;
use super::arguments::Arguments;
use super::films::Known;
use super::frames::ClipOpening;
use super::kind::has_frames;
use super::plan::Assignment;
use super::reporter::say;
use super::streams::{Pictures, of_clip};

/// Refuses options and names that do not fit such an engine.
pub(super) fn check(assignments: &[Assignment], arguments: &Arguments) -> CommandResult {
    let other = arguments.running.tiling();
    let other = other.or(arguments.resume.then_some("--resume")).or(arguments.outscale.map(|_| "--outscale"));
    if let Some(option) = other {
        return Err(Failure::Usage(format!("{option} does not go with a real-time network")));
    }
    let streams = assignments.iter().filter(|pair| has_frames(&pair.input, arguments.raw)).count();
    if streams > 0 && assignments.len() > 1 {
        return Err(Failure::Usage(format!(
            "expected one stream of frames, or pictures that are its frames; found {} inputs",
            assignments.len()
        )));
    }
    Ok(())
}

pub(super) fn run(
    arguments: &Arguments,
    engine: &Engine,
    environment: &Environment,
    assignments: &[Assignment],
    cancel: &Cancel,
    known: Known<'_>,
    started: Instant,
) -> CommandResult {
    let options = RealtimeOptions {
        placement: arguments.running.options().placement,
        size: arguments.running.tile(),
        timesteps: arguments.realtime.timesteps(),
        pace: arguments.realtime.pace(),
    };
    let host = Host::new(environment, HostOptions::default());
    let service = Service::new(&host, Player::new(&host, engine, options)?, 1);
    let name = assignments.first().and_then(|pair| pair.input.file_name()).unwrap_or_default().to_string_lossy();
    let playing = service.submit(request(assignments, arguments, known), cancel)?;
    let made = wait(&playing, &name, Unit::Rate("frames"))?;
    // The given output, which is the folder for several pictures; else the name of the first output.
    let first = assignments.first().map_or(Path::new(""), |pair| pair.output.as_path());
    let output = arguments.output().unwrap_or(first);
    if arguments.json {
        let player = service.task();
        let mut everything = json!({
            "provider": player.location().provider,
            "verdict": player.location().verdict,
            "engine": engine.manifest().name,
            "onnxruntime": environment.library().version(),
            "output": output,
            "peak_memory_bytes": peak_memory_bytes(),
            "session_seconds": player.location().opening.as_secs_f64(),
            "total_seconds": started.elapsed().as_secs_f64(),
        });
        if let (Some(object), serde_json::Value::Object(more)) = (everything.as_object_mut(), json!(made)) {
            object.extend(more);
        }
        return Ok(say(Some(output), &format!("{everything:#}"))?);
    }
    Ok(say(Some(output), &format!("{}: {}", output.display(), line(&made)))?)
}

fn line(made: &StreamStatistics) -> String {
    let StreamStatistics {
        size, network_size, frames, dropped, late, frames_per_second, p50_ms, p95_ms, p99_ms, ..
    } = made;
    let dropped = if *dropped > 0 { format!(", {dropped} dropped") } else { String::new() };
    let late = if *late > 0 { format!(", {late} late") } else { String::new() };
    format!(
        "{} of {size}{dropped}{late}, computed at {network_size}, {frames_per_second:.2} frames/s; a \
         frame takes {p50_ms:.1} ms (p95 {p95_ms:.1}, p99 {p99_ms:.1}) on {}",
        counted(*frames, "frame"),
        nodes(&made.assigned)
    )
}

/// The request for the stream, or for the pictures that are its frames.
fn request(assignments: &[Assignment], arguments: &Arguments, Known { piped, films }: Known<'_>) -> RealtimeRequest {
    let (assignments, opening, writing) = (assignments.to_vec(), arguments.opening(piped), arguments.writing());
    let (raw, clips) = (arguments.raw, ClipOpening::new(arguments, films));
    RealtimeRequest::new(move || match assignments.as_slice() {
        [one] if has_frames(&one.input, raw) => of_clip(one, &clips, writing.depth, &Ok),
        _ => Ok(Box::new(Pictures::new(assignments, opening, writing, Ok))),
    })
}
