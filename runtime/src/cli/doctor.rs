//! `runtime doctor`: what this box can run, and why not more.

use std::fs;
use std::path::PathBuf;
use std::thread;

use runtime::Result;
use runtime::engine::Engine;
use runtime::onnxruntime::Library;
use runtime::provider::{self, Probe, Provider};
use serde_json::{Value, json};

use super::output::{print, print_json};
use super::{CommandResult, chain};

const EXAMPLES: &str = "\
Examples:
  runtime doctor
  runtime doctor --engine engines/compact-x4 --json";

/// Show ONNX Runtime, providers, GPU and CPU of this box. No GPU is no failure.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Also say whether this engine runs here.
    #[arg(long, value_name = "DIR")]
    engine: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments, library: impl Fn() -> Result<&'static Library>) -> CommandResult {
    let library = library()?;
    let probe = provider::probe(library);
    let engine = arguments.engine.as_deref().map(Engine::open).transpose()?;
    let verdict = engine.as_ref().map(|engine| verdict(engine, &probe));
    if arguments.json {
        print_json(&json!({
            "onnxruntime": { "path": library.path(), "version": library.version() },
            "providers": probe.providers,
            "driver_cuda_version": probe.driver_cuda_version,
            "driver_problem": probe.driver_problem,
            "gpus": probe.gpus,
            "cpu": { "name": processor(), "threads": threads(), "architecture": std::env::consts::ARCH },
            "engine": verdict,
        }))?;
        return Ok(());
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
    if let Some(verdict) = verdict {
        lines.push(format!("engine        {}", verdict["text"].as_str().unwrap_or_default()));
    }
    Ok(print(&lines.join("\n"))?)
}

fn verdict(engine: &Engine, probe: &Probe) -> Value {
    let manifest = engine.manifest();
    let target = manifest.target.provider;
    let text = match engine.session(&manifest.graphs[0], &runtime::session::SessionOptions::default()) {
        Err(error) => return json!({ "name": manifest.name, "runs_on": null, "text": chain(&error) }),
        Ok(_) if target == Provider::Cpu => format!("{}: runs here, on the CPU", manifest.name),
        Ok(_) => format!("{}: falls back to the CPU, because {}", manifest.name, probe.reason_against(target)),
    };
    json!({ "name": manifest.name, "runs_on": Provider::Cpu, "text": text })
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
