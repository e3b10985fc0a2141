//! Engines of several networks that work together: a directory with a folder for each of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::bundle_manifest::BundleManifest;
use crate::directory::{Engine, listed};
use crate::error::{Error, Result};
use crate::file_map::FileMap;
use crate::manifest::{MANIFEST_FILE, Manifest};
use crate::opened::{Listed, OpenedDirectory, check_files};
use crate::pipeline_manifest::PipelineManifest;
use crate::roles::Roles;
use crate::signature::PublicKey;

/// A whole pipeline engine: an engine directory for each part, and files that belong to no single part.
///
/// ```text
/// E/manifest.json              the digest of each part's manifest and of each file below
/// E/manifest.sig               the signature over it, which covers everything
/// E/unet/manifest.json …       a part: an ordinary engine directory
/// E/vae_decoder/manifest.json …
/// E/tokenizer/vocab.json       a file beside the parts
/// ```
///
/// As for an [`Engine`], everything is opened once, parts relative to the opened directory, and the digested bytes are
/// the bytes that are used. Clones share the opened files. Parts have no parts.
#[derive(Clone, Debug)]
pub struct Pipeline {
    opened: OpenedDirectory,
    manifest: PipelineManifest,
    parts: Arc<BTreeMap<String, Engine>>,
    files: Arc<BTreeMap<String, FileMap>>,
}

impl Pipeline {
    /// Reads all manifests, and checks size and SHA-256 of every file.
    ///
    /// # Errors
    /// As [`Engine::open`]; [`Error::NoParts`] for the directory of an [`Engine`].
    pub fn open(directory: &Path) -> Result<Self> {
        Self::open_of(directory, None)
    }

    /// As [`Pipeline::open`], but the engine must be signed with `key`, if a key is given. Nothing is parsed before
    /// the signature has been verified.
    ///
    /// # Errors
    /// As [`Pipeline::open`]; or the signature is missing or by another key.
    pub fn open_of(directory: &Path, key: Option<&PublicKey>) -> Result<Self> {
        let (opened, manifest) = open_outer(directory, key)?;
        Self::check(opened, manifest)
    }

    /// Opens one part, and checks only this part's files. With a key, the pipeline's signature is verified.
    ///
    /// # Errors
    /// As [`Pipeline::open_of`]; [`Error::NoSuchPart`].
    pub fn open_part(directory: &Path, name: &str, key: Option<&PublicKey>) -> Result<Engine> {
        let (opened, manifest) = open_outer(directory, key)?;
        let digest = manifest.parts.get(name).ok_or_else(|| Error::NoSuchPart {
            path: directory.to_owned(),
            part: name.to_owned(),
            parts: manifest.parts.keys().cloned().collect(),
        })?;
        let part = opened.open_part(name, digest)?;
        let manifest = part_manifest(name, &part)?;
        Engine::check(part, manifest)
    }

    /// Checks the parts and the files of an opened directory.
    pub(crate) fn check(opened: OpenedDirectory, manifest: PipelineManifest) -> Result<Self> {
        let open = |(name, digest): (&String, _)| {
            let part = opened.open_part(name, digest)?;
            let manifest = part_manifest(name, &part)?;
            Ok((name.clone(), part, manifest))
        };
        let parts = manifest.parts.iter().map(open).collect::<Result<Vec<_>>>()?;
        let own = manifest.files.iter().map(|(name, digest)| Listed { directory: &opened, name, digest });
        let all: Vec<_> = own.chain(parts.iter().flat_map(|(_, part, manifest)| listed(part, manifest))).collect();
        let mut maps = check_files(&all)?.into_iter();
        drop(all);
        let files = manifest.files.keys().cloned().zip(maps.by_ref()).collect::<BTreeMap<_, _>>();
        let engine = |(name, part, manifest): (String, OpenedDirectory, Manifest)| {
            let count = manifest.files.len();
            (name, Engine::of_checked(part, manifest, maps.by_ref().take(count)))
        };
        let parts: BTreeMap<_, _> = parts.into_iter().map(engine).collect();
        Ok(Self { opened, manifest, parts: parts.into(), files: files.into() })
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        self.opened.path()
    }

    /// The manifest.
    pub fn manifest(&self) -> &PipelineManifest {
        &self.manifest
    }

    pub(crate) fn opened(&self) -> &OpenedDirectory {
        &self.opened
    }

    /// The part with this name, which is also its folder's name.
    pub fn part(&self, name: &str) -> Option<&Engine> {
        self.parts.get(name)
    }

    /// All parts by name.
    pub fn parts(&self) -> impl Iterator<Item = (&str, &Engine)> {
        self.parts.iter().map(|(name, engine)| (name.as_str(), engine))
    }

    /// The roles of the parts of a diffusion pipeline: from its manifest, or from the parts' names and contracts.
    pub fn roles(&self) -> Roles {
        let contracts = self.parts().map(|(name, part)| (name, &part.manifest().contract)).collect();
        let stated = self.manifest.diffusion.as_ref().and_then(|diffusion| diffusion.roles.clone());
        stated.map_or_else(|| Roles::of_components(&contracts), |roles| (*roles).conditioned(&contracts))
    }

    /// The path of one of its files, for messages. Another file may have this path by now: read files with
    /// [`Pipeline::file`].
    pub fn path_of(&self, name: &str) -> PathBuf {
        self.directory().join(name)
    }

    /// The digested bytes of a file that the pipeline's manifest lists (`NAME` or `FOLDER/NAME`). [`Pipeline::part`]
    /// gives the files of parts.
    ///
    /// # Errors
    /// [`Error::Unlisted`]: the manifest does not list the file.
    pub fn file(&self, name: &str) -> Result<&[u8]> {
        self.files.get(name).map(|map| &**map).ok_or_else(|| Error::Unlisted { path: self.path_of(name) })
    }

    /// All files that the pipeline's manifest lists, by name, without the files of its parts.
    pub fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.files.iter().map(|(name, map)| (name.as_str(), &**map))
    }

    /// Checks that the directory holds only the engine's files and the files of its parts. A signature in a part's
    /// folder is not one of them, because only the pipeline is signed.
    ///
    /// # Errors
    /// [`Error::Unlisted`] with a file that no manifest lists.
    pub fn check_nothing_unlisted(&self) -> Result<()> {
        let in_part = |name: &str| {
            let (part, file) = name.split_once('/')?;
            let engine = self.parts.get(part)?;
            (file == MANIFEST_FILE || engine.manifest().files.contains_key(file)).then_some(())
        };
        self.opened.check_nothing_but(|name| self.manifest.has_file(name) || in_part(name).is_some())
    }
}

/// Opens the directory of a pipeline.
fn open_outer(directory: &Path, key: Option<&PublicKey>) -> Result<(OpenedDirectory, PipelineManifest)> {
    let opened = OpenedDirectory::open(directory, key)?;
    match opened.manifest()? {
        BundleManifest::Pipeline(manifest) => Ok((opened, manifest)),
        BundleManifest::Engine(_) => Err(Error::NoParts { path: directory.to_owned() }),
    }
}

/// The manifest of a part, which must have the part's name.
fn part_manifest(name: &str, part: &OpenedDirectory) -> Result<Manifest> {
    part.manifest()?
        .of_part(name)
        .map_err(|source| Error::Invalid { path: part.path().join(MANIFEST_FILE), source: Box::new(source) })
}
