//! The manifest of an engine of either kind.

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::error::{Error, Result};
use crate::manifest::{Manifest, SCHEMA};
use crate::pipeline_manifest::PipelineManifest;

/// A manifest of either kind.
#[derive(Clone, Debug, PartialEq)]
pub enum BundleManifest {
    /// The manifest of an engine of one network.
    Engine(Box<Manifest>),
    /// The manifest of a pipeline engine, which has `parts`.
    Pipeline(PipelineManifest),
}

impl BundleManifest {
    /// Reads a manifest and checks every rule that can be checked without the files.
    ///
    /// Never panics, whatever the bytes are.
    ///
    /// # Errors
    /// As [`Manifest::parse`].
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        /// Read first: the kind decides which fields are known.
        #[derive(Deserialize)]
        struct Head {
            schema: u32,
            parts: Option<IgnoredAny>,
        }
        let broken = |error: serde_json::Error| Error::manifest(format!("not a manifest: {error}"));
        let Head { schema, parts } = serde_json::from_slice(bytes).map_err(broken)?;
        if schema != SCHEMA {
            return Err(Error::Schema { expected: SCHEMA, found: schema });
        }
        if parts.is_none() {
            return Ok(Self::Engine(Box::new(Manifest::parse(bytes)?)));
        }
        let manifest: PipelineManifest = serde_json::from_slice(bytes).map_err(broken)?;
        manifest.validate()?;
        Ok(Self::Pipeline(manifest))
    }

    /// The manifest of the part `part` of a pipeline: it must be for one network, and have the part's name.
    ///
    /// # Errors
    /// [`Error::Manifest`]: it has parts, or another name.
    pub(crate) fn of_part(self, part: &str) -> Result<Manifest> {
        match self {
            Self::Pipeline(_) => Err(Error::manifest("parts: expected a part of one network, found one with parts")),
            Self::Engine(manifest) if manifest.name != part => Err(Error::manifest(format!(
                "name: expected \"{part}\", the part's name, found \"{}\"",
                manifest.name.escape_debug()
            ))),
            Self::Engine(manifest) => Ok(*manifest),
        }
    }

    /// The engine's name: its directory's name when it was built.
    pub fn name(&self) -> &str {
        match self {
            Self::Engine(manifest) => &manifest.name,
            Self::Pipeline(manifest) => &manifest.name,
        }
    }
}
