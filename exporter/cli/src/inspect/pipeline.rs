//! What a diffusion pipeline is.

use super::super::failure::{CommandResult, result_json};
use super::table::show;
use serde_json::json;
use std::path::Path;
use tileforge_exporter::Result;
use tileforge_exporter::arch::detect_task;
use tileforge_exporter::pipeline::{Part, Pipeline};

pub(super) fn show_lines(path: &Path, pipeline: &Pipeline) -> CommandResult {
    let mut lines = vec![("kind", "diffusion pipeline".to_owned()), ("class", pipeline.class().unwrap_or("").into())];
    for part in pipeline.parts() {
        let (architecture, parameters) = facts(part)?;
        lines.push((&part.name, format!("{architecture}, {}, {parameters} parameters", part.task)));
    }
    for (name, class) in pipeline.left_out() {
        lines.push((name, format!("{class}, left out: the pipeline runs without it")));
    }
    let path = path.display();
    lines.push((
        "next",
        format!(
            "`exporter export {path} -o FOLDER` writes a graph of each, and `exporter inspect \
                                 {path} --component NAME` shows one"
        ),
    ));
    show(lines)
}

pub(super) fn run(path: &Path, pipeline: &Pipeline, as_json: bool) -> CommandResult {
    if !as_json {
        return show_lines(path, pipeline);
    }
    let graphs = pipeline.parts().iter().map(|part| {
        let (architecture, parameters) = facts(part)?;
        Ok(json!({
            "name": part.name, "task": part.task, "architecture": architecture, "parameters": parameters,
            "files": part.checkpoint.files().iter().map(|file| file.to_string_lossy()).collect::<Vec<_>>(),
        }))
    });
    let left_out = pipeline.left_out().iter().map(|(name, class)| json!({ "name": name, "class": class }));
    result_json(&json!({
        "path": path.to_string_lossy(),
        "kind": "pipeline",
        "class": pipeline.class(),
        "graphs": graphs.collect::<Result<Vec<_>>>()?,
        "left_out": left_out.collect::<Vec<_>>(),
    }))
}

/// The architecture of a component, and its number of parameters.
fn facts(part: &Part) -> Result<(&'static str, u64)> {
    let network = detect_task(&part.checkpoint, Some(part.task), &part.hints)?;
    Ok((network.architecture(), part.checkpoint.parameters()))
}
