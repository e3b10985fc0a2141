//! Signatures of engines: separate manifests, which refer to the engine's manifest.
//!
//! A registry lists the referrers of a manifest. If it does not, the tag `sha256-…` of the manifest's digest names an
//! index of the referrers, as the distribution specification states.

use tileforge_engine::PublicKey;
use tileforge_engine::signature::{SIGNATURE_FILE, SIGNATURE_MAXIMUM_BYTES};

use crate::blob::Wanted;
use crate::client::Registry;
use crate::document::{
    Descriptor, Digest, Document, EMPTY, INDEX, Index, MANIFEST, Manifest, SIGNATURE, SIGNATURE_LAYER,
};
use crate::error::Result;
use crate::reference::Version;

/// The content of an empty configuration.
pub(crate) const NOTHING: &[u8] = b"{}";

/// The maximum number of signatures of one engine that are read.
const SIGNATURES_MAXIMUM: usize = 16;

/// The manifest of a signature of `engine`.
pub(crate) fn manifest(engine: &Descriptor, signature: &[u8]) -> Manifest {
    Manifest {
        schema_version: 2,
        media_type: MANIFEST.into(),
        artifact_type: Some(SIGNATURE.into()),
        config: Descriptor::of(EMPTY, NOTHING),
        layers: vec![Descriptor::of(SIGNATURE_LAYER, signature).named(SIGNATURE_FILE)],
        subject: Some(Descriptor { annotations: Default::default(), artifact_type: None, ..engine.clone() }),
        annotations: Default::default(),
    }
}

/// Adds the signature's manifest to the index that replaces the list of referrers.
pub(crate) fn list_by_tag(registry: &Registry, engine: &Digest, signature: Descriptor) -> Result<()> {
    let tag = Version::Tag(engine.file_name());
    let mut index = listed_by_tag(registry, &tag)?.unwrap_or_else(|| Index::new(None, Vec::new()));
    index.manifests.retain(|known| known.digest != signature.digest);
    index.manifests.push(signature);
    let bytes = serde_json::to_vec(&index).map_err(|error| registry.broken(engine, error.to_string()))?;
    registry.put_document(&tag, INDEX, &bytes).map(drop)
}

fn listed_by_tag(registry: &Registry, tag: &Version) -> Result<Option<Index>> {
    let Some((bytes, digest)) = registry.optional_document(tag)? else { return Ok(None) };
    match registry.parse(&bytes, &digest)? {
        Document::Index(index) => Ok(Some(index)),
        Document::Manifest(_) => Err(registry.broken(&digest, "expected an index, found a manifest")),
    }
}

/// The signature of an engine: with a key, the signature by that key; otherwise the last listed signature, if there is
/// any.
///
/// # Errors
/// With a key: there is no signature, or none by this key over `manifest`, the bytes of the engine's `manifest.json`.
pub(crate) fn of_engine(
    registry: &Registry,
    engine: &Digest,
    manifest: &[u8],
    key: Option<&PublicKey>,
) -> Result<Option<Vec<u8>>> {
    let place = || std::path::PathBuf::from(registry.reference_of(engine)).join(SIGNATURE_FILE);
    let index = match registry.referrers(engine)? {
        Some(index) => Some(index),
        None => listed_by_tag(registry, &Version::Tag(engine.file_name()))?,
    };
    let listed = index.map_or_else(Vec::new, |index| index.manifests);
    let of_ours = listed.into_iter().rev().filter(|entry| entry.artifact_type.as_deref() == Some(SIGNATURE));
    let mut refusal = tileforge_engine::Error::Unsigned { path: place() };
    for entry in of_ours.take(SIGNATURES_MAXIMUM) {
        let signature = read(registry, engine, &entry)?;
        let Some(key) = key else { return Ok(Some(signature)) };
        match key.verify(manifest, &signature, &place()) {
            Ok(()) => return Ok(Some(signature)),
            Err(error) => refusal = error,
        }
    }
    if key.is_some() { Err(refusal.into()) } else { Ok(None) }
}

/// The signature that a listed manifest holds.
fn read(registry: &Registry, engine: &Digest, entry: &Descriptor) -> Result<Vec<u8>> {
    let (bytes, digest) = registry.document(&Version::Digest(entry.digest.clone()))?;
    let refused = |problem: &str| Err(registry.broken(&digest, problem));
    let Document::Manifest(manifest) = registry.parse(&bytes, &digest)? else {
        return refused("expected the manifest of a signature, found an index");
    };
    if manifest.subject.as_ref().map(|subject| &subject.digest) != Some(engine) {
        return refused("it is listed as a signature of this engine, and refers to something else");
    }
    let [layer] = manifest.layers.as_slice() else {
        return refused("expected one layer, the signature, found another number");
    };
    Wanted::new(SIGNATURE_FILE, layer).read(registry, SIGNATURE_MAXIMUM_BYTES)
}
