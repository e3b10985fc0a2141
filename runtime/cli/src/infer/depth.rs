//! `runtime infer` with an engine that gives depth.

use std::path::Path;
use std::time::Instant;

use serde_json::json;
use tileforge_contract::Contract;
use tileforge_engine::Engine;
use tileforge_runtime::Result;
use tileforge_runtime::depth::{
    Colouring, DepthFormat, DepthInput, DepthKind, DepthMap, DepthOptions, DepthRequest, DepthStatistics, Estimate,
    Estimator, MapOptions, takes_map,
};
use tileforge_runtime::host::{Host, HostOptions, Service};
use tileforge_runtime::pixels::Pixels;
use tileforge_session::Environment;
use tileforge_terminal::counted;

use super::super::advice::of_stretching;
use super::super::failure::{CommandResult, Failure};
use super::super::figures::nodes;
use super::arguments::Arguments;
use super::companion::map_of;
use super::depth_arguments::DepthArguments;
use super::each::Each;
use super::kind::{has_frames, is_film};
use super::picture::Opening;
use super::plan::{Assignment, check as check_frames};
use super::standard::Piped;

/// The ending of a result's name in a folder.
pub(super) fn ending(arguments: &Arguments) -> &'static str {
    // For pictures only; frames and films keep their formats.
    arguments.depth.depth_format.unwrap_or(DepthFormat::Png).ending()
}

/// Refuses options and names that do not fit such an engine.
pub(super) fn check(contract: &Contract, assignments: &[Assignment], arguments: &Arguments) -> CommandResult {
    let usage = |problem: String| Err(Failure::Usage(problem));
    let has_frames = |pair: &&Assignment| has_frames(&pair.input, arguments.raw);
    if let Some(Assignment { input, .. }) = assignments.iter().find(has_frames) {
        if takes_map(contract) {
            let text = format!("{}: expected pictures, each with its map, found frames", input.display());
            return usage(text);
        }
        if assignments.len() > 1 {
            return usage(format!(
                "{}: a film or stream of frames goes alone through an engine that gives depth, found {} inputs",
                input.display(),
                assignments.len()
            ));
        }
    }
    let tile = arguments.running.tile().map(|_| "--tile");
    let is_film = assignments.iter().any(|pair| is_film(&pair.input, arguments.raw));
    let of_pictures = arguments.for_written_pictures().filter(|option| !(is_film && *option == "--matrix"));
    let other = arguments.running.tiling().or(of_pictures);
    if let Some(option) = tile.or(other) {
        return usage(format!("{option} does not go with an engine that gives depth"));
    }
    let DepthArguments { depth, depth_scale, max_depth, colour_map, .. } = &arguments.depth;
    match (depth, takes_map(contract)) {
        (None, true) => return usage("the engine refines a rough depth map; expected one with --depth".into()),
        (Some(_), false) => return usage("the engine takes pictures alone; leave out --depth".into()),
        (Some(map), true) if assignments.len() > 1 && !map.is_dir() => {
            return usage(format!("{}: expected a folder with a map for each picture", map.display()));
        }
        (None, false) if depth_scale.is_some() || max_depth.is_some() => {
            return usage("--depth-scale and --max-depth are about a map, and the engine takes none".into());
        }
        _ => {}
    }
    for pair in assignments {
        let Assignment { output, .. } = pair;
        if has_frames(&pair) {
            check_frames(pair, arguments)?;
            continue;
        }
        if let Some(option) = arguments.film.given() {
            return usage(format!("{option} is for films, such as .mkv and .mp4"));
        }
        let format = DepthFormat::of_name(output)?;
        if output.is_dir() {
            return usage(format!("{}: expected the name of a file, found a folder", output.display()));
        }
        if colour_map.is_some() && format != DepthFormat::Png {
            return usage(format!("{}: --colour-map colours a .png, expected such a name", output.display()));
        }
    }
    Ok(())
}

/// The request for one picture.
fn request(assignment: &Assignment, arguments: &Arguments, piped: &Piped) -> DepthRequest {
    let Assignment { input, output } = assignment.clone();
    let opening = arguments.opening(piped);
    let DepthArguments { depth, colour_map, colour_range, .. } = &arguments.depth;
    let (depth, options) = (depth.clone(), arguments.depth.map_options());
    let colouring = colour_map.clone().map(|map| Colouring { map, range: *colour_range });
    let open = move || open(&input, depth.as_deref(), options, &opening);
    DepthRequest::new(open, move |estimate: &Estimate| estimate.write(&output, colouring.as_ref()))
}

fn open(input: &Path, depth: Option<&Path>, options: MapOptions, opening: &Opening) -> Result<DepthInput> {
    let limits = &opening.limits;
    let map = depth.map(|depth| DepthMap::read(&map_of(depth, input)?, options, limits)).transpose()?;
    Ok(DepthInput { picture: Pixels::read(&mut opening.open(input)?, limits)?, map })
}

/// The engine as a service of the host.
pub(super) fn service(host: &Host, engine: &Engine, arguments: &Arguments) -> Result<Service<Estimator>> {
    let options = DepthOptions {
        placement: arguments.running.options().placement,
        channel_order: arguments.depth.channel_order,
        input_size: arguments.depth.input_size,
    };
    Ok(Service::new(host, Estimator::new(host, engine, options)?, 1))
}

pub(super) fn run(
    arguments: &Arguments,
    engine: &Engine,
    environment: &Environment,
    work: &Each<'_>,
    piped: &Piped,
    started: Instant,
) -> CommandResult {
    let host = Host::new(environment, HostOptions::default());
    let service = service(&host, engine, arguments)?;
    let estimator = service.task();
    let kind = estimator.kind();
    let one = |owner: usize| request(&work.assignments[owner], arguments, piped);
    let tell = |made: &DepthStatistics| {
        if let Some(advice) = of_stretching(made) {
            tracing::warn!("{advice}");
        }
        json!(made)
    };
    let heard = work.run(&service, estimator.streams(), one, |made| line(made, kind), tell)?;
    let of = (engine.manifest().name.as_str(), estimator.location());
    work.report(of, environment, (&heard.files, heard.failed()), started)?;
    heard.result()
}

fn line(made: &DepthStatistics, kind: DepthKind) -> String {
    let DepthStatistics {
        size,
        network_size,
        stretched,
        missing,
        assigned,
        open_seconds,
        run_seconds,
        write_seconds,
        ..
    } = made;
    let stretched = if *stretched { ", stretched" } else { "" };
    let missing = if *missing > 0 { format!(", {} without depth", counted(*missing, "pixel")) } else { String::new() };
    let unit = match kind {
        DepthKind::Metres => "metres",
        DepthKind::RelativeInverse => "relative depth",
    };
    let seconds = open_seconds + run_seconds + write_seconds;
    format!("{unit} for {size}, computed at {network_size}{stretched}{missing}, {seconds:.2} s on {}", nodes(assigned))
}
