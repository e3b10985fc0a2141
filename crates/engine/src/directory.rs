//! An engine directory on disk.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::digest::{self, FileDigest};
use crate::error::{Error, Result};
use crate::exchange;
use crate::file_map::FileMap;
use crate::manifest::{Graph, Manifest};
use crate::signature::{self, PublicKey};

/// The name of the file that holds the weights of all graphs.
pub const WEIGHTS_FILE: &str = "model.weights";

/// The name of the manifest in an engine directory.
pub const MANIFEST_FILE: &str = "manifest.json";

/// Larger manifests are refused without being read.
pub const MANIFEST_MAXIMUM_BYTES: u64 = 16 << 20;

/// An engine directory that is whole: its manifest is valid, and every file matches its digest.
///
/// The directory is opened once, and each file in it once. What was digested is what [`Engine::file`] gives: a file or
/// a folder that gets another one's name afterwards changes nothing. Clones share the opened files.
#[derive(Clone, Debug)]
pub struct Engine {
    directory: PathBuf,
    manifest: Manifest,
    /// The bytes of the manifest.
    text: Arc<[u8]>,
    files: Arc<BTreeMap<String, FileMap>>,
    folder: Arc<File>,
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
        let folder = open_folder(directory)?;
        let text = read_manifest(&folder, directory, key)?;
        let manifest = parse_manifest(&text, directory)?;
        let files = check_files(&folder, directory, &manifest)?;
        Ok(Self {
            directory: directory.to_owned(),
            manifest,
            text: text.into(),
            files: files.into(),
            folder: folder.into(),
        })
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The bytes of the manifest, which a signature is made over.
    pub(crate) fn manifest_bytes(&self) -> &[u8] {
        &self.text
    }

    /// The bytes of its signature, if it has one. They have not been verified.
    pub(crate) fn signature(&self) -> Result<Option<Vec<u8>>> {
        read_in(&self.folder, &self.directory, signature::SIGNATURE_FILE, signature::SIGNATURE_MAXIMUM_BYTES)
    }

    /// The graph with this file name.
    pub fn graph_named(&self, file: &str) -> Option<&Graph> {
        self.manifest.graphs.iter().find(|graph| graph.file == file)
    }

    /// The path of one of its files, for messages. Another file may have this path by now: use [`Engine::file`].
    pub fn path_of(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The bytes of a file that the manifest lists, as they were digested.
    ///
    /// # Errors
    /// [`Error::Unlisted`]: the manifest does not list the file.
    pub fn file(&self, name: &str) -> Result<&[u8]> {
        self.map(name).map(|map| &**map)
    }

    /// All files that the manifest lists, by name.
    pub fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.files.iter().map(|(name, map)| (name.as_str(), &**map))
    }

    fn map(&self, name: &str) -> Result<&FileMap> {
        self.files.get(name).ok_or_else(|| Error::Unlisted { path: self.directory.join(name) })
    }

    /// Puts some of its files into a folder, for libraries that read files by path: the digested files under second
    /// names, or copies of them. The folder should be open to this user alone.
    ///
    /// # Errors
    /// The manifest does not list a file, or it cannot be written.
    pub fn place_files<'n>(&self, names: impl IntoIterator<Item = &'n str>, folder: &Path) -> Result<()> {
        names.into_iter().try_for_each(|name| {
            let plain = Path::new(name).file_name().unwrap_or_default();
            self.map(name)?.place_at(&folder.join(plain))
        })
    }

    /// Checks that the directory holds nothing but the engine's files.
    ///
    /// # Errors
    /// [`Error::Unlisted`] with a file that the manifest does not list.
    pub fn check_nothing_unlisted(&self) -> Result<()> {
        // The opened directory is listed, not the path, which another one may have by now.
        let opened = PathBuf::from(format!("/proc/self/fd/{}", self.folder.as_raw_fd()));
        let names = exchange::names(&opened).map_err(|error| error.relocated(&opened, &self.directory))?;
        match names.iter().find(|name| !self.manifest.has_file(name)) {
            None => Ok(()),
            Some(name) => Err(Error::Unlisted { path: self.directory.join(name) }),
        }
    }
}

