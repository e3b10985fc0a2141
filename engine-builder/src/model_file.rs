//! Model files: what a checkpoint is, and where it comes from.

use crate::{Error, Result, yaml};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tileforge_contract::Task;

/// A model, as `models/NAME.yaml` describes it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelFile {
    /// The name: the same as the file's.
    pub name: String,
    /// What the model is good for, in a sentence for the reader.
    pub description: String,
    /// The task; the checkpoint must have it.
    pub task: Task,
    /// The architecture; the checkpoint must have it.
    pub architecture: String,
    /// The checkpoint, beside the model file.
    pub checkpoint: PathBuf,
    /// SHA-256 of the checkpoint.
    pub sha256: String,
    /// The licence of the weights, an SPDX expression.
    pub licence: String,
    /// Where the weights come from and how they were trained.
    pub provenance: String,
    /// Hyperparameters that the checkpoint does not state.
    #[serde(default)]
    pub set: BTreeMap<String, String>,
}

impl ModelFile {
    /// Reads a model file.
    ///
    /// # Errors
    /// The file cannot be read or is not valid, or its checkpoint is missing or has another SHA-256.
    pub fn read(path: &Path) -> Result<Self> {
        let mut model: ModelFile = yaml::read(path)?;
        if path.file_stem().is_none_or(|stem| stem != model.name.as_str()) {
            return Err(Error::input(
                path,
                format!("expected the model to have its file's name, found `name: {}`", model.name),
            ));
        }
        if !model.checkpoint.to_str().is_some_and(tileforge_files::is_plain) {
            let reason = format!("`checkpoint`: expected the name of a file beside it, found {:?}", model.checkpoint);
            return Err(Error::input(path, reason));
        }
        model.checkpoint = path.parent().unwrap_or(Path::new("")).join(&model.checkpoint);
        if !model.checkpoint.exists() {
            return Err(Error::input(
                path,
                format!("its checkpoint {} is missing; put it there", model.checkpoint.display()),
            ));
        }
        let found = tileforge_engine::digest::sha256_file(&model.checkpoint)?.sha256;
        if found != model.sha256 {
            let reason = format!(
                "expected the SHA-256 {}, found {found}: it is another checkpoint than {}",
                model.sha256,
                path.display()
            );
            return Err(Error::input(&model.checkpoint, reason));
        }
        Ok(model)
    }
}
