//! `runtime inspect`: what an engine is.

use std::collections::BTreeMap;

use tileforge_runtime::engine::Manifest;

use super::CommandResult;
use super::chosen::Chosen;
use super::output::{print, print_json};

const EXAMPLES: &str = "\
Examples:
  runtime inspect --engine engines/compact-x4
  runtime inspect --engine engines/compact-x4 --json | jq .gates";

/// Show an engine's manifest, after checking that its files are whole.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    engine: Chosen,
    /// Print the manifest as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    let engine = arguments.engine.open()?;
    if arguments.json {
        return Ok(print_json(engine.manifest())?);
    }
    Ok(print(&text(engine.manifest()))?)
}

fn text(manifest: &Manifest) -> String {
    let Manifest { model, target, built_with, .. } = manifest;
    let bytes: u64 = manifest.files.values().map(|file| file.bytes).sum();
    let capability = target.compute_capability.as_ref().map_or(String::new(), |version| format!(", compute {version}"));
    let mut lines = vec![
        format!("name             {}", manifest.name),
        format!("model            {}, {} parameters", model.architecture, model.parameters),
        format!("licence          {}", model.licence.as_deref().unwrap_or("not stated")),
    ];
    if let Some(interface) = &manifest.interface {
        let reach =
            interface.receptive_field.map_or("unbounded or unknown".into(), |radius| format!("{radius} pixels"));
        lines.push(format!(
            "task             {} ×{}, {} channels, values {} to {}",
            interface.task, interface.scale, interface.channels, interface.range[0], interface.range[1]
        ));
        lines.push(format!("receptive field  {reach}"));
    }
    if let Some(component) = &manifest.component {
        lines.push(format!("task             {}", component.task));
        lines.extend(component.facts.iter().map(|(key, value)| format!("{key:<16} {value}")));
    }
    lines.extend([
        format!("precision        {}", manifest.precision),
        format!(
            "target           {} ({}{capability}){}",
            target.profile,
            target.provider,
            if target.portable { ", portable" } else { "" }
        ),
        format!(
            "built by         {} with ONNX Runtime {} on {} {}",
            manifest.producer, built_with.onnxruntime, built_with.operating_system, built_with.processor
        ),
        format!("files            {}, {:.1} MB, all whole", manifest.files.len(), bytes as f64 / 1e6),
    ]);
    for graph in &manifest.graphs {
        let optimised = if graph.optimised { ", optimised" } else { "" };
        let tensors = |shapes: &BTreeMap<String, Vec<usize>>| {
            shapes.iter().map(|(name, shape)| format!("{name} {shape:?}")).collect::<Vec<_>>().join(", ")
        };
        let takes = match &manifest.interface {
            Some(interface) => format!("tiles of {}", graph.tile(interface)),
            None => format!("{} to {}", tensors(&graph.inputs), tensors(&graph.outputs)),
        };
        lines.push(format!("graph            {}: {takes}{optimised}", graph.file));
    }
    for gate in &manifest.gates {
        lines.push(format!(
            "gate             {} on {}: {} (at least {})",
            gate.name, gate.graph, gate.value, gate.floor
        ));
    }
    lines.join("\n")
}
