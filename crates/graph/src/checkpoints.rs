//! The checkpoints that a graph points into.
//!
//! A linked graph and its checkpoint share the bytes of the weights, so whoever overwrites the checkpoint in place
//! changes the graph. The graph's metadata therefore holds the size and the digest of each checkpoint, as JSON:
//! `[{"file": NAME, "bytes": SIZE, "sha256": DIGEST}]`. The digest is `null` where it was not computed.

use crate::message::decode_message;
use crate::{Error, MappedFile, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;
use tileforge_contract::CHECKPOINTS_KEY;

/// A checkpoint as it was when a graph was written that points into it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkedCheckpoint {
    /// Its name beside the graph.
    pub file: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// Its SHA-256, 64 lower-case hexadecimal digits; `None` if it was not computed.
    pub sha256: Option<String>,
}

impl LinkedCheckpoint {
    /// Describes a mapped checkpoint that has the name `file` beside the graph.
    pub(crate) fn new(file: String, map: &MappedFile, digest: bool) -> Result<Self> {
        let sha256 = digest.then(|| map.sha256()).transpose()?;
        Ok(LinkedCheckpoint { file, bytes: map.bytes().len() as u64, sha256 })
    }

    /// Checks that a file has the length of this checkpoint.
    pub(crate) fn check_length(&self, map: &MappedFile) -> Result<()> {
        let found = map.bytes().len() as u64;
        let same = found == self.bytes;
        if same { Ok(()) } else { Err(Error::changed(map.path(), format!("{} bytes", self.bytes), found.to_string())) }
    }
}

/// The records in a graph's metadata, as JSON.
pub(crate) fn to_json(records: &[LinkedCheckpoint]) -> Result<String> {
    serde_json::to_string(records).map_err(|error| Error::Graph(format!("{CHECKPOINTS_KEY}: {error}")))
}

/// Reads the records of the graph at `path` from its metadata.
pub(crate) fn from_json(text: &str, path: &Path) -> Result<Vec<LinkedCheckpoint>> {
    let fail = |reason: String| Error::format(path, format!("{CHECKPOINTS_KEY}: {reason}"));
    let records: Vec<LinkedCheckpoint> = serde_json::from_str(text).map_err(|error| fail(error.to_string()))?;
    match records.iter().find(|record| !tileforge_files::is_plain(&record.file)) {
        Some(record) => Err(fail(format!("expected the name of a file beside the graph, found {:?}", record.file))),
        None => Ok(records),
    }
}

fn records_of(graph: &MappedFile) -> Result<Vec<LinkedCheckpoint>> {
    let model = decode_message(graph.bytes(), graph.path())?;
    let entry = model.metadata_props.iter().find(|entry| entry.key() == CHECKPOINTS_KEY);
    entry.map_or(Ok(Vec::new()), |entry| from_json(entry.value(), graph.path()))
}

/// Checks that the checkpoints that the graph at `path` points into are those that it was exported from. Returns them;
/// of those without a digest, only the length is compared.
///
/// # Errors
/// [`Error::Changed`]: a checkpoint has another length or digest; or a file cannot be read.
pub fn check_checkpoints(path: &Path) -> Result<Vec<LinkedCheckpoint>> {
    let records = records_of(&*MappedFile::open(path)?)?;
    for record in &records {
        let map = MappedFile::open(path.with_file_name(&record.file))?;
        record.check_length(&map)?;
        if let Some(expected) = &record.sha256 {
            let found = map.sha256()?;
            if found != *expected {
                return Err(Error::changed(map.path(), format!("SHA-256 {expected}"), found));
            }
        }
    }
    Ok(records)
}
