//! `runtime warm`: creates the data that an engine needs on this machine's GPUs, before the first request.

use std::path::PathBuf;
use std::time::Instant;

use serde::Serialize;
use tileforge_contract::Provider;
use tileforge_engine::{Bundle, extend};
use tileforge_files::outputs;
use tileforge_runtime::Result;
use tileforge_session::{Cancel, Environment, Ladder, Placement, additions};
use tileforge_terminal::{Placing, Progress, Unit, print, print_json};

use super::chosen::{Chosen, placement};
use super::failure::CommandResult;

const EXAMPLES: &str = "\
Examples:
  runtime warm --engine engines/rtx4090/compact-x4
  runtime warm --engine engines/h100/compact-x4 --devices 0,1 --json
  runtime warm --engine engines/rtx4090/compact-x4 --output engines/rtx4090-warm/compact-x4";

/// Open and run every graph of an engine once, so that the user's cache has what the GPU adds: what TensorRT compiles,
/// or the runtime cache of a plan for RTX GPUs. Later starts of any program are then fast.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(super) engine: Chosen,
    #[command(flatten)]
    placing: Placing,
    /// Also write an engine that takes along what the GPUs have added, for machines with the same GPUs, driver and
    /// libraries. It has no signature: sign it again. Of an engine with several parts, name one with --part.
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// One graph on one device.
#[derive(Serialize)]
struct Warmed {
    /// The part that has the graph, of an engine with several.
    #[serde(skip_serializing_if = "Option::is_none")]
    part: Option<String>,
    graph: String,
    device: u32,
    provider: Provider,
    /// Seconds to open the graph and run it once.
    seconds: f64,
}

/// What was done, and where it is kept.
#[derive(Serialize)]
struct Report {
    warmed: Vec<Warmed>,
    /// `None`: there is no cache folder, and nothing is kept.
    cache: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments, environment: impl Fn() -> Result<Environment>) -> CommandResult {
    let bundle = match &arguments.output {
        None => arguments.engine.open_bundle()?,
        // Checked first, because the work takes minutes.
        Some(output) => {
            outputs::check(&[output], &[&arguments.engine.directory])?;
            Bundle::Engine(arguments.engine.open()?)
        }
    };
    let environment = environment()?;
    let placement = placement(&arguments.placing);
    let (devices, engines) = (placement.gpus().to_vec(), bundle.engines());
    let graphs: usize = engines.iter().map(|(_, engine)| engine.manifest().graphs.len()).sum();
    let mut warmed = Vec::new();
    let progress = Progress::new();
    progress.begin("opening graphs", Some((devices.len() * graphs) as u64), Unit::Count("graphs"));
    for (device, (part, engine)) in devices.iter().flat_map(|&device| engines.iter().map(move |each| (device, each))) {
        let placement = Placement { devices: vec![device], ..placement.clone() };
        let ladder = Ladder::new(&environment, engine, placement)?;
        for graph in &engine.manifest().graphs {
            let started = Instant::now();
            let session = ladder.session(graph, 0, &Cancel::new())?;
            let mut bound = session.bind_graph(&engine.manifest().contract, graph)?;
            bound.run(&Cancel::new())?;
            let seconds = started.elapsed().as_secs_f64();
            let (graph, part) = (graph.file.clone(), part.map(str::to_owned));
            warmed.push(Warmed { part, graph, device, provider: session.provider(), seconds });
            progress.add(1);
        }
    }
    progress.finish();
    if let (Some(output), [(_, engine)]) = (&arguments.output, engines.as_slice()) {
        extend(engine, &additions::of(&environment, engine, &devices)?, output)?;
    }
    let report = Report { warmed, cache: environment.cache().map(PathBuf::from) };
    if arguments.json {
        return Ok(print_json(&report)?);
    }
    for Warmed { part, graph, device, provider, seconds } in &report.warmed {
        let part = part.as_ref().map_or(String::new(), |part| format!("{part}: "));
        let place = if provider.is_on_processor() { String::new() } else { format!(" of GPU {device}") };
        print(&format!("{part}{graph}: {seconds:.1} s on {provider}{place}"))?;
    }
    Ok(())
}
