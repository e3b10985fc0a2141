//! The file of settings that can change while the server runs.

use std::collections::BTreeMap;

use serde::Deserialize;
use tileforge_server::NamedModel;

use crate::arguments::Engines;
use crate::failure::{CommandResult, Error};

/// Larger files are refused.
const BYTES_MAXIMUM: u64 = 1 << 20;

/// What the file of `--config` says.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Configuration {
    /// Sources by name.
    models: BTreeMap<String, String>,
}

/// The models that a file names; those that are given win.
pub(crate) fn models(Engines { config, model_name: given, .. }: &Engines) -> CommandResult<Vec<NamedModel>> {
    let mut models = given.clone();
    let Some(path) = config else { return Ok(models) };
    let failed = |source| Error::Configuration { path: path.to_owned(), source };
    if path.metadata().map_err(failed)?.len() > BYTES_MAXIMUM {
        return Err(failed(std::io::Error::other(format!("expected at most {BYTES_MAXIMUM} bytes"))));
    }
    let text = std::fs::read_to_string(path).map_err(failed)?;
    let wrong = |source| Error::NotConfiguration { path: path.to_owned(), source };
    let configuration: Configuration = toml::from_str(&text).map_err(wrong)?;
    let is_new = |name: &String| !given.iter().any(|model| model.name == *name);
    let named = configuration.models.into_iter().filter(|(name, _)| is_new(name));
    models.extend(named.map(|(name, source)| NamedModel { name, source }));
    Ok(models)
}
