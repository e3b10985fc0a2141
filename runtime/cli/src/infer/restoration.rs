//! `runtime infer` with an engine that restores films and pictures.

use std::time::Instant;

use serde_json::json;
use tileforge_engine::Pipeline;
use tileforge_runtime::Result;
use tileforge_runtime::autoencoder::CodingOptions;
use tileforge_runtime::host::{Host, HostOptions, Service};
use tileforge_runtime::restoration::{Fitting, RestoreRequest, RestoreStatistics, Restorer, Settings};
use tileforge_session::Environment;
use tileforge_terminal::{Unit, counted, counted_as};

use super::super::failure::{CommandResult, Failure};
use super::super::figures::nodes;
use super::super::waiting::wait;
use super::arguments::Arguments;
use super::each::Each;
use super::films::Known;
use super::frames::ClipOpening;
use super::kind::has_frames;
use super::plan::Assignment;
use super::reporter::say;
use super::streams::{Pictures, of_clip};

/// Refuses options that do not fit such an engine.
pub(super) fn check(assignments: &[Assignment], arguments: &Arguments) -> CommandResult {
    let running = &arguments.running;
    let tile = running.tile().map(|_| "--tile");
    let outscale = arguments.outscale.map(|_| "--outscale");
    if let Some(option) = running.tiling_of_networks().or(tile).or(outscale) {
        return Err(Failure::Usage(format!("{option} does not go with an engine that restores; see --size")));
    }
    let stream = assignments.iter().find(|pair| has_frames(&pair.input, arguments.raw));
    match stream {
        Some(Assignment { input, .. }) if assignments.len() > 1 => Err(Failure::Usage(format!(
            "{}: a film or stream of frames goes alone through an engine that restores, found {} inputs",
            input.display(),
            assignments.len()
        ))),
        // With resuming, batches would begin at other frames, and change the results.
        Some(_) if arguments.resume => {
            Err(Failure::Usage("--resume does not go with a film and an engine that restores; leave it out".into()))
        }
        _ => Ok(()),
    }
}

pub(super) fn run(
    arguments: &Arguments,
    pipeline: &Pipeline,
    environment: &Environment,
    work: &Each<'_>,
    known: Known<'_>,
    started: Instant,
) -> CommandResult {
    let settings = arguments.restoration.settings()?;
    let host = Host::new(environment, HostOptions::default());
    let running = arguments.running.options();
    let options = CodingOptions { placement: running.placement, overlap: running.overlap };
    let service = Service::new(&host, Restorer::new(&host, pipeline, options)?, 1);
    let stream = work.assignments.iter().find(|pair| has_frames(&pair.input, arguments.raw));
    let (files, failed, result) = if let Some(assignment) = stream {
        let request = of_stream(assignment, arguments, known, settings);
        let Assignment { input, output } = assignment;
        let name = input.file_name().unwrap_or_default().to_string_lossy();
        let made = wait(&service.submit(request, work.cancel)?, &name, Unit::Rate("frames"))?;
        if !arguments.json {
            let text = format!("{} → {}: {}", input.display(), output.display(), line(&made));
            say(Some(output), &text)?;
        }
        (vec![assignment.to_json(json!(made))], 0, Ok(()))
    } else {
        let one = |owner: usize| of_picture(&work.assignments[owner], arguments, known, settings.clone());
        let heard = work.run(&service, 1, one, line, |made| json!(made))?;
        (heard.files.clone(), heard.failed(), heard.result())
    };
    let placed = service.task().location();
    work.report((&pipeline.manifest().name, placed), environment, (&files, failed), started)?;
    result
}

/// The request for one picture, which is a film of one frame.
fn of_picture(assignment: &Assignment, arguments: &Arguments, known: Known<'_>, settings: Settings) -> RestoreRequest {
    let (assignment, opening, writing) = (assignment.clone(), arguments.opening(known.piped), arguments.writing());
    let open = move |fitting: &Fitting| -> Result<_> {
        let fitting = fitting.clone();
        let size = move |size| fitting.result(size);
        Ok(Box::new(Pictures::new(vec![assignment], opening, writing, size)) as _)
    };
    RestoreRequest::new(open, settings, arguments.limits())
}

/// The request for a film or another stream of frames.
fn of_stream(assignment: &Assignment, arguments: &Arguments, known: Known<'_>, settings: Settings) -> RestoreRequest {
    let (assignment, clips) = (assignment.clone(), ClipOpening::new(arguments, known.films));
    let depth = arguments.writing().depth;
    let open = move |fitting: &Fitting| of_clip(&assignment, &clips, depth, &|size| fitting.result(size));
    RestoreRequest::new(open, settings, arguments.limits())
}

fn line(made: &RestoreStatistics) -> String {
    let RestoreStatistics { size, network_size, frames, batches, assigned, seconds, .. } = made;
    let through = if network_size == size { String::new() } else { format!(", computed at {network_size}") };
    format!(
        "{} of {size} in {}{through}, {:.2} s on {}",
        counted(*frames, "frame"),
        counted_as(*batches, "batch", "batches"),
        seconds.total,
        nodes(assigned)
    )
}
