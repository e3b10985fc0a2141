//! Writing a model, with its weights in one of three places.
//!
//! Everything is written under temporary names beside the target and renamed at the end, weights first: if a graph
//! exists, its weights exist too, even if the process is killed. Between two renames, an older graph has newer
//! weights, so graphs state the digests of their weight files. Nothing is synced to the disk: files that a power cut
//! damages can be made again from the checkpoint.

mod digest;
mod link;
mod meter;
mod onnx;
mod place;
mod report;
mod staged;
mod store;

pub use link::{LinkMethod, LinkedFile, NoLink};
pub use meter::Written;
pub use report::SaveReport;

use crate::{Error, MappedFile, Model, Result, Weight, external_files};
use place::{FOREIGN, folder_of};
use prost::Message;
use staged::Staged;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use store::WeightStore;
use tileforge_files::{Digests, outputs};

/// A protobuf message has at most 2 GiB. Half a megabyte of it is left for the graph around the weights.
const INLINE_LIMIT: u64 = (2 << 30) - (512 << 10);

/// Where a model's weights go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightStorage {
    /// Weights that a checkpoint holds unchanged stay there: the graph points into a hard link of the checkpoint beside
    /// it. Computed weights go to `NAME.weights`. The graph holds the sizes and digests of both.
    Link,
    /// The same, but the checkpoint is not digested: that takes a second for each gigabyte unless its digest is known.
    /// The graph records the missing digest.
    LinkUndigested,
    /// All weights go to `NAME.weights` beside the graph.
    Copy,
    /// All weights go into the graph's file, which is limited to 2 GiB.
    Inline,
}

/// Writes a model to `path`.
///
/// # Errors
/// A file cannot be written or read, a checkpoint is damaged, or the weights for `Inline` exceed 2 GiB. No new files
/// remain after an error.
pub fn save(model: &Model, path: &Path, storage: WeightStorage) -> Result<SaveReport> {
    save_with_progress(model, path, storage, &Digests::default(), &mut |_| {})
}

/// As [`save`], with the known digests of checkpoints.
///
/// `progress` receives the number of written bytes: first 0, then about once for each megabyte, and at last the total.
/// It is not called if the graph only points into checkpoints.
///
/// # Errors
/// As [`save`].
pub fn save_with_progress(
    model: &Model,
    path: &Path,
    storage: WeightStorage,
    digests: &Digests,
    progress: &mut dyn FnMut(Written),
) -> Result<SaveReport> {
    let folder = folder_of(path);
    let stem = path.file_stem().map_or_else(|| "model".into(), |stem| stem.to_string_lossy().into_owned());
    let mut store = WeightStore::new(folder, format!("{stem}.weights"), progress);
    store.states_weights = true;
    match storage {
        WeightStorage::Link => (store.link_prefix, store.digests) = (Some(stem), Some(digests)),
        WeightStorage::LinkUndigested => store.link_prefix = Some(stem),
        WeightStorage::Copy => {}
        WeightStorage::Inline => {
            let bytes: u64 = model.weights.values().map(Weight::byte_length).sum();
            if bytes > INLINE_LIMIT {
                return Err(Error::Graph(format!(
                    "the weights have {bytes} bytes; one file holds at most {INLINE_LIMIT}: link or copy them"
                )));
            }
            store.inline = true;
        }
    }
    let bytes = checked_bytes(&[(model, path)], &store)?;
    // The caller names only the graph, so the weight file may replace only the weight file of an older graph.
    let (name, weights) = (store.name.clone(), folder.join(&store.name));
    let is_older = files_of_older(path).contains(&name);
    if !is_older && !store.inline && bytes > 0 && weights.symlink_metadata().is_ok() {
        return Err(Error::file(&weights, "write the weights", FOREIGN));
    }
    let report = write(&[(model, path)], store, bytes)?;
    report.linked.iter().for_each(|linked| digests.has_new_name(&linked.path));
    // If the new graph has no weight file, the older graph's file is removed: the next graph could not replace it.
    if is_older && !files_of_older(path).contains(&name) {
        match fs::remove_file(&weights) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(Error::file(&weights, "remove the weights of the graph that was replaced", error));
            }
            _ => {}
        }
    }
    Ok(report)
}

