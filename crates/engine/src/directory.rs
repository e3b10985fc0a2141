//! An engine directory on disk.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::bundle_manifest::BundleManifest;
use crate::error::{Error, Result};
use crate::file_map::FileMap;
use crate::manifest::{Graph, Manifest};
use crate::opened::{Listed, OpenedDirectory, check_files};
use crate::signature::PublicKey;

/// The name of the file that holds the weights of all graphs.
pub const WEIGHTS_FILE: &str = "model.weights";

/// A whole engine directory: its manifest is valid, and every file matches its digest.
///
/// The directory is opened once, and each file in it once. [`Engine::file`] returns the bytes that were digested: if
/// another file or folder gets the same name afterwards, this has no effect. Clones share the opened files.
#[derive(Clone, Debug)]
pub struct Engine {
    opened: OpenedDirectory,
    manifest: Arc<Manifest>,
    files: Arc<BTreeMap<String, FileMap>>,
}

impl Engine {
    /// Reads the manifest and checks size and SHA-256 of every file, several at a time.
    ///
    /// # Errors
    /// [`Error::Altered`] with the file, what was expected and what was found; the manifest's errors;
    /// [`Error::SeveralParts`] for the directory of a [`Pipeline`](crate::Pipeline).
    pub fn open(directory: &Path) -> Result<Self> {
        Self::open_of(directory, None)
    }

    /// As [`Engine::open`], but the engine must be signed with `key`, if a key is given. Nothing is parsed before the
    /// signature has been verified.
    ///
    /// # Errors
    /// As [`Engine::open`]; or the signature is missing or by another key.
    pub fn open_of(directory: &Path, key: Option<&PublicKey>) -> Result<Self> {
        let opened = OpenedDirectory::open(directory, key)?;
        match opened.manifest()? {
            BundleManifest::Engine(manifest) => Self::check(opened, *manifest),
            BundleManifest::Pipeline(manifest) => {
                Err(Error::SeveralParts { path: directory.to_owned(), parts: manifest.parts.into_keys().collect() })
            }
        }
    }

    /// Checks the files of an opened directory.
    pub(crate) fn check(opened: OpenedDirectory, manifest: Manifest) -> Result<Self> {
        let maps = check_files(&listed(&opened, &manifest).collect::<Vec<_>>())?;
        Ok(Self::of_checked(opened, manifest, maps))
    }

    /// An engine whose files are already checked. `maps` are the files of the manifest, in its order.
    pub(crate) fn of_checked(
        opened: OpenedDirectory,
        manifest: Manifest,
        maps: impl IntoIterator<Item = FileMap>,
    ) -> Self {
        let files = manifest.files.keys().cloned().zip(maps).collect::<BTreeMap<_, _>>().into();
        Self { opened, manifest: manifest.into(), files }
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        self.opened.path()
    }

    /// The manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    pub(crate) fn opened(&self) -> &OpenedDirectory {
        &self.opened
    }

    /// The graph with this file name.
    pub fn graph_named(&self, file: &str) -> Option<&Graph> {
        self.manifest.graphs.iter().find(|graph| graph.file == file)
    }

    /// The path of one of its files, for messages. Another file may have this path by now: read files with
    /// [`Engine::file`].
    pub fn path_of(&self, name: &str) -> PathBuf {
        self.directory().join(name)
    }

    /// The digested bytes of a file that the manifest lists.
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
        self.files.get(name).ok_or_else(|| Error::Unlisted { path: self.directory().join(name) })
    }

    /// A path that leads to the digested file, even if another file has its name by now, for libraries that read files
    /// by path. `None` if the file has no name any more, or if the system has no such paths.
    ///
    /// # Errors
    /// [`Error::Unlisted`]: the manifest does not list the file.
    pub fn opened_path(&self, name: &str) -> Result<Option<PathBuf>> {
        self.map(name).map(FileMap::opened_path)
    }

    /// Puts some of its files into a folder, for libraries that read files by path: hard links to the digested files,
    /// or copies. Only this user should have access to the folder.
    ///
    /// # Errors
    /// The manifest does not list a file, or a file cannot be written.
    pub fn place_files<'n>(&self, names: impl IntoIterator<Item = &'n str>, folder: &Path) -> Result<()> {
        names.into_iter().try_for_each(|name| {
            let plain = Path::new(name).file_name().unwrap_or_default();
            self.map(name)?.place_at(&folder.join(plain))
        })
    }

    /// Checks that the directory holds only the engine's files.
    ///
    /// # Errors
    /// [`Error::Unlisted`] with a file that the manifest does not list.
    pub fn check_nothing_unlisted(&self) -> Result<()> {
        self.opened.check_nothing_but(|name| self.manifest.has_file(name))
    }
}

/// The files that a manifest lists.
pub(crate) fn listed<'a>(opened: &'a OpenedDirectory, manifest: &'a Manifest) -> impl Iterator<Item = Listed<'a>> {
    manifest.files.iter().map(|(name, digest)| Listed { directory: opened, name, digest })
}
