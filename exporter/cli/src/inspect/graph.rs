//! What an ONNX graph is.

use super::super::failure::{CommandResult, result_json};
use super::table::show;
use serde_json::json;
use std::collections::BTreeSet;
use std::path::Path;
use tileforge_contract::{ARCHITECTURE_KEY, Contract};
use tileforge_exporter::foreign::Survey;
use tileforge_files::bounded_to;
use tileforge_graph::{Model, Port, external_files};

/// Bytes of a line: names in graphs can have any length.
const LONGEST_LINE: usize = 2000;

pub(super) fn run(path: &Path, as_json: bool) -> CommandResult {
    // A graph of another program needs more than reading before its types are known.
    let untyped = tileforge_graph::load_untyped(path)?;
    if !untyped.metadata.contains_key(ARCHITECTURE_KEY) {
        return foreign(path, &untyped, as_json);
    }
    let model = tileforge_graph::load(path)?;
    let contract = Contract::from_metadata(&model.metadata).ok();
    let architecture = model.metadata.get(ARCHITECTURE_KEY);
    let files = external_files(tileforge_graph::MappedFile::open(path)?.bytes(), path)?;
    if as_json {
        let ports = |ports: &[Port]| -> Vec<_> {
            ports.iter().map(|port| json!({ "name": port.name, "type": port.ty.to_string() })).collect()
        };
        return result_json(&json!({
            "path": path.to_string_lossy(),
            "kind": "graph",
            "architecture": architecture,
            "task": contract.as_ref().map(|contract| contract.task),
            "producer": { "name": model.producer.0, "version": model.producer.1 },
            "inputs": ports(&model.inputs),
            "outputs": ports(&model.outputs),
            "nodes": model.nodes.len(),
            "parameters": model.parameters(),
            "weights": files,
        }));
    }
    let ports = |ports: &[Port]| {
        let ports = ports.iter().map(|port| format!("{} {}", port.name, port.ty));
        bounded_to(ports.collect::<Vec<_>>().join(", "), LONGEST_LINE)
    };
    let operators: BTreeSet<&str> = model.nodes.iter().map(|node| node.operator.as_str()).collect();
    let next = match &contract {
        Some(_) => format!("`engine-builder build {}` makes an engine of it", path.display()),
        None => "its contract cannot be read; export the checkpoint again".into(),
    };
    show(vec![
        ("kind", "ONNX graph".into()),
        ("architecture", architecture.cloned().unwrap_or_default()),
        ("task", contract.map_or_else(String::new, |contract| contract.task.to_string())),
        ("made by", bounded_to(format!("{} {}", model.producer.0, model.producer.1), LONGEST_LINE).trim().to_owned()),
        ("inputs", ports(&model.inputs)),
        ("outputs", ports(&model.outputs)),
        ("nodes", format!("{}, {} operators", model.nodes.len(), operators.len())),
        ("parameters", model.parameters().to_string()),
        ("weights", bounded_to(files.into_iter().collect::<Vec<_>>().join(", "), LONGEST_LINE)),
        ("next", next),
    ])
}

/// What a file of another program is, and what it does not say.
fn foreign(path: &Path, model: &Model, as_json: bool) -> CommandResult {
    let files = external_files(tileforge_graph::MappedFile::open(path)?.bytes(), path)?;
    let survey = Survey::of(path)?;
    let picture = survey.picture.as_ref().ok();
    let next = format!("engine-builder build {} --task {} --profile cpu -o ENGINE", path.display(), survey.task());
    if as_json {
        let ports = |ports: &[(String, tileforge_graph::TensorType)]| -> Vec<_> {
            ports.iter().map(|(name, ty)| json!({ "name": name, "type": ty.to_string() })).collect()
        };
        let file = &survey.file;
        return result_json(&json!({
            "path": path.to_string_lossy(),
            "kind": "foreign graph",
            "producer": { "name": file.producer.0, "version": file.producer.1 },
            "opset": file.opset,
            "inputs": ports(&file.inputs),
            "outputs": ports(&file.outputs),
            "half_precision": file.half,
            "quantised": file.quantised,
            "layout": survey.layout(),
            "channels": picture.map(|picture| picture.channels),
            "scale": survey.scale,
            "dynamic": picture.map(tileforge_exporter::foreign::Picture::is_dynamic),
            "receptive_field": survey.receptive_field.as_ref().ok().map(|reach| reach.radius),
            "period": survey.receptive_field.as_ref().ok().map(|reach| reach.period),
            "unbounded_because": survey.receptive_field.as_ref().err().filter(|_| picture.is_some()),
            "no_picture_because": survey.picture.as_ref().err(),
            "nodes": model.nodes.len(),
            "parameters": model.parameters(),
            "weights": files,
            "task": survey.task(),
        }));
    }
    let mut lines = vec![("kind", "ONNX graph of another program".to_owned())];
    lines.extend(survey.facts());
    lines.extend([
        ("nodes", model.nodes.len().to_string()),
        ("parameters", model.parameters().to_string()),
        ("weights", bounded_to(files.into_iter().collect::<Vec<_>>().join(", "), LONGEST_LINE)),
        ("not said", survey.missing()),
        ("next", format!("`{next}`")),
    ]);
    show(lines)
}
