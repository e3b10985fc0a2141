//! Checkpoints in several files, with an index that gives the file of each tensor.

use super::stored::{Stored, open_file};
use crate::{Error, Result};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use tileforge_files::{TEXT_MAXIMUM_BYTES, is_plain};

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// Maps every shard that an index lists, and compares its tensors with the index.
pub(super) fn open(path: &Path) -> Result<(Vec<PathBuf>, Stored)> {
    let text = tileforge_files::read_text(path, TEXT_MAXIMUM_BYTES).map_err(|source| Error::File {
        path: path.to_owned(),
        action: "read",
        source,
    })?;
    let index: Index = serde_json::from_str(&text)
        .map_err(|e| Error::checkpoint(path, format!("expected an index of shards with a `weight_map`: {e}")))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut files = Vec::new();
    let (mut tensors, mut metadata) = (BTreeMap::new(), BTreeMap::new());
    for shard in index.weight_map.values().collect::<BTreeSet<_>>() {
        if !is_plain(shard) {
            return Err(Error::checkpoint(path, format!("the shard {shard:?} must be beside the index")));
        }
        let file = folder.join(shard);
        if !file.exists() {
            let shards = index.weight_map.values().collect::<BTreeSet<_>>().len();
            let reason = format!("the shard `{shard}` (one of {shards}) is missing; download it into the same folder");
            return Err(Error::checkpoint(path, reason));
        }
        let found = open_file(&file)?;
        for name in found.tensors.keys() {
            if index.weight_map.get(name) != Some(shard) {
                let place = index.weight_map.get(name).map_or("nowhere".into(), |other| format!("in `{other}`"));
                return Err(Error::checkpoint(
                    path,
                    format!("`{shard}` holds the tensor `{name}`, which the index places {place}"),
                ));
            }
        }
        files.push(file);
        metadata.extend(found.metadata);
        tensors.extend(found.tensors);
    }
    if let Some((name, shard)) = index.weight_map.iter().find(|(name, _)| !tensors.contains_key(*name)) {
        return Err(Error::checkpoint(
            path,
            format!("the index places the tensor `{name}` in `{shard}`, which does not hold it"),
        ));
    }
    Ok((files, Stored { tensors, metadata, ..Stored::default() }))
}