/// Reads and checks the manifest alone.
pub(crate) fn manifest_of(directory: &Path) -> Result<Manifest> {
    parse_manifest(&read_manifest(&open_folder(directory)?, directory, None)?, directory)
}

fn open_folder(directory: &Path) -> Result<File> {
    match tileforge_files::open_folder(directory) {
        Err(error) if is_missing(&error) => Err(Error::not_an_engine(directory)),
        opened => opened.map_err(|source| Error::file(directory, "open", source)),
    }
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// The bytes of the manifest, whose signature has been verified if a key is given.
fn read_manifest(folder: &File, directory: &Path, key: Option<&PublicKey>) -> Result<Vec<u8>> {
    let read = |name, most| read_in(folder, directory, name, most);
    let bytes = read(MANIFEST_FILE, MANIFEST_MAXIMUM_BYTES)?.ok_or_else(|| Error::not_an_engine(directory))?;
    if let Some(key) = key {
        let place = directory.join(signature::SIGNATURE_FILE);
        let signature = read(signature::SIGNATURE_FILE, signature::SIGNATURE_MAXIMUM_BYTES)?;
        key.verify(&bytes, &signature.ok_or_else(|| Error::Unsigned { path: place.clone() })?, &place)?;
    }
    Ok(bytes)
}

/// The content of a file of at most `most` bytes in an opened folder, whose path is `directory`; `None` if there is no
/// such file.
fn read_in(folder: &File, directory: &Path, name: &str, most: u64) -> Result<Option<Vec<u8>>> {
    let opened = tileforge_files::open_in(folder, Path::new(name));
    match opened.and_then(|file| tileforge_files::read_opened(file, most)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some).map_err(|source| Error::file(&directory.join(name), "read", source)),
    }
}

fn parse_manifest(bytes: &[u8], directory: &Path) -> Result<Manifest> {
    let path = || directory.join(MANIFEST_FILE);
    Manifest::parse(bytes).map_err(|source| Error::Invalid { path: path(), source: Box::new(source) })
}

/// Opens every listed file and compares it with its digest.
fn check_files(folder: &File, directory: &Path, manifest: &Manifest) -> Result<BTreeMap<String, FileMap>> {
    let files: Vec<_> = manifest.files.iter().collect();
    let next = AtomicUsize::new(0);
    let check_some = || -> Result<Vec<(String, FileMap)>> {
        let mut checked = Vec::new();
        while let Some((name, expected)) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            checked.push(((*name).clone(), check_file(folder, name, &directory.join(name), expected)?));
        }
        Ok(checked)
    };
    let workers = thread::available_parallelism().map_or(1, usize::from).min(files.len());
    thread::scope(|scope| {
        let running: Vec<_> = (0..workers).map(|_| scope.spawn(check_some)).collect();
        let mut all = BTreeMap::new();
        for worker in running {
            all.extend(worker.join().unwrap_or(Err(Error::Internal("digest")))?);
        }
        Ok(all)
    })
}

fn check_file(folder: &File, name: &str, path: &Path, expected: &FileDigest) -> Result<FileMap> {
    let map = match FileMap::open_in(folder, name, path) {
        Err(Error::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Err(Error::altered(path, "a file, as the manifest lists it", "none: it is missing"));
        }
        opened => opened?,
    };
    if map.len() as u64 != expected.bytes {
        return Err(Error::altered(path, format!("{} bytes", expected.bytes), map.len().to_string()));
    }
    let found = digest::sha256(&map);
    if found != expected.sha256 {
        return Err(Error::altered(path, format!("SHA-256 {}", expected.sha256), found));
    }
    Ok(map)
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
        let opened = open_folder(folder.path()).unwrap();
        let check = |expected: &FileDigest| check_file(&opened, "model.weights", &path, expected);
        assert_eq!(&*check(&expected).unwrap(), b"weights");

        fs::write(&path, b"weightz").unwrap();
        let error = check(&expected).unwrap_err().to_string();
        assert!(error.contains("model.weights: expected SHA-256"), "{error}");
        fs::write(&path, b"weight").unwrap();
        let error = check(&expected).unwrap_err().to_string();
        assert!(error.contains("expected 7 bytes, found 6"), "{error}");
        fs::remove_file(&path).unwrap();
        let error = check(&expected).unwrap_err().to_string();
        assert!(error.contains("missing"), "{error}");
    }
}
