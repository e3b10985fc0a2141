//! The files of a report: tables in Markdown, their figures, and a chart.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;
use tileforge_files::unfinished;

use super::super::failure::{CommandResult, Failure};

/// The files of a report of this name: "sweep" or "steps".
pub(super) fn files(folder: &Path, name: &str) -> [PathBuf; 3] {
    ["md", "json", "svg"].map(|ending| folder.join(format!("{name}.{ending}")))
}

/// Writes them.
pub(super) fn write(folder: &Path, name: &str, figures: &impl Serialize, tables: &str, chart: &str) -> CommandResult {
    fs::create_dir_all(folder).map_err(|source| Failure::file(folder, "create", source))?;
    let json = serde_json::to_vec_pretty(figures).map_err(|error| Failure::file(folder, "describe", error.into()))?;
    let contents = [format!("{tables}\n").into_bytes(), json, chart.as_bytes().to_vec()];
    files(folder, name).into_iter().zip(contents).try_for_each(|(path, bytes)| {
        unfinished::write(&path, &bytes).map_err(|source| Failure::file(&path, "write", source))
    })
}
