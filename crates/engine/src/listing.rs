//! The files that belong to an engine directory, from its manifests. No other file is read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::bundle_manifest::BundleManifest;
use crate::digest::FileDigest;
use crate::error::{Error, Result};
use crate::manifest::MANIFEST_FILE;
use crate::opened::OpenedDirectory;
use crate::signature::SIGNATURE_FILE;

/// What an engine directory should hold, by the files' paths in it.
pub(crate) struct Listing {
    /// All files except the manifests and the signature.
    pub(crate) files: BTreeMap<String, FileDigest>,
    /// The manifests of the engine and of its parts.
    manifests: BTreeSet<String>,
}

impl Listing {
    /// Reads the manifests of the engine in `directory` and of its parts. A part without a valid manifest has no
    /// files.
    pub(crate) fn read(directory: &Path) -> Result<Self> {
        let opened = OpenedDirectory::open(directory, None)?;
        let mut listing = Self { files: BTreeMap::new(), manifests: BTreeSet::from([MANIFEST_FILE.to_owned()]) };
        let manifest = match opened.manifest()? {
            BundleManifest::Engine(manifest) => {
                listing.files = manifest.files;
                return Ok(listing);
            }
            BundleManifest::Pipeline(manifest) => manifest,
        };
        listing.files = manifest.files;
        for name in manifest.parts.keys() {
            listing.manifests.insert(format!("{name}/{MANIFEST_FILE}"));
            let part = match opened.open_any_part(name)?.map(|part| part.manifest()?.of_part(name)) {
                None | Some(Err(Error::Invalid { .. } | Error::Manifest { .. })) => continue,
                Some(part) => part?,
            };
            listing.files.extend(part.files.into_iter().map(|(file, digest)| (format!("{name}/{file}"), digest)));
        }
        Ok(listing)
    }

    /// Whether the file of this path belongs to the engine.
    pub(crate) fn has(&self, name: &str) -> bool {
        name == SIGNATURE_FILE || self.manifests.contains(name) || self.files.contains_key(name)
    }
}
