//! Manifests and indexes, as the OCI image specification 1.1 and the CNCF ModelPack specification define them.
//!
//! Unused fields are dropped when a document is read. Maps are ordered, so that the same engine gives the same bytes.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tileforge_engine::digest;

/// The media type of a manifest.
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// The media type of an index.
pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// The artefact type of a ModelPack manifest.
pub const MODEL: &str = "application/vnd.cncf.model.manifest.v1+json";
/// The media type of a ModelPack configuration.
pub const MODEL_CONFIG: &str = "application/vnd.cncf.model.config.v1+json";
/// The media type of a layer that is a file of weights, graphs or plans.
pub const WEIGHT_LAYER: &str = "application/vnd.cncf.model.weight.v1.raw";
/// The media type of a layer that is a file of settings.
pub const SETTINGS_LAYER: &str = "application/vnd.cncf.model.weight.config.v1.raw";
/// The artefact type of an index of engines.
pub const ENGINES: &str = "application/vnd.tileforge.engines.v1+json";
/// The artefact type of the manifest of a signature.
pub const SIGNATURE: &str = "application/vnd.tileforge.engine.signature.v1";
/// The media type of the 64 bytes of an Ed25519 signature over an engine's `manifest.json`.
pub const SIGNATURE_LAYER: &str = "application/vnd.tileforge.engine.signature.v1.ed25519";
/// The media type of the empty JSON object, the configuration of an artefact without one.
pub const EMPTY: &str = "application/vnd.oci.empty.v1+json";
/// The annotation of a layer with the path of its file.
pub const FILE_PATH: &str = "org.cncf.model.filepath";
/// The annotation with a title. For a layer, the title is the name of its file, as other programs read it.
pub const TITLE: &str = "org.opencontainers.image.title";

/// The largest manifest or index. Registries need not accept a larger one.
pub const DOCUMENT_MAXIMUM_BYTES: u64 = 4 << 20;
/// The maximum number of layers, more than any engine has files.
const LAYERS_MAXIMUM: usize = 4096;
/// The maximum number of entries of an index, more than any tag has engines.
const ENTRIES_MAXIMUM: usize = 256;

/// The SHA-256 of something in a registry: `sha256:` and 64 lower-case hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

impl Digest {
    const ALGORITHM: &str = "sha256:";

    /// The digest of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self::from_hexadecimal(&digest::sha256(bytes))
    }

    /// The digest with these 64 digits, as in the manifest of an engine.
    pub(crate) fn from_hexadecimal(sha256: &str) -> Self {
        Self(format!("{}{sha256}", Self::ALGORITHM))
    }

    /// The 64 digits.
    pub fn hexadecimal(&self) -> &str {
        self.0.strip_prefix(Self::ALGORITHM).unwrap_or(&self.0)
    }

    /// A file name for it: `sha256-` and the digits. Tags of referrers have the same form.
    pub fn file_name(&self) -> String {
        format!("sha256-{}", self.hexadecimal())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl FromStr for Digest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.strip_prefix(Self::ALGORITHM);
        let sound = digits.is_some_and(|digits| {
            digits.len() == 64 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        });
        let refused =
            || format!("expected sha256: and 64 lower-case hexadecimal digits, found `{}`", text.escape_debug());
        if sound { Ok(Self(text.to_owned())) } else { Err(refused()) }
    }
}

impl TryFrom<String> for Digest {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.0
    }
}

/// Texts about something in a registry, by their keys.
pub type Annotations = BTreeMap<String, String>;

/// A reference to content in the same repository.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// Its media type.
    pub media_type: String,
    /// The artefact type, for a manifest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
    /// Its digest.
    pub digest: Digest,
    /// Its length in bytes.
    pub size: u64,
    /// Texts about it.
    #[serde(default, skip_serializing_if = "Annotations::is_empty")]
    pub annotations: Annotations,
}

impl Descriptor {
    /// Describes these bytes.
    pub(crate) fn of(media_type: &str, bytes: &[u8]) -> Self {
        Self {
            media_type: media_type.to_owned(),
            artifact_type: None,
            digest: Digest::of(bytes),
            size: bytes.len() as u64,
            annotations: Annotations::new(),
        }
    }

    /// The same descriptor as the layer of the file with this path.
    pub(crate) fn named(self, path: &str) -> Self {
        let annotations = [FILE_PATH, TITLE].into_iter().map(|key| (key.to_owned(), path.to_owned())).collect();
        Self { annotations, ..self }
    }
}

/// A manifest: an artefact of layers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// Always 2.
    pub schema_version: u32,
    /// [`MANIFEST`].
    pub media_type: String,
    /// What the artefact is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
    /// Its configuration.
    pub config: Descriptor,
    /// Its files.
    pub layers: Vec<Descriptor>,
    /// The manifest that this one is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<Descriptor>,
    /// Texts about it.
    #[serde(default, skip_serializing_if = "Annotations::is_empty")]
    pub annotations: Annotations,
}

/// An index: several manifests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Index {
    /// Always 2.
    pub schema_version: u32,
    /// [`INDEX`].
    pub media_type: String,
    /// What the artefact is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
    /// The manifests.
    pub manifests: Vec<Descriptor>,
    /// Texts about it.
    #[serde(default, skip_serializing_if = "Annotations::is_empty")]
    pub annotations: Annotations,
}

