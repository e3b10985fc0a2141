//! Finds the weights of models on this machine and checks their digests.

use crate::digests::{digest_of, prepare};
use crate::{Error, FileFacts, MissingWeights, ModelFile, Origin, Result};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use tileforge_files::{Digests, TEXT_MAXIMUM_BYTES, unfinished};

/// The folders that hold weights.
#[derive(Debug, Clone, Default)]
pub struct WeightFolders {
    /// Folders of models: a file of the model NAME is `NAME/FILE` there. Models of a single file may have it directly
    /// in the folder. Downloads go to the first folder.
    pub folders: Vec<PathBuf>,
    /// The cache of Hugging Face's own programs (`hub/`), which is read but never written.
    pub hub_cache: Option<PathBuf>,
    /// The remembered digests of weights.
    pub digests: Digests,
}

impl WeightFolders {
    /// The path of one of the model's files; `None` if it is not on this machine.
    pub fn path_of(&self, model: &ModelFile, file: &str) -> Option<PathBuf> {
        let beside = model.path.parent().unwrap_or(Path::new("")).join(file);
        let below = self.folders.iter().map(|folder| folder.join(&model.name).join(file));
        let at_the_top = self.folders.iter().filter(|_| model.files.len() == 1).map(|folder| folder.join(file));
        let mut places = std::iter::once(beside).chain(below).chain(at_the_top).chain(self.in_hub_cache(model, file));
        places.find(|path| path.is_file())
    }

    /// Whether all files of a model are on this machine.
    pub fn hold(&self, model: &ModelFile) -> bool {
        model.files.keys().all(|file| self.path_of(model, file).is_some())
    }

    /// Computes the digests of all files of a model that are on this machine, in parallel.
    pub(crate) fn prepare(&self, model: &ModelFile) -> Result<()> {
        let here: Vec<PathBuf> = model.files.keys().filter_map(|file| self.path_of(model, file)).collect();
        prepare(&self.digests, &here)
    }

    /// The checkpoint of a graph, after a check of its digest. If no digest is published, it is recorded on first use.
    ///
    /// # Errors
    /// A file of the model is missing, or is not the file that the model file describes.
    pub fn checkpoint(&self, model: &ModelFile, checkpoint: &str) -> Result<PathBuf> {
        let path = self.path_of(model, checkpoint).ok_or_else(|| self.missing(model, checkpoint))?;
        // The configuration that the exporter reads is beside the weights.
        let folder = Path::new(checkpoint).parent().unwrap_or(Path::new(""));
        for (file, facts) in model.files.iter().filter(|(file, _)| Path::new(file).parent() == Some(folder)) {
            let place = path.with_file_name(Path::new(file).file_name().unwrap_or_default());
            if !place.is_file() {
                return Err(self.missing(model, file));
            }
            self.check(model, file, &place, facts)?;
        }
        Ok(path)
    }

    /// One of the model's files, after the same check of its digest as a checkpoint's.
    ///
    /// # Errors
    /// The file is missing, or is not the file that the model file describes.
    pub(crate) fn file(&self, model: &ModelFile, file: &str) -> Result<PathBuf> {
        let path = self.path_of(model, file).ok_or_else(|| self.missing(model, file))?;
        let unknown = FileFacts::default();
        let facts = model.files.get(file).unwrap_or(&unknown);
        self.check(model, file, &path, facts)?;
        Ok(path)
    }

    /// Compares a file with its published digest, or with the digest of its first use.
    fn check(&self, model: &ModelFile, file: &str, path: &Path, facts: &FileFacts) -> Result<()> {
        let record = self.record_of(model, file, path);
        check_digest(path, record.as_deref(), facts, &digest_of(&self.digests, path)?.sha256)
    }

    /// Where the digest of a file's first use is recorded: beside the file, or in the folder of downloads if the file
    /// is in the hub's cache, which is never written.
    fn record_of(&self, model: &ModelFile, file: &str, path: &Path) -> Option<PathBuf> {
        if self.hub_cache.as_ref().is_some_and(|cache| path.starts_with(cache)) {
            return self.folders.first().map(|folder| record_beside(&folder.join(&model.name).join(file)));
        }
        Some(record_beside(path))
    }

    /// In the layout of `huggingface_hub`: `models--OWNER--NAME/refs/REVISION` names the snapshot.
    fn in_hub_cache(&self, model: &ModelFile, file: &str) -> Option<PathBuf> {
        let (cache, Origin::Hub { repository, revision }) = (self.hub_cache.as_ref()?, model.origin_of(file)?) else {
            return None;
        };
        let folder = cache.join(format!("models--{}", repository.replace('/', "--")));
        // A revision without a reference is itself a commit.
        let commit = tileforge_files::read_text(&folder.join("refs").join(revision), TEXT_MAXIMUM_BYTES);
        let commit = commit.as_ref().map_or(revision.as_str(), |commit| commit.trim());
        Some(folder.join("snapshots").join(commit).join(file))
    }

    fn missing(&self, model: &ModelFile, file: &str) -> Error {
        Error::MissingWeights(Box::new(MissingWeights {
            model: model.name.clone(),
            file: file.to_owned(),
            size: model.files.get(file).and_then(|facts| facts.size),
            licence: model.licence.clone(),
            origin: model.origin_of(file).cloned(),
            folders: self.folders.iter().map(|folder| folder.join(&model.name)).collect(),
        }))
    }
}

/// Compares the digest of the file that is or will be at `path` with the published digest, or with the digest that was
/// recorded on first use in `record`.
///
/// # Errors
/// The digests differ, or the record cannot be read or written.
pub(crate) fn check_digest(path: &Path, record: Option<&Path>, facts: &FileFacts, found: &str) -> Result<()> {
    let wrong = |expected: &str, record: Option<&Path>| {
        let (path, record) = (path.to_owned(), record.map(Path::to_owned));
        Err(Error::WrongWeights { path, record, expected: expected.to_owned(), found: found.to_owned() })
    };
    if let Some(expected) = facts.sha256.as_deref() {
        return if expected.eq_ignore_ascii_case(found) { Ok(()) } else { wrong(expected, None) };
    }
    let Some(record) = record else {
        tracing::warn!("{}: there is no folder to record its digest in", path.display());
        return Ok(());
    };
    match tileforge_files::read_text(record, TEXT_MAXIMUM_BYTES) {
        // The format of `sha256sum`.
        Ok(text) if text.split_whitespace().next() == Some(found) => Ok(()),
        Ok(text) => wrong(text.split_whitespace().next().unwrap_or_default(), Some(record)),
        Err(error) if error.kind() == ErrorKind::NotFound => write_record(record, path, found),
        Err(error) => Err(Error::file(record, "read", error)),
    }
}

fn write_record(record: &Path, path: &Path, found: &str) -> Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let folder = record.parent().unwrap_or(Path::new(""));
    let written =
        fs::create_dir_all(folder).and_then(|()| unfinished::write(record, format!("{found}  {name}\n").as_bytes()));
    match written {
        // In a read-only folder, such as another user's, the digest cannot be recorded. The weights are used anyway.
        Err(error) if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem) => {
            tracing::warn!("{}: the digest cannot be recorded: {error}", record.display());
            Ok(())
        }
        written => written.map_err(|error| Error::file(record, "record the digest", error)),
    }
}

/// The file beside `path` that holds the digest of its first use.
pub(crate) fn record_beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".sha256");
    path.with_file_name(name)
}
