//! `runtime doctor`: what this machine can run, and why not more.

use std::collections::VecDeque;
use std::path::PathBuf;

use serde_json::json;
use tileforge_engine::{Bundle, Engine};
use tileforge_runtime::{Error, Result};
use tileforge_session::onnxruntime::Library;
use tileforge_session::provider::processor;
use tileforge_session::{
    Assigned, Cancel, Environment, Ladder, OtherRelease, Placement, Probe, Processors, Verdict, multiply_8_bits,
    other_releases,
};
use tileforge_terminal::{Placing, counted, print, print_json, report_error};

use super::advice::{of_release, on_jetson};
use super::chosen::{Named, Signed, placement};
use super::failure::{CommandResult, Failure, error_text};
use super::figures::nodes;

const EXAMPLES: &str = "\
Examples:
  runtime doctor
  runtime doctor --engine engines/compact-x4 --json
  runtime doctor --engine engines/compact-x4 --devices 0,1";

/// Show ONNX Runtime, providers, GPU and CPU of this machine. No GPU is no failure.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Also say whether this engine fits here, on each of --devices, and exit with code 3 if it does not: its
    /// directory, its name, or oci://HOST/NAME:TAG.
    #[arg(long, value_name = "ENGINE", help_heading = "Engine")]
    engine: Option<PathBuf>,
    #[command(flatten)]
    signed: Signed,
    #[command(flatten)]
    placing: Placing,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Arguments {
    /// The engine as it was named, if one was.
    pub(crate) fn named(&mut self) -> Named<'_> {
        Named { paths: self.engine.iter_mut().collect(), signed: &self.signed }
    }
}

/// How an engine, or a part of one, fits one device, before and after it has been tried.
struct Judged<'e> {
    /// The prefix of messages: the part, and the GPU if there are several.
    place: String,
    part: Option<&'e str>,
    engine: &'e Engine,
    device: u32,
    verdict: Verdict,
    /// The result of opening it: the providers that took its nodes, or the error.
    opened: Option<Result<Vec<Assigned>>>,
}

pub(crate) fn run(arguments: &Arguments, environment: impl Fn() -> Result<Environment>) -> CommandResult {
    if arguments.engine.is_none() && arguments.signed.is_required() {
        return Err(Failure::Usage("--require-signature is about an engine; expected --engine, too".into()));
    }
    let environment = environment()?;
    let (library, probe) = (environment.library(), environment.probe());
    let bundle = arguments.engine.as_deref().map(|directory| arguments.signed.open_bundle(directory)).transpose()?;
    let placement = placement(&arguments.placing);
    let on_one = |device: u32| Placement { devices: vec![device], ..placement.clone() };
    let devices = placement.gpus();
    let mut judged = Vec::new();
    for (part, engine) in bundle.as_ref().map(Bundle::engines).unwrap_or_default() {
        for &device in devices {
            let part_text = part.map_or(String::new(), |part| format!("{part}: "));
            let place = if devices.len() > 1 { format!("{part_text}GPU {device}: ") } else { part_text };
            let verdict = Verdict::of(engine, &environment, &on_one(device));
            judged.push(Judged { place, part, engine, device, verdict, opened: None });
        }
    }
    // Prints first what is known at once: TensorRT may take minutes to open an engine, and a library may end the
    // process.
    let made: Vec<_> = bundle.as_ref().map(Bundle::engines).unwrap_or_default();
    let made = made.into_iter().map(|(part, engine)| (part, other_releases(engine, &environment)));
    let made: Vec<(Option<&str>, Vec<OtherRelease>)> = made.collect();
    if !arguments.json {
        print(&[known(library, probe, &judged), releases_text(&made)].concat())?;
    }
    // Also tries what the verdicts promise.
    for judged in &mut judged {
        let opened = open(&environment, judged.engine, on_one(judged.device));
        if let (Ok(assigned), false) = (&opened, arguments.json) {
            print(&format!("nodes         {}{}", judged.place, nodes(assigned)))?;
        }
        judged.opened = Some(opened);
    }
    if arguments.json {
        let engine = judged.iter().map(|Judged { part, device, verdict, opened, .. }| {
            let assigned = opened.as_ref().and_then(|opened| opened.as_ref().ok());
            let other = made.iter().find(|(of, _)| of == part).map(|(_, other)| other);
            let mut judged =
                json!({ "device": device, "verdict": verdict, "assigned": assigned, "other_releases": other });
            if let Some(part) = part {
                judged["part"] = json!(part);
            }
            judged
        });
        let processors = Processors::available();
        let Processors { logical, physical } = processors;
        print_json(&json!({
            "onnxruntime": { "path": library.path().to_string_lossy(), "version": library.version() },
            "providers": probe.providers,
            "driver_cuda_version": probe.driver_cuda_version,
            "driver_problem": probe.driver_problem,
            "tensorrt_rtx_version": probe.tensorrt_rtx_version,
            "gpus": probe.gpus,
            "jetson": probe.jetson,
            "to_do": probe.jetson.as_ref().map(|jetson| on_jetson(probe, jetson)).unwrap_or_default(),
            "cpu": {
                "name": processor(),
                "processors": logical,
                "cores": physical,
                "threads": processors.threads(1),
                "architecture": std::env::consts::ARCH,
                "multiplies_8_bits": multiply_8_bits(),
            },
            "engine": engine.collect::<Vec<_>>(),
        }))?;
    }
    let failed = judged.into_iter().filter_map(|each| Some((each.place, each.opened?.err()?)));
    let mut failed: VecDeque<(String, Error)> = failed.collect();
    // The first failure is the command's result; the others are reported here.
    let first = failed.pop_front();
    failed.iter().for_each(|(place, error)| report_error(&format!("{place}{}", error_text(error))));
    first.map_or(Ok(()), |(_, error)| Err(error.into()))
}

