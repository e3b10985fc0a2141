//! The engines that a reference in a registry names.

use tileforge_engine::Requirements;

use crate::annotations;
use crate::cache::Cache;
use crate::client::Registry;
use crate::document::{Annotations, Descriptor, Digest, Document, MANIFEST, MODEL, Manifest};
use crate::error::Result;
use crate::reference::Version;

/// The content of a reference: an index of engines, or one engine.
#[derive(Debug)]
pub struct Offer {
    /// The digest of the index or of the engine's manifest.
    pub digest: Digest,
    /// The engines.
    pub variants: Vec<Variant>,
}

/// One engine of several for different machines.
#[derive(Clone, Debug)]
pub struct Variant {
    /// The digest of its manifest in the registry.
    pub digest: Digest,
    /// What it needs, according to the index.
    pub requirements: Requirements,
    /// Bytes of its files, according to the index.
    pub bytes: u64,
    pub(crate) annotations: Annotations,
}

impl Offer {
    /// Asks the registry for the content of its reference. If the cache has it by its digest, no request is needed.
    ///
    /// # Errors
    /// The registry cannot be reached or has nothing of this name; the content is not an index of engines; an
    /// annotation has the wrong form.
    pub fn of(registry: &Registry, cache: Option<&Cache>) -> Result<Self> {
        let version = registry.reference().version();
        let kept = match (version, cache) {
            (Version::Digest(digest), Some(cache)) => cache.document(digest).map(|bytes| (bytes, digest.clone())),
            _ => None,
        };
        let (bytes, digest) = kept.map_or_else(|| registry.document(version), Ok)?;
        let offer = Self::parse(registry, &bytes, digest)?;
        if let Some(cache) = cache {
            cache.keep_document(&offer.digest, &bytes)?;
        }
        Ok(offer)
    }

    fn parse(registry: &Registry, bytes: &[u8], digest: Digest) -> Result<Self> {
        let variants = match registry.parse(bytes, &digest)? {
            Document::Manifest(manifest) => {
                check_kind(&manifest).map_err(|problem| registry.broken(&digest, problem))?;
                vec![Variant::new(registry, digest.clone(), manifest.annotations)?]
            }
            Document::Index(index) => {
                let engines = index.manifests.into_iter().filter(is_engine);
                engines.map(|entry| Variant::new(registry, entry.digest, entry.annotations)).collect::<Result<_>>()?
            }
        };
        if variants.is_empty() {
            return Err(registry.broken(&digest, "expected an index of engines, found one without engines"));
        }
        Ok(Self { digest, variants })
    }
}

/// Whether an entry of an index is an engine. Programs that copy indexes may drop an entry's artefact type; the
/// manifest itself states it.
pub(crate) fn is_engine(entry: &Descriptor) -> bool {
    entry.media_type == MANIFEST
        && entry.artifact_type.as_deref().is_none_or(|kind| kind == MODEL)
        && entry.annotations.contains_key(annotations::PROFILE)
}

impl Variant {
    fn new(registry: &Registry, digest: Digest, annotations: Annotations) -> Result<Self> {
        let broken = |problem| registry.broken(&digest, problem);
        let requirements = annotations::requirements(&annotations).map_err(broken)?;
        let bytes = annotations::size(&annotations).map_err(broken)?;
        Ok(Self { requirements, bytes, annotations, digest })
    }
}

/// Refuses a manifest that is not an engine's.
pub(crate) fn check_kind(manifest: &Manifest) -> Result<(), String> {
    match manifest.artifact_type.as_deref() {
        Some(MODEL) => Ok(()),
        other => {
            let found = other.unwrap_or("none").escape_debug().to_string();
            Err(format!("artifactType: expected {MODEL}, found {found}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_an_engine_unless_it_states_otherwise() {
        let entry = |media_type: &str, artifact_type: Option<&str>, key: &str| Descriptor {
            media_type: media_type.into(),
            artifact_type: artifact_type.map(str::to_owned),
            digest: Digest::of(b"engine"),
            size: 1,
            annotations: [(key.to_owned(), "cpu".to_owned())].into(),
        };
        let engine = entry(MANIFEST, Some(MODEL), annotations::PROFILE);
        for (entry, expected) in [
            (engine.clone(), true),
            (entry(MANIFEST, None, annotations::PROFILE), true),
            (entry(MANIFEST, Some("application/other"), annotations::PROFILE), false),
            (entry("application/other", Some(MODEL), annotations::PROFILE), false),
            (entry(MANIFEST, Some(MODEL), "org.example.mood"), false),
        ] {
            assert_eq!(is_engine(&entry), expected, "{entry:?}");
        }
    }
}
