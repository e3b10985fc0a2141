//! `runtime doctor`: what this box can run, and why not more.

use std::fs;
use std::path::PathBuf;
use std::thread;

use runtime::Result;
use runtime::engine::Engine;
use runtime::fit::Verdict;
use runtime::ladder::{Ladder, Placement};
use runtime::onnxruntime::Library;
use runtime::provider;
use runtime::session::Assigned;
use serde_json::json;

use super::CommandResult;
use super::chosen::Placing;
use super::output::{print, print_json};

const EXAMPLES: &str = "\
Examples:
  runtime doctor
  runtime doctor --engine engines/compact-x4 --json";

/// Show ONNX Runtime, providers, GPU and CPU of this box. No GPU is no failure.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Also say whether this engine fits here, and exit with code 3 if it does not.
    #[arg(long, value_name = "DIR")]
    engine: Option<PathBuf>,
    #[command(flatten)]
    placing: Placing,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments, library: impl Fn() -> Result<&'static Library>) -> CommandResult {
    let library = library()?;
    let probe = provider::probe(library);
    let engine = arguments.engine.as_deref().map(Engine::open).transpose()?;
    let placement = arguments.placing.placement();
    let verdict = engine.as_ref().map(|engine| Verdict::of(engine, library, &probe, placement.provider, &placement.devices));
    // What the verdict promises is tried, too.
    let opened = engine.as_ref().map(|engine| open(engine, placement));
    if arguments.json {
        print_json(&json!({
            "onnxruntime": { "path": library.path(), "version": library.version() },
            "providers": probe.providers,
            "driver_cuda_version": probe.driver_cuda_version,
            "driver_problem": probe.driver_problem,
            "gpus": probe.gpus,
            "cpu": { "name": processor(), "threads": threads(), "architecture": std::env::consts::ARCH },
            "engine": verdict,
            "assigned": opened.as_ref().and_then(|opened| opened.as_ref().ok()),
        }))?;
        return opened.map_or(Ok(()), |opened| opened.map(drop).map_err(Into::into));
    }
    let mut lines = vec![
        format!("ONNX Runtime  {} at {}", library.version(), library.path().display()),
        format!("CPU           {}, {} threads, {}", processor(), threads(), std::env::consts::ARCH),
        match (&probe.driver_cuda_version, &probe.driver_problem) {
            (Some(version), _) => format!("driver        NVIDIA, up to CUDA {version}"),
            (None, problem) => format!("driver        none: {}", problem.as_deref().unwrap_or("not found")),
        },
    ];
    lines.extend(probe.gpus.iter().map(|gpu| {
        let gibibytes = gpu.memory_bytes as f64 / f64::from(1 << 30);
        format!("GPU           {}, compute {}, {gibibytes:.1} GiB", gpu.name, gpu.compute_capability)
    }));
    lines.extend(probe.providers.iter().map(|status| {
        let usable = if status.usable { "usable" } else { "not usable" };
        format!("{:<13} {usable}: {}", status.provider.name(), status.reason)
    }));
    lines.push(format!("TensorRT      {}", probe.tensorrt_version.as_deref().unwrap_or("none")));
    if let Some(verdict) = verdict {
        lines.push(format!("engine        {verdict}"));
    }
    if let Some(Ok(assigned)) = &opened {
        let nodes = assigned.iter().map(|each| format!("{} {}", each.nodes, each.provider)).collect::<Vec<_>>();
        lines.push(format!("nodes         {}", nodes.join(", ")));
    }
    print(&lines.join("\n"))?;
    opened.map_or(Ok(()), |opened| opened.map(drop).map_err(Into::into))
}

/// Opens the engine's first graph, and tells which providers took its nodes.
fn open(engine: &Engine, placement: Placement) -> Result<Vec<Assigned>> {
    let session = Ladder::new(engine, placement)?.session(&engine.manifest().graphs[0], 0)?;
    Ok(session.assigned().to_vec())
}

fn threads() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

fn processor() -> String {
    // See proc_cpuinfo(5).
    let information = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = information.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    model.map_or("unknown".into(), |(_, name)| name.trim().to_owned())
}
