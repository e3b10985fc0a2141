//! A directory with a manifest, opened once, and the files in it.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::bundle_manifest::BundleManifest;
use crate::digest::{self, FileDigest};
use crate::error::{Error, Result};
use crate::file_map::FileMap;
use crate::folder;
use crate::manifest::{MANIFEST_FILE, MANIFEST_MAXIMUM_BYTES};
use crate::named::NamedEngines;
use crate::signature::{self, PublicKey};

/// An opened directory, and the bytes of its manifest.
///
/// Files are opened relative to the opened directory. If another folder gets the directory's name afterwards, this has
/// no effect.
#[derive(Clone, Debug)]
pub(crate) struct OpenedDirectory {
    path: PathBuf,
    folder: Arc<File>,
    text: Arc<[u8]>,
}

/// The error that there is no engine at `path`, with those in that folder.
fn not_an_engine(path: &Path) -> Error {
    Error::not_an_engine(path, NamedEngines::in_folders(vec![path.to_owned()]).names())
}

impl OpenedDirectory {
    /// Opens a directory and reads its manifest. If a key is given, the signature is verified.
    pub(crate) fn open(path: &Path, key: Option<&PublicKey>) -> Result<Self> {
        let folder = match tileforge_files::open_folder(path) {
            Err(error) if is_missing(&error) => Err(not_an_engine(path)),
            opened => opened.map_err(|source| Error::file(path, "open", source)),
        }?;
        let text = read_in(&folder, path, MANIFEST_FILE, MANIFEST_MAXIMUM_BYTES)?;
        let text = text.ok_or_else(|| not_an_engine(path))?.into();
        let opened = Self { path: path.to_owned(), folder: folder.into(), text };
        if let Some(key) = key {
            let place = path.join(signature::SIGNATURE_FILE);
            let signature = opened.signature()?.ok_or_else(|| Error::Unsigned { path: place.clone() })?;
            key.verify(&opened.text, &signature, &place)?;
        }
        Ok(opened)
    }

    /// Opens a folder in this directory. Its manifest must have this digest.
    pub(crate) fn open_part(&self, name: &str, expected: &FileDigest) -> Result<Self> {
        let place = self.path.join(name).join(MANIFEST_FILE);
        let opened = self.open_any_part(name)?.ok_or_else(|| missing(&place))?;
        check_digest(opened.text.len(), || digest::sha256(&opened.text), expected, &place)?;
        Ok(opened)
    }

    /// Opens a folder in this directory without checking its manifest; `None` if there is no folder or no manifest.
    pub(crate) fn open_any_part(&self, name: &str) -> Result<Option<Self>> {
        let path = self.path.join(name);
        let folder = match tileforge_files::open_folder_in(&self.folder, Path::new(name)) {
            Err(error) if is_missing(&error) => return Ok(None),
            opened => opened.map_err(|source| Error::file(&path, "open", source))?,
        };
        let text = read_in(&folder, &path, MANIFEST_FILE, MANIFEST_MAXIMUM_BYTES)?;
        Ok(text.map(|text| Self { path, folder: folder.into(), text: text.into() }))
    }

    /// Its path, for messages. Another directory may have this path by now.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The bytes of the manifest, which the signature covers.
    pub(crate) fn manifest_bytes(&self) -> &[u8] {
        &self.text
    }

    /// The manifest.
    pub(crate) fn manifest(&self) -> Result<BundleManifest> {
        let path = || self.path.join(MANIFEST_FILE);
        BundleManifest::parse(&self.text).map_err(|source| Error::Invalid { path: path(), source: Box::new(source) })
    }

    /// The bytes of the signature, if there is one. They have not been verified.
    pub(crate) fn signature(&self) -> Result<Option<Vec<u8>>> {
        read_in(&self.folder, &self.path, signature::SIGNATURE_FILE, signature::SIGNATURE_MAXIMUM_BYTES)
    }