/// The report about this machine, and how an engine fits.
fn known(library: &Library, probe: &Probe, judged: &[Judged<'_>]) -> String {
    let processors = Processors::available();
    let (Processors { logical, physical }, threads) = (processors, processors.threads(1));
    let eight_bits = if multiply_8_bits() { "" } else { "; without dot products of 8 bits, INT8 gains no time" };
    let mut lines = vec![
        format!("ONNX Runtime  {} at {}", library.version(), library.path().display()),
        format!("CPU           {}, {}{eight_bits}", processor(), std::env::consts::ARCH),
        format!(
            "processors    {logical} on {} for this process; a session takes {}",
            counted(physical, "core"),
            counted(threads, "thread")
        ),
        match (&probe.driver_cuda_version, &probe.driver_problem) {
            (Some(version), _) => format!("driver        NVIDIA, up to CUDA {version}"),
            (None, problem) => format!("driver        none: {}", problem.as_deref().unwrap_or("not found")),
        },
    ];
    lines.extend(probe.gpus.iter().enumerate().map(|(number, gpu)| {
        let gibibytes = gpu.memory_bytes as f64 / f64::from(1 << 30);
        format!("{:<13} {}, compute {}, {gibibytes:.1} GiB", format!("GPU {number}"), gpu.name, gpu.compute_capability)
    }));
    lines.extend(provider_lines(library, probe));
    lines.push(format!("TensorRT      {}", probe.tensorrt_version.as_deref().unwrap_or("none")));
    let release = probe.tensorrt_rtx_version.as_deref();
    lines.push(format!("TensorRT-RTX  {}", release.unwrap_or("none: plans for RTX GPUs can be neither built nor run")));
    if let Some(jetson) = &probe.jetson {
        let release = jetson.release.map(|(major, minor)| format!(", Jetson Linux {major}.{minor}"));
        lines.push(format!("Jetson        {}{}", jetson.board, release.unwrap_or_default()));
        lines.extend(on_jetson(probe, jetson).into_iter().map(|step| format!("to do         {step}")));
    }
    lines.extend(judged.iter().map(|each| format!("engine        {}{}", each.place, each.verdict)));
    lines.join("\n")
}

/// A line for each provider, with what it lacks, and one for the release of OpenVINO.
pub(crate) fn provider_lines(library: &Library, probe: &Probe) -> Vec<String> {
    let status = probe.providers.iter().map(|status| {
        let usable = if status.usable { "usable" } else { "not usable" };
        format!("{:<13} {usable}: {}", status.provider.name(), status.reason)
    });
    let openvino = library.openvino_release().map_or_else(|problem| format!("none: {problem}"), str::to_owned);
    status.chain([format!("OpenVINO      {openvino}")]).collect()
}

/// A line for each release that an engine or its part was made with and that differs from the one here; each begins
/// with a newline.
fn releases_text(made: &[(Option<&str>, Vec<OtherRelease>)]) -> String {
    let line = |(part, other): (Option<&str>, &OtherRelease)| {
        let part = part.map_or(String::new(), |part| format!("{part}: "));
        format!("\nrelease       {part}{other}; {}", of_release(other))
    };
    made.iter().flat_map(|(part, others)| others.iter().map(move |other| line((*part, other)))).collect()
}

/// Opens the engine's first graph, and tells which providers took its nodes.
fn open(environment: &Environment, engine: &Engine, placement: Placement) -> Result<Vec<Assigned>> {
    let session =
        Ladder::new(environment, engine, placement)?.session(&engine.manifest().graphs[0], 0, &Cancel::new())?;
    Ok(session.assigned().to_vec())
}
