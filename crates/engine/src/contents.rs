//! What an engine consists of, known from its manifests alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;

use crate::bundle_manifest::BundleManifest;
use crate::digest::FileDigest;
use crate::error::{Error, Result};
use crate::manifest::{MANIFEST_FILE, Manifest};
use crate::opened::OpenedDirectory;
use crate::signature::PublicKey;

/// The files of an engine with their digests, from the manifests that have been read so far.
#[derive(Clone, Debug)]
pub struct Contents {
    name: String,
    files: BTreeMap<String, FileDigest>,
    unread: BTreeSet<String>,
    networks: Vec<Manifest>,
    has_parts: bool,
}

impl Contents {
    /// The contents that the engine's own manifest lists.
    pub fn new(manifest: BundleManifest) -> Self {
        let name = manifest.name().to_owned();
        match manifest {
            BundleManifest::Engine(manifest) => {
                let files = manifest.files.clone();
                Self { name, files, unread: BTreeSet::new(), networks: vec![*manifest], has_parts: false }
            }
            BundleManifest::Pipeline(manifest) => {
                let unread = manifest.parts.keys().cloned().collect();
                let mut files = manifest.files;
                files.extend(manifest.parts.into_iter().map(|(part, digest)| (manifest_of(&part), digest)));
                Self { name, files, unread, networks: Vec::new(), has_parts: true }
            }
        }
    }

    /// The engine's name: its directory's name when it was built.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Every file except the engine's own manifest and its signature, by its path in the directory. The files of a
    /// part are included once the part's manifest has been read.
    pub fn files(&self) -> &BTreeMap<String, FileDigest> {
        &self.files
    }

    /// The manifests of the networks that have been read: one, or one for each part.
    pub fn networks(&self) -> &[Manifest] {
        &self.networks
    }

    /// The manifest of an engine without parts.
    pub fn network(&self) -> Option<&Manifest> {
        self.networks.first().filter(|_| !self.has_parts)
    }

    /// The parts whose manifests have not been read yet.
    pub fn unread_parts(&self) -> Vec<String> {
        self.unread.iter().cloned().collect()
    }

    /// The part whose manifest has this path, if it has not been read yet.
    pub fn part_of_manifest(&self, path: &str) -> Option<String> {
        let part = path.strip_suffix(MANIFEST_FILE)?.strip_suffix('/')?;
        self.unread.get(part).cloned()
    }

    /// Adds the files that the manifest of a part lists.
    ///
    /// # Errors
    /// [`Error::Manifest`]: it is not the manifest of this part.
    pub fn add_part(&mut self, part: &str, manifest: BundleManifest) -> Result<()> {
        let manifest = manifest.of_part(part)?;
        self.unread.remove(part);
        let files = manifest.files.iter().map(|(name, digest)| (format!("{part}/{name}"), digest.clone()));
        self.files.extend(files);
        self.networks.push(manifest);
        Ok(())
    }
}

/// The path of a part's manifest in the engine's directory.
pub fn manifest_of(part: &str) -> String {
    format!("{part}/{MANIFEST_FILE}")
}

/// An engine directory to send: its manifests have been read, and the reader of its files compares their digests.
#[derive(Debug)]
pub struct EngineSource {
    opened: OpenedDirectory,
    contents: Contents,
    signature: Option<Vec<u8>>,
}

impl EngineSource {
    /// Opens a directory and reads its manifests. No other file is read, and the signature is not verified.
    ///
    /// # Errors
    /// There is no engine, or a manifest breaks a rule.
    pub fn open(directory: &Path) -> Result<Self> {
        Self::open_of(directory, None)
    }

    /// As [`EngineSource::open`]. If a key is given, the signature of the engine's manifest is verified first.
    ///
    /// # Errors
    /// As [`EngineSource::open`]; or the engine is not signed, or signed with another key.
    pub fn open_of(directory: &Path, key: Option<&PublicKey>) -> Result<Self> {
        let opened = OpenedDirectory::open(directory, key)?;
        let mut contents = Contents::new(opened.manifest()?);
        for part in contents.unread_parts() {
            let digest = contents.files().get(&manifest_of(&part)).cloned();
            let digest = digest.ok_or(Error::Internal("reading the parts"))?;
            let manifest = opened.open_part(&part, &digest)?.manifest()?;
            contents.add_part(&part, manifest)?;
        }
        Ok(Self { signature: opened.signature()?, opened, contents })
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        self.opened.path()
    }