/// Writes several models that share one weight file, `weights` beside them. Equal weights are stored once.
///
/// # Errors
/// A file cannot be written or read, or the models are not in the weight file's folder. No new files remain after an
/// error.
pub fn save_sharing_weights(models: &[(&Model, &Path)], weights: &Path) -> Result<SaveReport> {
    let folder = folder_of(weights);
    if let Some((_, path)) = models.iter().find(|(_, path)| folder_of(path) != folder) {
        return Err(Error::file(path, "share weights", format!("it is not in the folder of {}", weights.display())));
    }
    let name = weights.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.ok_or_else(|| Error::file(weights, "write the weights", "expected a file name"))?;
    let mut silent = |_| {};
    let mut store = WeightStore::new(folder, name, &mut silent);
    let bytes = checked_bytes(models, &store)?;
    // Sorted by name: several graphs of one network then have equal weight files, whatever the order of their nodes.
    let mut weights: Vec<_> = models.iter().flat_map(|(model, _)| &model.weights).collect();
    weights.sort_by_key(|(name, _)| *name);
    weights.into_iter().try_for_each(|(_, weight)| store.place(weight).map(drop))?;
    write(models, store, bytes)
}

/// Writes models with `bytes` bytes of weights. Meanwhile, a thread compares the checkpoints with their own checksums.
fn write(models: &[(&Model, &Path)], mut store: WeightStore<'_>, bytes: u64) -> Result<SaveReport> {
    store.meter.expect(bytes);
    let inputs = mapped_files(models);
    let verify = || inputs.iter().try_for_each(|file| file.verify());
    let mut graphs = thread::scope(|scope| {
        let verified = thread::Builder::new().name("verify".into()).spawn_scoped(scope, verify);
        let graphs = encode(models, &mut store);
        // After a panic nothing has been compared, so the comparison runs here, as it does if no thread could start.
        verified.ok().and_then(|thread| thread.join().ok()).unwrap_or_else(verify)?;
        graphs
    })?;
    // An older graph of this name is replaced together with the checkpoints that it points into.
    let replaced: BTreeSet<String> = models.iter().flat_map(|(_, path)| files_of_older(path)).collect();
    let (mut staged, report) = store.finish(&replaced)?;
    staged.append(&mut graphs);
    // Only renames are left, which need no space. A folder at a target path is found before the first rename.
    if let Some((_, path)) = staged.iter().find(|(_, path)| path.is_dir()) {
        return Err(Error::file(path, "write", "there is a folder of this name"));
    }
    // If the program is stopped, either all renames are done or none.
    let _finishing = tileforge_files::unfinished::finishing();
    staged.into_iter().try_for_each(|(staged, path)| staged.rename(&path))?;
    Ok(report)
}

/// Writes the graphs under temporary names, and their weights to the store.
fn encode(models: &[(&Model, &Path)], store: &mut WeightStore<'_>) -> Result<Vec<(Staged, PathBuf)>> {
    let mut graphs = Vec::with_capacity(models.len());
    for (model, path) in models {
        let mut proto = onnx::to_onnx(model, store)?;
        proto.metadata_props.extend(store.weight_files()?);
        let encoded = proto.encode_to_vec();
        let mut file = staged::temporary(store.folder)?;
        file.write_all(&encoded).map_err(|e| Error::file(path, "write the graph", e))?;
        graphs.push((Staged::File(file), path.to_path_buf()));
    }
    Ok(graphs)
}

/// The files that weights come from.
fn mapped_files(models: &[(&Model, &Path)]) -> Vec<Arc<MappedFile>> {
    let mut files: BTreeMap<PathBuf, Arc<MappedFile>> = BTreeMap::new();
    for weight in models.iter().flat_map(|(model, _)| model.weights.values()) {
        weight.for_each_file(&mut |file| {
            if !files.contains_key(file.path()) {
                files.insert(file.path().to_owned(), file.clone());
            }
        });
    }
    files.into_values().collect()
}

/// The names of the weight files of the graph at `path`; none if there is no graph.
fn files_of_older(path: &Path) -> BTreeSet<String> {
    MappedFile::open(path).and_then(|graph| external_files(graph.bytes(), path)).unwrap_or_default()
}

/// The bytes of weights that will be written. Checks that no output overwrites a file that weights come from.
fn checked_bytes(models: &[(&Model, &Path)], store: &WeightStore<'_>) -> Result<u64> {
    let bytes = store.bytes_to_write(models);
    let inputs = mapped_files(models);
    let weights = (bytes > 0 && !store.inline).then(|| store.folder.join(&store.name));
    let outputs: Vec<&Path> = models.iter().map(|(_, path)| *path).chain(weights.as_deref()).collect();
    outputs::check(&outputs, &inputs.iter().map(|file| file.path()).collect::<Vec<_>>()).map_err(Error::Output)?;
    Ok(bytes)
}
