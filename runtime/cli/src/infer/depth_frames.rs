//! `runtime infer` with an engine that gives depth, for a film or another stream of frames: each frame in colours.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use serde_json::json;
use tileforge_engine::Engine;
use tileforge_image::Limits;
use tileforge_image::frames::{Frame, FrameSink};
use tileforge_runtime::depth::{ColourMap, Colouring, DepthInput, DepthKind, DepthRequest, DepthStatistics, Estimate};
use tileforge_runtime::host::{Cancel, Host, HostOptions, Terms};
use tileforge_runtime::pixels::Pixels;
use tileforge_runtime::{Error, Result};
use tileforge_session::{Environment, peak_memory_bytes};
use tileforge_terminal::{Progress, Unit, counted};

use super::super::advice::of_stretching;
use super::super::failure::{CommandResult, Failure};
use super::super::figures::nodes;
use super::arguments::Arguments;
use super::depth::service;
use super::films::Films;
use super::frames::ClipOpening;
use super::plan::Assignment;
use super::reporter::say;

/// The default colours of films.
const GREY: &str = "gray";

pub(super) fn run(
    arguments: &Arguments,
    engine: &Engine,
    environment: &Environment,
    assignment: &Assignment,
    films: &Films,
    cancel: &Cancel,
    started: Instant,
) -> CommandResult {
    let host = Host::new(environment, HostOptions::default());
    let service = service(&host, engine, arguments)?;
    let estimator = service.task();
    let colouring = Arc::new(colouring(arguments, estimator.kind())?);
    let clip = ClipOpening::new(arguments, films).open(&assignment.input)?;
    let progress = Progress::new();
    let name = assignment.input.file_name().unwrap_or_default().to_string_lossy();
    progress.begin(name.into_owned(), clip.frames(assignment), Unit::Rate("frames"));
    let header = clip.reader.header().clone();
    let (mut reader, writer) = clip.write(assignment, header)?;
    let begun = Instant::now();
    // Frames are submitted a few ahead of those that are done.
    let (mut submitted, mut frames, mut last, mut at_end) = (VecDeque::new(), 0_u64, None, false);
    loop {
        while !at_end && submitted.len() <= estimator.streams() {
            match reader.next_frame().map_err(Error::from)? {
                None => at_end = true,
                Some(frame) if frame.is_repeated() && !arguments.film.no_deduplicate => {
                    writer.repeat(&frame).map_err(Error::from)?;
                    frames += 1;
                }
                Some(frame) => {
                    let sink = writer.frame(&frame);
                    let terms = Terms { allows_rounding: true, ..cancel.into() };
                    let request = request(frame, sink, colouring.clone(), arguments.limits());
                    submitted.push_back(service.submit(request, terms)?);
                }
            }
        }
        let Some(handle) = submitted.pop_front() else { break };
        let made = handle.wait()?;
        if let Some(advice) = of_stretching(&made).filter(|_| last.is_none()) {
            tracing::warn!("{advice}");
        }
        last = Some(made);
        frames += 1;
        progress.set(frames);
    }
    progress.finish();
    let made: DepthStatistics = last.ok_or(Error::NoFrames)?;
    writer.finish().map_err(Error::from)?;
    let Assignment { input, output } = assignment;
    let seconds = begun.elapsed().as_secs_f64();
    if arguments.json {
        let everything = json!({
            "provider": estimator.location().provider,
            "verdict": estimator.location().verdict,
            "engine": engine.manifest().name,
            "onnxruntime": environment.library().version(),
            "files": [{
                "input": input,
                "output": output,
                "frames": frames,
                "size": made.size,
                "network_size": made.network_size,
                "stretched": made.stretched,
                "assigned": made.assigned,
                "seconds": seconds,
            }],
            "peak_memory_bytes": peak_memory_bytes(),
            "session_seconds": estimator.location().opening.as_secs_f64(),
            "total_seconds": started.elapsed().as_secs_f64(),
        });
        return Ok(say(Some(output), &format!("{everything:#}"))?);
    }
    let text = format!(
        "{} → {}: {} of {} in colours, computed at {}, {seconds:.2} s on {}",
        input.display(),
        output.display(),
        counted(frames, "frame"),
        made.size,
        made.network_size,
        nodes(&made.assigned)
    );
    Ok(say(Some(output), &text)?)
}

/// The requested colours, or grey. Relative depth has another range in each frame, which flickers.
fn colouring(arguments: &Arguments, kind: DepthKind) -> Result<Colouring, Failure> {
    let map = arguments.depth.colour_map.clone();
    let map = map.map_or_else(|| GREY.parse::<ColourMap>().map_err(Failure::Usage), Ok)?;
    let range = arguments.depth.colour_range;
    if kind == DepthKind::RelativeInverse && range.is_none() {
        tracing::warn!(
            "relative depth: each frame has its own range, so that brightness may flicker; a range for all of them is \
             --colour-map {GREY} --colour-range FROM:TO"
        );
    }
    Ok(Colouring { map, range })
}

fn request(mut frame: Frame, sink: FrameSink, colouring: Arc<Colouring>, limits: Limits) -> DepthRequest {
    let open = move || Ok(DepthInput { picture: Pixels::read(&mut frame, &limits)?, map: None });
    DepthRequest::new(open, move |estimate: &Estimate| estimate.coloured(&colouring).write(Box::new(sink)))
}
