//! `runtime infer` with an engine that fills in pictures.

use std::path::Path;
use std::time::Instant;

use serde_json::json;
use tileforge_engine::Engine;
use tileforge_image::Header;
use tileforge_runtime::Result;
use tileforge_runtime::host::{Host, HostOptions, Service};
use tileforge_runtime::inpaint::{InpaintInput, InpaintOptions, InpaintRequest, InpaintStatistics, Inpainter};
use tileforge_session::Environment;
use tileforge_terminal::counted;

use super::super::failure::{CommandResult, Failure};
use super::super::figures::nodes;
use super::arguments::Arguments;
use super::companion::mask_of;
use super::each::Each;
use super::kind::has_frames;
use super::picture::Opening;
use super::plan::Assignment;
use super::standard::Piped;

/// Refuses options and names that do not fit such an engine.
pub(super) fn check(assignments: &[Assignment], arguments: &Arguments) -> CommandResult {
    let usage = |problem: String| Err(Failure::Usage(problem));
    if let Some(Assignment { input, .. }) = assignments.iter().find(|pair| has_frames(&pair.input, arguments.raw)) {
        return usage(format!("{}: expected pictures, each with its mask, found frames", input.display()));
    }
    let tile = arguments.running.tile().map(|_| "--tile");
    let outscale = arguments.outscale.map(|_| "--outscale");
    if let Some(option) = tile.or(arguments.running.tiling()).or(outscale) {
        return usage(format!("{option} does not go with an engine that fills in pictures"));
    }
    match &arguments.inpaint.mask {
        None => Err(no_mask()),
        Some(mask) if assignments.len() > 1 && !mask.is_dir() => {
            usage(format!("{}: expected a folder with a mask for each picture", mask.display()))
        }
        Some(_) => Ok(()),
    }
}

fn no_mask() -> Failure {
    Failure::Usage("the engine fills in what a mask covers; expected one with --mask".into())
}

/// The request for one picture.
fn request(assignment: &Assignment, mask: &Path, arguments: &Arguments, piped: &Piped) -> InpaintRequest {
    let Assignment { input, output } = assignment.clone();
    let (opening, writing) = (arguments.opening(piped), arguments.writing());
    let mask = mask.to_owned();
    // On standard output, the result has the picture's format, which is known once the picture is open.
    let (format, formats) = std::sync::mpsc::channel();
    let open = move || {
        let picture = opening.open(&input)?;
        let _ = format.send(picture.format());
        open(picture, &mask, &input, &opening)
    };
    InpaintRequest::new(open, move |header: &Header| {
        let format = formats.recv().unwrap_or(tileforge_image::Format::Png);
        writing.create(&output, header.clone(), format)
    })
}

fn open(picture: tileforge_image::ImageReader, mask: &Path, input: &Path, opening: &Opening) -> Result<InpaintInput> {
    let limits = opening.limits;
    let mask = mask_of(mask, input)?;
    // The values of a mask are levels: its colour profile is ignored.
    let mask = tileforge_image::ImageReader::open(&mask, &limits)?;
    Ok(InpaintInput { picture: Box::new(picture), mask: Box::new(mask), limits })
}

pub(super) fn run(
    arguments: &Arguments,
    engine: &Engine,
    environment: &Environment,
    work: &Each<'_>,
    piped: &Piped,
    started: Instant,
) -> CommandResult {
    let Some(mask) = arguments.inpaint.mask.as_deref() else { return Err(no_mask()) };
    let host = Host::new(environment, HostOptions::default());
    let options = InpaintOptions { placement: arguments.running.options().placement };
    let service = Service::new(&host, Inpainter::new(&host, engine, options)?, 1);
    let inpainter = service.task();
    let one = |owner: usize| request(&work.assignments[owner], mask, arguments, piped);
    let heard = work.run(&service, inpainter.streams(), one, line, |made| json!(made))?;
    let of = (engine.manifest().name.as_str(), inpainter.location());
    work.report(of, environment, (&heard.files, heard.failed()), started)?;
    heard.result()
}

fn line(made: &InpaintStatistics) -> String {
    let InpaintStatistics {
        size, filled, area, shown_size, assigned, open_seconds, run_seconds, write_seconds, ..
    } = made;
    let seconds = open_seconds + run_seconds + write_seconds;
    match area.zip(*shown_size) {
        None => format!("{size}, the mask covers nothing, {seconds:.2} s"),
        Some((area, shown)) => {
            let filled = counted(*filled, "pixel");
            let smaller = if shown == area.size { String::new() } else { format!(", computed at {shown}") };
            let part = if area.size == *size { String::new() } else { format!(" from a part of {}", area.size) };
            format!("{size}, {filled} filled in{part}{smaller}, {seconds:.2} s on {}", nodes(assigned))
        }
    }
}
