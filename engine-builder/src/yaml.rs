//! Reading YAML files, strictly: the only place that knows which YAML library we use.

use crate::{Error, Result};
use serde::de::DeserializeOwned;
use std::path::Path;

/// Reads a YAML file into `T`. An error shows the line, the column and the offending text.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = std::fs::read_to_string(path).map_err(|e| Error::file(path, "read", e))?;
    serde_saphyr::from_str(&text).map_err(|e| Error::input(path, e.to_string().trim_start_matches("error: ")))
}
