//! An engine directory of either kind: one network, or a pipeline of several.

use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use crate::bundle_manifest::BundleManifest;
use crate::digest::FileDigest;
use crate::directory::Engine;
use crate::error::{Error, Result};
use crate::manifest::MANIFEST_FILE;
use crate::opened::OpenedDirectory;
use crate::pipeline::Pipeline;
use crate::signature::PublicKey;

/// What is signed, packed and shipped as one: an engine, or a pipeline engine with its parts.
#[derive(Clone, Debug)]
pub enum Bundle {
    /// An engine of one network.
    Engine(Engine),
    /// An engine of several parts.
    Pipeline(Pipeline),
}

impl Bundle {
    /// As [`Engine::open`], for either kind of engine.
    ///
    /// # Errors
    /// As [`Engine::open`].
    pub fn open(directory: &Path) -> Result<Self> {
        Self::open_of(directory, None)
    }

    /// As [`Engine::open_of`], for either kind of engine.
    ///
    /// # Errors
    /// As [`Engine::open_of`].
    pub fn open_of(directory: &Path, key: Option<&PublicKey>) -> Result<Self> {
        let opened = OpenedDirectory::open(directory, key)?;
        Ok(match opened.manifest()? {
            BundleManifest::Engine(manifest) => Self::Engine(Engine::check(opened, *manifest)?),
            BundleManifest::Pipeline(manifest) => Self::Pipeline(Pipeline::check(opened, manifest)?),
        })
    }

    pub(crate) fn opened(&self) -> &OpenedDirectory {
        match self {
            Self::Engine(engine) => engine.opened(),
            Self::Pipeline(pipeline) => pipeline.opened(),
        }
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        self.opened().path()
    }

    /// The engine's name: its directory's name when it was built.
    pub fn name(&self) -> &str {
        match self {
            Self::Engine(engine) => &engine.manifest().name,
            Self::Pipeline(pipeline) => &pipeline.manifest().name,
        }
    }

    /// The engine itself, without a name, or the parts of a pipeline by name.
    pub fn engines(&self) -> Vec<(Option<&str>, &Engine)> {
        match self {
            Self::Engine(engine) => vec![(None, engine)],
            Self::Pipeline(pipeline) => pipeline.parts().map(|(name, engine)| (Some(name), engine)).collect(),
        }
    }

    /// All files except the manifest and its signature, with their paths in the directory, digests and bytes. The
    /// manifest of a part comes before the part's files.
    pub fn files(&self) -> Vec<(String, FileDigest, &[u8])> {
        match self {
            Self::Engine(engine) => files_of(engine, ""),
            Self::Pipeline(pipeline) => {
                let mut all = Vec::new();
                for ((name, engine), digest) in pipeline.parts().zip(pipeline.manifest().parts.values()) {
                    let bytes = engine.opened().manifest_bytes();
                    all.push((format!("{name}/{MANIFEST_FILE}"), digest.clone(), bytes));
                    all.extend(files_of(engine, &format!("{name}/")));
                }
                let own = pipeline.files().zip(pipeline.manifest().files.values());
                all.extend(own.map(|((name, bytes), digest)| (name.to_owned(), digest.clone(), bytes)));
                all
            }
        }
    }

    /// Checks that the directory holds only the engine's files.
    ///
    /// # Errors
    /// [`Error::Unlisted`] with a file that no manifest lists.
    pub fn check_nothing_unlisted(&self) -> Result<()> {
        match self {
            Self::Engine(engine) => engine.check_nothing_unlisted(),
            Self::Pipeline(pipeline) => pipeline.check_nothing_unlisted(),
        }
    }

    /// The manifest as JSON. For a pipeline, `parts` contains the manifests of its parts instead of their digests.
    ///
    /// # Errors
    /// [`Error::File`]: the manifest cannot be written as JSON.
    pub fn manifest_json(&self) -> Result<Value> {
        match self {
            Self::Engine(engine) => self.json(engine.manifest()),
            Self::Pipeline(pipeline) => {
                let mut manifest = self.json(pipeline.manifest())?;
                for (name, engine) in pipeline.parts() {
                    manifest["parts"][name] = self.json(engine.manifest())?;
                }
                Ok(manifest)
            }
        }
    }

    fn json(&self, manifest: &impl Serialize) -> Result<Value> {
        let failed = |e: serde_json::Error| Error::file(self.directory(), "write the manifest as JSON", e.into());
        serde_json::to_value(manifest).map_err(failed)
    }
}

/// The files of an engine, under names that start with `folder`.
fn files_of<'e>(engine: &'e Engine, folder: &str) -> Vec<(String, FileDigest, &'e [u8])> {
    let digests = engine.manifest().files.values();
    let file =
        |((name, bytes), digest): ((&str, &'e [u8]), &FileDigest)| (format!("{folder}{name}"), digest.clone(), bytes);
    engine.files().zip(digests).map(file).collect()
}
