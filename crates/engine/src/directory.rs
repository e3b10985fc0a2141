//! An engine directory on disk.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::digest::{self, FileDigest};
use crate::error::{Error, Result};
use crate::manifest::{Graph, Manifest};
use crate::signature::{self, PublicKey};

/// The name of the file that holds the weights of all graphs.
pub const WEIGHTS_FILE: &str = "model.weights";

/// The name of the manifest in an engine directory.
pub const MANIFEST_FILE: &str = "manifest.json";

/// Larger manifests are refused without being read.
pub const MANIFEST_MAXIMUM_BYTES: u64 = 16 << 20;

/// An engine directory that is whole: its manifest is valid, and every file matches its digest.
#[derive(Clone, Debug)]
pub struct Engine {
    directory: PathBuf,
    manifest: Manifest,
}

impl Engine {
    /// Reads the manifest and checks size and SHA-256 of every file, several at a time.
    ///
    /// # Errors
    /// [`Error::Altered`] with the file, what was expected and what was found; the manifest's errors.
    pub fn open(directory: &Path) -> Result<Self> {
        Self::open_of(directory, None)
    }

    /// As [`Engine::open`], but the engine must be signed with `key`, if a key is given. Nothing is parsed before the
    /// signature has been verified.
    ///
    /// # Errors
    /// As [`Engine::open`]; or the signature is missing or by another key.
    pub fn open_of(directory: &Path, key: Option<&PublicKey>) -> Result<Self> {
        let manifest = read_manifest(directory, key)?;
        check_files(directory, &manifest)?;
        Ok(Self { directory: directory.to_owned(), manifest })
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The graph with this file name.
    pub fn graph_named(&self, file: &str) -> Option<&Graph> {
        self.manifest.graphs.iter().find(|graph| graph.file == file)
    }

    /// The path of one of its graphs.
    pub fn path_of(&self, graph: &Graph) -> PathBuf {
        self.directory.join(&graph.file)
    }
}

fn read_manifest(directory: &Path, key: Option<&PublicKey>) -> Result<Manifest> {
    let path = directory.join(MANIFEST_FILE);
    let bytes = match tileforge_files::read(&path, MANIFEST_MAXIMUM_BYTES) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Err(Error::not_an_engine(directory));
        }
        read => read.map_err(|source| Error::file(&path, "read", source))?,
    };
    if let Some(key) = key {
        let place = directory.join(signature::SIGNATURE_FILE);
        let signature = match tileforge_files::read(&place, signature::SIGNATURE_MAXIMUM_BYTES) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Error::Unsigned { path: place }),
            read => read.map_err(|source| Error::file(&place, "read", source))?,
        };
        key.verify(&bytes, &signature, &place)?;
    }
    Manifest::parse(&bytes).map_err(|source| Error::Invalid { path, source: Box::new(source) })
}

fn check_files(directory: &Path, manifest: &Manifest) -> Result<()> {
    let files: Vec<_> = manifest.files.iter().collect();
    let next = AtomicUsize::new(0);
    let check_some = || -> Result<()> {
        while let Some((name, expected)) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            check_file(&directory.join(name), expected)?;
        }
        Ok(())
    };
    let workers = thread::available_parallelism().map_or(1, usize::from).min(files.len());
    thread::scope(|scope| {
        let running: Vec<_> = (0..workers).map(|_| scope.spawn(check_some)).collect();
        running.into_iter().try_for_each(|worker| worker.join().unwrap_or(Err(Error::Internal("digest"))))
    })
}

fn check_file(path: &Path, expected: &FileDigest) -> Result<()> {
    let length = match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => metadata.len(),
        Ok(_) => return Err(Error::altered(path, "a file", "something else")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Error::altered(path, "a file, as the manifest lists it", "none: it is missing"));
        }
        Err(source) => return Err(Error::file(path, "read", source)),
    };
    if length != expected.bytes {
        return Err(Error::altered(path, format!("{} bytes", expected.bytes), length.to_string()));
    }
    let found = digest::sha256_file(path)?;
    if found.sha256 != expected.sha256 {
        return Err(Error::altered(path, format!("SHA-256 {}", expected.sha256), found.sha256));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_byte_and_a_missing_file_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.weights");
        fs::write(&path, b"weights").unwrap();
        let expected = digest::sha256_file(&path).unwrap();
        check_file(&path, &expected).unwrap();

        fs::write(&path, b"weightz").unwrap();
        let error = check_file(&path, &expected).unwrap_err().to_string();
        assert!(error.contains("model.weights: expected SHA-256"), "{error}");
        fs::write(&path, b"weight").unwrap();
        let error = check_file(&path, &expected).unwrap_err().to_string();
        assert!(error.contains("expected 7 bytes, found 6"), "{error}");
        fs::remove_file(&path).unwrap();
        let error = check_file(&path, &expected).unwrap_err().to_string();
        assert!(error.contains("missing"), "{error}");
    }
}
