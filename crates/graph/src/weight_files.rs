//! The weight files of a graph, as they were when the graph was written.
//!
//! A linked graph and its checkpoint share the bytes of the weights, so a program that overwrites the checkpoint in place
//! changes the graph. A graph with a weight file of its own could get the weights of another export, since two files
//! cannot be renamed in one step. The graph's metadata therefore holds the size and the digest of each such file, as
//! JSON: `[{"file": NAME, "bytes": SIZE, "sha256": DIGEST}]`. The digest is `null` where it was not computed.
//!
//! Graphs of other programs, and the graphs of engines, have no such metadata: the digests of an engine are in its
//! manifest.

use crate::message::decode_message;
use crate::{Error, MappedFile, Result, external_files};
use serde::{Deserialize, Serialize};
use std::path::Path;
use tileforge_contract::CHECKPOINTS_KEY;
use tileforge_files::{Digests, stated_by_hub_cache};

/// A weight file, as it was when the graph that points into it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WeightFile {
    /// Its name beside the graph.
    pub file: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// Its SHA-256, 64 lower-case hexadecimal digits; `None` if it was not computed.
    pub sha256: Option<String>,
}

impl WeightFile {
    /// Describes a mapped checkpoint that has the name `file` beside the graph.
    ///
    /// A blob of the hub's cache has its digest as its name. The name is used without reading the file: every user of
    /// the graph compares the digest with the bytes ([`check_weight_files`]), so a wrong name is found there.
    pub(crate) fn of_checkpoint(file: String, map: &MappedFile, digests: Option<&Digests>) -> Result<Self> {
        let stated = |digests| stated_by_hub_cache(map.path()).map_or_else(|| map.sha256(digests), Ok);
        let sha256 = digests.map(stated).transpose()?;
        Ok(WeightFile { file, bytes: map.bytes().len() as u64, sha256 })
    }

    /// Checks that a file has the length of this one.
    pub(crate) fn check_length(&self, map: &MappedFile) -> Result<()> {
        let found = map.bytes().len() as u64;
        let same = found == self.bytes;
        if same { Ok(()) } else { Err(Error::changed(map.path(), format!("{} bytes", self.bytes), found.to_string())) }
    }
}

/// The records in a graph's metadata, as JSON.
pub(crate) fn to_json(records: &[WeightFile]) -> Result<String> {
    serde_json::to_string(records).map_err(|error| Error::Graph(format!("{CHECKPOINTS_KEY}: {error}")))
}

/// Reads the records of the graph at `path` from its metadata.
pub(crate) fn from_json(text: &str, path: &Path) -> Result<Vec<WeightFile>> {
    let fail = |reason: String| Error::format(path, format!("{CHECKPOINTS_KEY}: {reason}"));
    let records: Vec<WeightFile> = serde_json::from_str(text).map_err(|error| fail(error.to_string()))?;
    match records.iter().find(|record| !tileforge_files::is_plain(&record.file)) {
        Some(record) => Err(fail(format!("expected the name of a file beside the graph, found {:?}", record.file))),
        None => Ok(records),
    }
}

/// The records of the files that the graph uses. Another program may have rewritten the graph and moved its weights.
fn records_of(graph: &MappedFile) -> Result<Vec<WeightFile>> {
    let model = decode_message(graph.bytes(), graph.path())?;
    let entry = model.metadata_props.iter().find(|entry| entry.key() == CHECKPOINTS_KEY);
    let mut records = entry.map_or(Ok(Vec::new()), |entry| from_json(entry.value(), graph.path()))?;
    let used = external_files(graph.bytes(), graph.path())?;
    records.retain(|record| used.contains(&record.file));
    Ok(records)
}

/// Checks that the weight files of the graph at `path` have not changed since it was written, and returns them. For a
/// file without a digest, only the length is compared.
///
/// # Errors
/// [`Error::Changed`]: a file has another length or digest; or a file cannot be read.
pub fn check_weight_files(path: &Path, digests: &Digests) -> Result<Vec<WeightFile>> {
    let records = records_of(&*MappedFile::open(path)?)?;
    for record in &records {
        let map = MappedFile::open(path.with_file_name(&record.file))?;
        record.check_length(&map)?;
        if let Some(expected) = &record.sha256 {
            let found = map.sha256(digests)?;
            if found != *expected {
                return Err(Error::changed(map.path(), format!("SHA-256 {expected}"), found));
            }
        }
    }
    Ok(records)
}