    /// Opens a file by its path in the directory. Its bytes are not compared with any digest.
    pub(crate) fn open_file(&self, name: &str) -> Result<File> {
        let path = self.path.join(name);
        match tileforge_files::open_in(&self.folder, Path::new(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(missing(&path)),
            opened => opened.map_err(|source| Error::file(&path, "open", source)),
        }
    }

    /// Checks that the directory holds only files for which `is_listed` is true.
    pub(crate) fn check_nothing_but(&self, is_listed: impl Fn(&str) -> bool) -> Result<()> {
        // List the opened directory, not the path, which another directory may have by now.
        let opened = tileforge_files::path_of_folder(&self.folder);
        let opened = opened.map_err(|source| Error::file(&self.path, "list", source))?;
        let names = folder::names(&opened).map_err(|error| error.relocated(&opened, &self.path))?;
        match names.iter().find(|name| !is_listed(name)) {
            None => Ok(()),
            Some(name) => Err(Error::Unlisted { path: self.path.join(name) }),
        }
    }
}

/// A file that a manifest lists.
pub(crate) struct Listed<'a> {
    pub(crate) directory: &'a OpenedDirectory,
    pub(crate) name: &'a str,
    pub(crate) digest: &'a FileDigest,
}

impl Listed<'_> {
    /// Opens the file and compares it with its digest.
    fn check(&self) -> Result<FileMap> {
        let path = self.directory.path.join(self.name);
        let map = match FileMap::open_in(&self.directory.folder, self.name, &path) {
            Err(Error::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Err(missing(&path)),
            opened => opened?,
        };
        check_digest(map.len(), || map.sha256(), self.digest, &path)?;
        Ok(map)
    }
}

/// Opens every file and compares it with its digest, several at a time. The result keeps the order of `files`.
pub(crate) fn check_files(files: &[Listed<'_>]) -> Result<Vec<FileMap>> {
    let next = AtomicUsize::new(0);
    let check_some = || -> Result<Vec<(usize, FileMap)>> {
        let mut checked = Vec::new();
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(file) = files.get(place) else { return Ok(checked) };
            checked.push((place, file.check()?));
        }
    };
    let workers = thread::available_parallelism().map_or(1, usize::from).min(files.len());
    let mut all = thread::scope(|scope| {
        let running: Vec<_> = (0..workers).map(|_| scope.spawn(check_some)).collect();
        let mut all = Vec::new();
        for worker in running {
            all.extend(worker.join().unwrap_or(Err(Error::Internal("digest")))?);
        }
        Ok::<_, Error>(all)
    })?;
    all.sort_by_key(|(place, _)| *place);
    Ok(all.into_iter().map(|(_, map)| map).collect())
}

/// Compares a file's length and, if the length is right, its SHA-256.
fn check_digest(length: usize, sha256: impl Fn() -> String, expected: &FileDigest, path: &Path) -> Result<()> {
    if length as u64 != expected.bytes {
        return Err(Error::altered(path, format!("{} bytes", expected.bytes), length.to_string()));
    }
    let found = sha256();
    if found != expected.sha256 {
        return Err(Error::altered(path, format!("SHA-256 {}", expected.sha256), found));
    }
    Ok(())
}

fn missing(path: &Path) -> Error {
    Error::altered(path, "a file, as the manifest lists it", "none: it is missing")
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// The content of a file of at most `most` bytes in an opened folder; `None` if there is no such file. `directory` is
/// the folder's path, for errors.
fn read_in(folder: &File, directory: &Path, name: &str, most: u64) -> Result<Option<Vec<u8>>> {
    let opened = tileforge_files::open_in(folder, Path::new(name));
    match opened.and_then(|file| tileforge_files::read_opened(file, most)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some).map_err(|source| Error::file(&directory.join(name), "read", source)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_changed_byte_and_a_missing_file_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.weights");
        fs::write(&path, b"weights").unwrap();
        let expected = digest::sha256_file(&path).unwrap();
        fs::write(folder.path().join(MANIFEST_FILE), "{}").unwrap();
        let opened = OpenedDirectory::open(folder.path(), None).unwrap();
        let check = || Listed { directory: &opened, name: "model.weights", digest: &expected }.check();
        assert_eq!(&*check().unwrap(), b"weights");

        fs::write(&path, b"weightz").unwrap();
        let error = check().unwrap_err().to_string();
        assert!(error.contains("model.weights: expected SHA-256"), "{error}");
        fs::write(&path, b"weight").unwrap();
        let error = check().unwrap_err().to_string();
        assert!(error.contains("expected 7 bytes, found 6"), "{error}");
        fs::remove_file(&path).unwrap();
        let error = check().unwrap_err().to_string();
        assert!(error.contains("missing"), "{error}");
    }
}