    /// The engine's files and manifests.
    pub fn contents(&self) -> &Contents {
        &self.contents
    }

    /// The bytes of the engine's own manifest.
    pub fn manifest_bytes(&self) -> &[u8] {
        self.opened.manifest_bytes()
    }

    /// The bytes of the signature, if the engine was signed.
    pub fn signature(&self) -> Option<&[u8]> {
        self.signature.as_deref()
    }

    /// Opens one of [`Contents::files`]. Its bytes are not compared with the digest.
    ///
    /// # Errors
    /// The file is missing or cannot be opened.
    pub fn open_file(&self, path: &str) -> Result<File> {
        self.opened.open_file(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::sha256;
    use crate::requirements::Requirements;
    use crate::signature::SIGNATURE_FILE;

    #[test]
    fn the_files_of_parts_are_known_once_their_manifests_are() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mut part = crate::validate::tests::manifest(&[(64, 64)]);
        part.name = "unet".into();
        let bytes = serde_json::to_vec(&part).unwrap();
        let outer = serde_json::json!({
            "schema": 2, "name": "sd", "producer": "a test",
            "parts": { "unet": { "bytes": bytes.len(), "sha256": sha256(&bytes) } },
            "files": { "tokenizer/vocab.json": { "bytes": 2, "sha256": sha256(b"{}") } },
        });
        std::fs::create_dir(at("unet")).unwrap();
        std::fs::write(at("unet/manifest.json"), &bytes).unwrap();
        std::fs::write(at(MANIFEST_FILE), outer.to_string()).unwrap();
        let contents = Contents::new(BundleManifest::parse(outer.to_string().as_bytes()).unwrap());
        assert_eq!(contents.files().keys().collect::<Vec<_>>(), ["tokenizer/vocab.json", "unet/manifest.json"]);
        assert_eq!(contents.part_of_manifest("unet/manifest.json").as_deref(), Some("unet"));
        assert_eq!(contents.part_of_manifest("tokenizer/vocab.json"), None);
        let whole = Contents::new(BundleManifest::Engine(part.clone().into()));
        assert_eq!(whole.network(), Some(&part));
        assert_eq!(Requirements::of_contents(&whole).shapes, ["1x3x64x64"]);

        std::fs::write(at(SIGNATURE_FILE), "a signature").unwrap();
        let source = EngineSource::open(folder.path()).unwrap();
        let files: Vec<_> = source.contents().files().keys().cloned().collect();
        let expected = ["tokenizer/vocab.json", "unet/64x64.onnx", "unet/manifest.json", "unet/selftest.safetensors"];
        assert_eq!(files, expected);
        assert_eq!(source.manifest_bytes(), outer.to_string().as_bytes());
        assert_eq!(source.signature(), Some(&b"a signature"[..]));
        assert_eq!(source.contents().networks(), [part]);
        assert_eq!(source.contents().network(), None);
        assert_eq!(Requirements::of_contents(source.contents()).shapes, ["unet/1x3x64x64"]);
        assert!(source.open_file("unet/manifest.json").is_ok());
        let missing = source.open_file("tokenizer/vocab.json").unwrap_err().to_string();
        assert!(missing.contains("tokenizer/vocab.json") && missing.contains("it is missing"), "{missing}");
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink("/", at("selftest.safetensors")).unwrap();
            let link = source.open_file("selftest.safetensors").unwrap_err().to_string();
            assert!(link.contains("cannot open"), "{link}");
        }

        std::fs::write(at("unet/manifest.json"), b"{}").unwrap();
        assert!(matches!(EngineSource::open(folder.path()), Err(Error::Altered { .. })));
    }
}
