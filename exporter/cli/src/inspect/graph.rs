//! What an ONNX graph is.

use super::super::{CommandResult, result_json};
use super::show;
use serde_json::json;
use std::collections::BTreeSet;
use std::path::Path;
use tileforge_contract::{ARCHITECTURE_KEY, Contract};
use tileforge_files::bounded_to;
use tileforge_graph::{Port, external_files};

/// Bytes of a line: names in graphs can have any length.
const LONGEST_LINE: usize = 2000;

pub(super) fn run(path: &Path, as_json: bool) -> CommandResult {
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
        None => "not exported by this program, so it does not say what its tensors mean; export the checkpoint that \
                 it was made from"
            .into(),
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
