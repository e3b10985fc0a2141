//! The output of `engine-builder build` about a built engine.

use super::super::failure::{CommandResult, result, result_json};
use std::collections::BTreeMap;
use std::path::Path;
use tileforge_contract::Upscale;
use tileforge_engine::manifest::{FileDigest, Gate, LeftOut, Manifest};
use tileforge_engine::share::share_files;
use tileforge_engine::{Diffusion, PipelineManifest};
use tileforge_engine_builder::request::BuiltEngine;
use tileforge_engine_builder::rtx::PlanReport;
use tileforge_engine_builder::{Built, BuiltPipeline, Picture, Sensitivity, figure};
use tileforge_terminal::{counted, counted_as, report};

/// What happens with a built engine, and how it is reported.
pub(super) struct Printing<'a> {
    /// The folder in which equal files are stored only once.
    pub(super) share: Option<&'a Path>,
    pub(super) json: bool,
}

impl Printing<'_> {
    /// Reports a built engine. `name` is the model's.
    pub(super) fn tell(&self, name: &str, built: &BuiltEngine) -> CommandResult {
        let directory = built.directory();
        let saved = self.share.map(|folder| share_files(directory, folder)).transpose()?;
        match built {
            BuiltEngine::One(built) if self.json => return result_json(&Report::of(built)),
            BuiltEngine::Parts(built) if self.json => return result_json(&PipelineReport::of(built)),
            BuiltEngine::One(built) => {
                tell_engine(name, built);
                let files = counted(built.manifest.files.len(), "file");
                report(&format!("  {:.1} MB in {files}", built.bytes as f64 / 1e6));
            }
            BuiltEngine::Parts(built) => tell_parts(built),
        }
        if let Some(saved) = saved.filter(|saved| *saved > 0) {
            report(&format!("  {:.1} MB of it shared with other engines", saved as f64 / 1e6));
        }
        result(&directory.display().to_string())
    }
}

fn tell_parts(built: &BuiltPipeline) {
    built.parts.iter().for_each(|(name, part)| tell_engine(name, part));
    let shared = if built.shared > 0 {
        format!(", {:.1} MB of them stored once for several parts", built.shared as f64 / 1e6)
    } else {
        String::new()
    };
    if let Some(Picture { size, gates, seconds }) = &built.picture {
        report(&format!("a picture of {size} by all parts, made twice in {seconds:.1} s"));
        gates.iter().for_each(tell_gate);
    }
    report(&format!("  {:.1} MB in {}{shared}", built.bytes as f64 / 1e6, counted(built.parts.len(), "part")));
}

fn tell_engine(name: &str, built: &Built) {
    let manifest = &built.manifest;
    let enlarges = Upscale::of(&manifest.contract).map_or(String::new(), |upscale| format!(" ×{}", upscale.scale));
    report(&format!("{name}: {}{enlarges}, {}", manifest.model.architecture, manifest.precision));
    for graph in &manifest.graphs {
        report(&format!("  {}{}", graph.file, if graph.optimised { ", optimised offline" } else { "" }));
    }
    if !manifest.islands.is_empty() {
        report(&format!("  not in {}: {}", manifest.precision, shortened(&manifest.islands)));
    }
    if let Some(calibration) = &manifest.calibration {
        let found = format!("{} of {}", counted(calibration.tiles, "tile"), counted(calibration.pictures, "picture"));
        report(&format!("  calibrated on {found} ({})", calibration.source));
    }
    if let Some(left_out) = &manifest.left_out {
        report(&format!("  {}", left_out_line(left_out)));
    }
    for layer in &built.sensitivity {
        report(&format!("  {layer}"));
    }
    for gate in manifest.gates.iter().chain(&built.speed) {
        tell_gate(gate);
    }
    for plan in &built.plans {
        report(&format!("  {}", plan_line(plan)));
    }
    if let Some(reason) = &built.portable {
        report(&format!("  portable, not compiled for its GPU: {reason}"));
    }
}

fn tell_gate(gate: &Gate) {
    let (value, floor) = (figure(gate.value), figure(gate.floor));
    report(&format!("  gate {}: {} = {value} (at least {floor})", gate.graph, gate.name));
}

/// One line about what the calibration budget left out.
fn left_out_line(LeftOut { budget_minutes, calibration_runs, judged, graphs }: &LeftOut) -> String {
    let some = |count: usize, one: &str, several: &str| (count > 0).then(|| counted_as(count, one, several));
    let parts = [
        some(*calibration_runs, "calibration run", "calibration runs"),
        some(*judged, "calibration sample of the gates", "calibration samples of the gates"),
        (!graphs.is_empty()).then(|| format!("the gates of {}", graphs.join(", "))),
    ];
    let parts = parts.into_iter().flatten().collect::<Vec<_>>().join(", ");
    format!(
        "left out, with a calibration budget of {} (--calibration-budget): {parts}",
        counted(*budget_minutes, "minute")
    )
}

/// One line about the time, memory and size of a plan.
fn plan_line(plan: &PlanReport) -> String {
    let memory = plan.peak_bytes.map_or(String::new(), |bytes| format!(", {:.2} GB of memory", bytes as f64 / 1e9));
    let bytes = if plan.repeatable {
        ""
    } else {
        "; another build may give other bytes, because this system does not let programs fix their addresses"
    };
    format!(
        "plan of {}: {:.1} MB, {}, {:.1} s{memory}{bytes}",
        plan.graph,
        plan.bytes as f64 / 1e6,
        counted(plan.layers, "layer"),
        plan.seconds
    )
}

/// What `build --json` prints: the manifest, plans, speed and sensitivity.
#[derive(serde::Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    manifest: &'a Manifest,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    plans: &'a [PlanReport],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    speed: &'a [Gate],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    sensitivity: &'a [Sensitivity],
}

impl<'a> Report<'a> {
    fn of(built: &'a Built) -> Self {
        let Built { manifest, plans, speed, sensitivity, .. } = built;
        Self { manifest, plans, speed, sensitivity }
    }
}

/// What `build --json` prints for a pipeline: its manifest, with each part's report instead of its digest.
#[derive(serde::Serialize)]
struct PipelineReport<'a> {
    schema: u32,
    name: &'a str,
    producer: &'a str,
    parts: BTreeMap<&'a str, Report<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    diffusion: &'a Option<Diffusion>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    gates: &'a [Gate],
    files: &'a BTreeMap<String, FileDigest>,
    shared_bytes: u64,
}

impl<'a> PipelineReport<'a> {
    fn of(built: &'a BuiltPipeline) -> Self {
        let PipelineManifest { schema, name, producer, diffusion, gates, files, .. } = &built.manifest;
        let parts = built.parts.iter().map(|(name, part)| (name.as_str(), Report::of(part))).collect();
        Self { schema: *schema, name, producer, parts, diffusion, gates, files, shared_bytes: built.shared }
    }
}

/// The first few names, and the number of the others.
fn shortened(names: &[String]) -> String {
    const SHOWN: usize = 4;
    let first = names.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN {
        format!("{first} and {} more (`islands` of the manifest)", names.len() - SHOWN)
    } else {
        first
    }
}