impl Index {
    /// An index of these manifests.
    pub(crate) fn new(artifact_type: Option<&str>, manifests: Vec<Descriptor>) -> Self {
        Self {
            schema_version: 2,
            media_type: INDEX.into(),
            artifact_type: artifact_type.map(str::to_owned),
            manifests,
            annotations: Annotations::new(),
        }
    }
}

/// What a tag or a digest names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Document {
    /// One artefact.
    Manifest(Box<Manifest>),
    /// Several.
    Index(Index),
}

impl Document {
    /// Reads a manifest or an index.
    ///
    /// Never panics, whatever the bytes are.
    ///
    /// # Errors
    /// The broken rule: what was expected, and what was found.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        /// Read first: the kind decides which fields are needed.
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Head {
            schema_version: u32,
            media_type: Option<String>,
        }
        let broken = |error: serde_json::Error| format!("not a manifest or an index: {error}");
        if bytes.len() as u64 > DOCUMENT_MAXIMUM_BYTES {
            return Err(format!("expected at most {DOCUMENT_MAXIMUM_BYTES} bytes, found {}", bytes.len()));
        }
        let Head { schema_version, media_type } = serde_json::from_slice(bytes).map_err(broken)?;
        if schema_version != 2 {
            return Err(format!("schemaVersion: expected 2, found {schema_version}"));
        }
        match media_type.as_deref() {
            Some(MANIFEST) => {
                let manifest: Manifest = serde_json::from_slice(bytes).map_err(broken)?;
                let found = manifest.layers.len();
                let sound = found <= LAYERS_MAXIMUM;
                sound
                    .then_some(())
                    .ok_or_else(|| format!("layers: expected at most {LAYERS_MAXIMUM}, found {found}"))?;
                Ok(Self::Manifest(manifest.into()))
            }
            Some(INDEX) => {
                let index: Index = serde_json::from_slice(bytes).map_err(broken)?;
                let found = index.manifests.len();
                let sound = found <= ENTRIES_MAXIMUM;
                let refused = || format!("manifests: expected at most {ENTRIES_MAXIMUM}, found {found}");
                sound.then_some(()).ok_or_else(refused)?;
                Ok(Self::Index(index))
            }
            other => {
                let found = other.unwrap_or("none").escape_debug().to_string();
                Err(format!("mediaType: expected that of an OCI manifest or index, found {found}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn descriptor() -> Value {
        json!({ "mediaType": WEIGHT_LAYER, "digest": format!("sha256:{}", "0".repeat(64)), "size": 1 })
    }

    fn parse(value: &Value) -> Result<Document, String> {
        Document::parse(value.to_string().as_bytes())
    }

    #[test]
    fn a_document_of_the_greatest_length_is_parsed() {
        let mut text = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [] }).to_string().into_bytes();
        text.resize(DOCUMENT_MAXIMUM_BYTES as usize, b' ');
        assert!(Document::parse(&text).is_ok());
        text.push(b' ');
        assert!(Document::parse(&text).unwrap_err().starts_with("expected at most 4194304 bytes, found 4194305"));
    }

    #[test]
    fn a_document_survives_the_round_trip_and_what_is_unknown_is_left_out() {
        let mut entry = descriptor();
        entry["platform"] = json!({ "os": "linux", "architecture": "amd64" });
        let value = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [entry] });
        let Document::Index(index) = parse(&value).unwrap() else { unreachable!("it is an index") };
        assert_eq!(serde_json::to_value(&index).unwrap()["manifests"][0], descriptor());
        let value = json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "config": descriptor(), "layers": [descriptor()],
            "subject": descriptor(), "annotations": { "a": "b" },
        });
        let Document::Manifest(manifest) = parse(&value).unwrap() else { unreachable!("it is a manifest") };
        assert_eq!(serde_json::to_value(&manifest).unwrap(), value);
    }

    #[test]
    fn each_broken_rule_is_named() {
        let index = |manifests: Value| json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": manifests });
        let with = |key: &str, value: Value| {
            let mut entry = descriptor();
            entry[key] = value;
            index(json!([entry]))
        };
        for (value, words) in [
            (json!({}), "schemaVersion"),
            (json!({ "schemaVersion": 1 }), "expected 2, found 1"),
            (json!({ "schemaVersion": 2 }), "mediaType"),
            (json!({ "schemaVersion": 2, "mediaType": "text/html" }), "found text/html"),
            (index(json!({})), "sequence"),
            (index(json!(vec![descriptor(); ENTRIES_MAXIMUM + 1])), "expected at most 256, found 257"),
            (with("digest", json!("sha256:00")), "64 lower-case hexadecimal digits"),
            (with("digest", json!("md5:00")), "64 lower-case hexadecimal digits"),
            (with("size", json!(-1)), "u64"),
            (with("annotations", json!({ "a": 1 })), "string"),
        ] {
            let error = parse(&value).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
        let layers = vec![descriptor(); LAYERS_MAXIMUM + 1];
        let value = json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": descriptor(), "layers": layers });
        assert!(parse(&value).unwrap_err().contains("expected at most 4096, found 4097"));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
            let _ = Document::parse(&bytes);
        }
    }
}
