//! Pushes engines to a registry.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Cursor, Read, Seek};
use std::path::Path;

use serde::Serialize;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tileforge_engine::digest::{FileDigest, hexadecimal};
use tileforge_engine::{EngineSource, MANIFEST_FILE, Requirements};
use tileforge_files::Transfer;

use crate::annotations;
use crate::client::{Content, Registry};
use crate::document::{
    Descriptor, Digest, Document, ENGINES, INDEX, Index, MANIFEST, MODEL, MODEL_CONFIG, Manifest, SETTINGS_LAYER,
    WEIGHT_LAYER,
};
use crate::error::{Error, Result};
use crate::offer::is_engine;
use crate::reference::Version;
use crate::signatures::{self, NOTHING};

/// What was pushed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pushed {
    /// The digest of the index.
    pub digest: Digest,
    /// The engines that were pushed, in the order in which they were given.
    pub engines: Vec<PushedEngine>,
    /// Engines that the index had before and still has.
    pub kept: usize,
    /// Files that were sent, and their bytes, without the registry's manifests and indexes.
    pub sent: Count,
    /// Files that the registry already had, and their bytes.
    pub there: Count,
}

/// One of the engines that were pushed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PushedEngine {
    /// Its name.
    pub name: String,
    /// Its profile, or profiles.
    pub profile: String,
    /// The digest of its manifest in the registry.
    pub digest: Digest,
    /// Whether it is signed.
    pub is_signed: bool,
}

/// A number of files and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Count {
    /// Files.
    pub files: usize,
    /// Bytes of them.
    pub bytes: u64,
}

impl Count {
    fn add(&mut self, bytes: u64) {
        self.files += 1;
        self.bytes += bytes;
    }
}

/// Sends engines to the tag of the registry's reference, and only the files that the registry lacks. The tag then
/// names an index of these engines. With `add`, the index keeps its older engines, except for the profiles that are
/// pushed now.
///
/// A file is read once: it is digested while it is sent, and a file that differs from its manifest does not arrive.
/// The index is sent last, so a failed push does not change what users pull.
///
/// # Errors
/// The reference has a digest; two engines are for one profile in one precision; the registry cannot be reached or
/// refuses; a file of an engine is missing or altered.
pub fn push(registry: &Registry, engines: &[EngineSource], add: bool, progress: &mut dyn Transfer) -> Result<Pushed> {
    let version = registry.reference().version();
    if matches!(version, Version::Digest(_)) {
        return Err(Error::PushToDigest { reference: registry.reference().to_string() });
    }
    check_distinct(engines)?;
    // The existing index is read first: a tag that names something else is refused before anything is sent.
    let known = if add { entries(registry, version)? } else { Vec::new() };
    let mut sending =
        Sending { registry, progress, known: BTreeSet::new(), sent: Count::default(), there: Count::default() };
    let (mut pushed, mut entries) = (Vec::new(), Vec::new());
    for engine in engines {
        let entry = sending.engine(engine)?;
        pushed.push(PushedEngine {
            name: engine.contents().name().to_owned(),
            profile: entry.annotations.get(annotations::PROFILE).cloned().unwrap_or_default(),
            digest: entry.digest.clone(),
            is_signed: engine.signature().is_some(),
        });
        entries.push(entry);
    }
    let (sent, there) = (sending.sent, sending.there);
    let profile = |entry: &Descriptor| entry.annotations.get(annotations::PROFILE).cloned();
    let new: BTreeSet<_> = entries.iter().map(profile).collect();
    let kept: Vec<_> = known.into_iter().filter(|entry| !new.contains(&profile(entry))).collect();
    let count = kept.len();
    let index = Index::new(Some(ENGINES), kept.into_iter().chain(entries).collect());
    let bytes = written(registry, &index)?;
    registry.put_document(version, INDEX, &bytes)?;
    Ok(Pushed { digest: Digest::of(&bytes), engines: pushed, kept: count, sent, there })
}

/// Checks that a machine can tell the engines apart.
fn check_distinct(engines: &[EngineSource]) -> Result<()> {
    let mut seen: BTreeMap<_, &Path> = BTreeMap::new();
    for engine in engines {
        let Requirements { profiles, precisions, .. } = Requirements::of_contents(engine.contents());
        if let Some(first) = seen.insert((profiles.clone(), precisions.clone()), engine.directory()) {
            let list = |texts: Vec<String>| texts.join(", ");
            return Err(Error::Twins {
                first: first.to_owned(),
                second: engine.directory().to_owned(),
                profile: list(profiles.into_iter().collect()),
                precision: list(precisions.iter().map(ToString::to_string).collect()),
            });
        }
    }
    Ok(())
}

/// The engines that a tag already names.
fn entries(registry: &Registry, version: &Version) -> Result<Vec<Descriptor>> {
    let Some((bytes, digest)) = registry.optional_document(version)? else { return Ok(Vec::new()) };
    match registry.parse(&bytes, &digest)? {
        Document::Index(index) if index.manifests.iter().all(is_engine) => Ok(index.manifests),
        _ => {
            let problem = "expected an index of engines to add to, found something else".to_owned();
            Err(Error::Document { reference: registry.reference().to_string(), problem })
        }
    }
}

/// The bytes of a document.
fn written(registry: &Registry, document: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(document).map_err(|error| {
        let problem = format!("cannot be written: {error}");
        Error::Document { reference: registry.reference().to_string(), problem }
    })
}

struct Sending<'a> {
    registry: &'a Registry,
    progress: &'a mut dyn Transfer,
    /// The files that the registry is known to have.
    known: BTreeSet<Digest>,
    sent: Count,
    there: Count,
}

impl Sending<'_> {
    /// Sends an engine with its signature. Returns its entry in the index.
    fn engine(&mut self, engine: &EngineSource) -> Result<Descriptor> {
        let contents = engine.contents();
        let own = engine.manifest_bytes();
        let mut layers = vec![Descriptor::of(SETTINGS_LAYER, own).named(MANIFEST_FILE)];
        self.bytes(MANIFEST_FILE, own)?;
        for (name, file) in contents.files() {
            let descriptor = Descriptor {
                media_type: media_type(name).to_owned(),
                artifact_type: None,
                digest: Digest::from_hexadecimal(&file.sha256),
                size: file.bytes,
                annotations: Default::default(),
            };
            self.file(engine, name, file, &descriptor.digest)?;
            layers.push(descriptor.named(name));
        }
        let config = written(self.registry, &configuration(engine, &layers))?;
        self.bytes("the configuration", &config)?;
        let said = annotations::of(contents);
        let manifest = Manifest {
            schema_version: 2,
            media_type: MANIFEST.into(),
            artifact_type: Some(MODEL.into()),
            config: Descriptor::of(MODEL_CONFIG, &config),
            layers,
            subject: None,
            annotations: said.clone(),
        };
        let mut entry = self.manifest(&manifest)?.0;
        if let Some(signature) = engine.signature() {
            self.signature(&entry, signature)?;
        }
        entry.annotations = said;
        Ok(entry)
    }

    /// Sends a signature, and ensures that it is listed.
    fn signature(&mut self, engine: &Descriptor, signature: &[u8]) -> Result<()> {
        self.bytes("the signature", signature)?;
        self.bytes("the empty configuration", NOTHING)?;
        let (entry, is_listed) = self.manifest(&signatures::manifest(engine, signature))?;
        if is_listed {
            return Ok(());
        }
        signatures::list_by_tag(self.registry, &engine.digest, entry)
    }

    /// Sends a manifest. Returns its descriptor, and whether the registry lists it as a referrer.
    fn manifest(&mut self, manifest: &Manifest) -> Result<(Descriptor, bool)> {
        let bytes = written(self.registry, manifest)?;
        let mut entry = Descriptor::of(MANIFEST, &bytes);
        entry.artifact_type = manifest.artifact_type.clone();
        let is_listed = self.registry.put_document(&Version::Digest(entry.digest.clone()), MANIFEST, &bytes)?;
        Ok((entry, is_listed))
    }

    /// Whether the registry lacks this file.
    fn lacks(&mut self, digest: &Digest, bytes: u64) -> Result<bool> {
        if !self.known.insert(digest.clone()) {
            return Ok(false);
        }
        let is_there = self.registry.has_blob(digest)?;
        if is_there {
            self.there.add(bytes)
        } else {
            self.sent.add(bytes)
        }
        Ok(!is_there)
    }

    fn bytes(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let digest = Digest::of(bytes);
        if self.lacks(&digest, bytes.len() as u64)? {
            self.progress.begin(name, Some(bytes.len() as u64), 0);
            self.registry.put_blob(&digest, bytes.len() as u64, &mut Cursor::new(bytes))?;
        }
        Ok(())
    }

    fn file(&mut self, engine: &EngineSource, name: &str, expected: &FileDigest, digest: &Digest) -> Result<()> {
        if !self.lacks(digest, expected.bytes)? {
            return Ok(());
        }
        self.progress.begin(name, Some(expected.bytes), 0);
        let mut content = Checked {
            file: engine.open_file(name)?,
            name,
            path: &engine.directory().join(name),
            expected,
            left: expected.bytes,
            sha256: Sha256::new(),
            problem: None,
            progress: self.progress,
        };
        let sent = self.registry.put_blob(digest, expected.bytes, &mut content);
        // The request then fails as a consequence of this problem.
        match content.problem {
            Some(problem) => Err(problem),
            None => sent,
        }
    }
}

/// A file that is read to be sent. Its last bytes are returned only if the whole file matches the manifest.
struct Checked<'a> {
    file: File,
    /// Its name in the engine.
    name: &'a str,
    path: &'a Path,
    expected: &'a FileDigest,
    /// Bytes that have not been read yet.
    left: u64,
    sha256: Sha256,
    problem: Option<Error>,
    progress: &'a mut dyn Transfer,
}

impl Checked<'_> {
    fn refuse(&mut self, problem: Error) -> io::Error {
        let text = problem.to_string();
        self.problem = Some(problem);
        io::Error::other(text)
    }

    fn altered(&mut self, expected: String, found: String) -> io::Error {
        let path = self.path.to_owned();
        self.refuse(tileforge_engine::Error::Altered { path, expected, found }.into())
    }
}

impl Content for Checked<'_> {
    fn restart(&mut self) -> Result<()> {
        self.file.rewind().map_err(Error::on(self.path, "read"))?;
        (self.left, self.sha256) = (self.expected.bytes, Sha256::new());
        self.progress.begin(self.name, Some(self.expected.bytes), 0);
        Ok(())
    }
}

impl Read for Checked<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 || buffer.is_empty() {
            return Ok(0);
        }
        let most = usize::try_from(self.left).map_or(buffer.len(), |left| left.min(buffer.len()));
        let count = match self.file.read(&mut buffer[..most]) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(error),
            Err(error) => return Err(self.refuse(Error::file(self.path, "read", error))),
        };
        if count == 0 {
            let (expected, found) = (self.expected.bytes, self.expected.bytes - self.left);
            return Err(self.altered(format!("{expected} bytes"), found.to_string()));
        }
        self.sha256.update(&buffer[..count]);
        self.left -= count as u64;
        if self.left == 0 {
            let found = hexadecimal(&self.sha256.clone().finalize());
            if found != self.expected.sha256 {
                return Err(self.altered(format!("SHA-256 {}", self.expected.sha256), found));
            }
        }
        self.progress.advance(count as u64);
        Ok(count)
    }
}

/// A file's media type in ModelPack.
fn media_type(name: &str) -> &'static str {
    let is_text = Path::new(name).extension().is_some_and(|extension| extension == "json" || extension == "txt");
    if is_text { SETTINGS_LAYER } else { WEIGHT_LAYER }
}

/// ModelPack's configuration.
fn configuration(engine: &EngineSource, layers: &[Descriptor]) -> serde_json::Value {
    let contents = engine.contents();
    let unique = |text: &dyn Fn(&tileforge_engine::Manifest) -> Option<String>| {
        contents.networks().iter().filter_map(text).collect::<BTreeSet<_>>()
    };
    let list = |texts: BTreeSet<String>| texts.into_iter().collect::<Vec<_>>().join(", ");
    let licences = unique(&|network| network.model.licence.clone());
    let mut descriptor = json!({ "name": contents.name() });
    if !licences.is_empty() {
        descriptor["licenses"] = json!(licences);
    }
    json!({
        "descriptor": descriptor,
        "modelfs": { "type": "layers", "diffIds": layers.iter().map(|layer| &layer.digest).collect::<Vec<_>>() },
        "config": {
            "architecture": list(unique(&|network| Some(network.model.architecture.clone()))),
            "format": "onnx",
            "precision": list(unique(&|network| Some(network.precision.to_string()))),
        },
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use tileforge_engine::digest::sha256;

    use super::*;

    struct Nothing;

    impl Transfer for Nothing {
        fn begin(&mut self, _: &str, _: Option<u64>, _: u64) {}

        fn advance(&mut self, _: u64) {}
    }

    /// The number of bytes that arrive of a file with this content, and the reported problem.
    fn read(content: &[u8], expected: &FileDigest) -> (usize, Option<String>) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content).unwrap();
        let mut checked = Checked {
            file: file.reopen().unwrap(),
            name: "model.weights",
            path: Path::new("model.weights"),
            expected,
            left: expected.bytes,
            sha256: Sha256::new(),
            problem: None,
            progress: &mut Nothing,
        };
        let mut buffer = [0; 4];
        let mut came = 0;
        while let Ok(count @ 1..) = checked.read(&mut buffer) {
            came += count;
        }
        (came, checked.problem.map(|problem| problem.to_string()))
    }

    #[test]
    fn the_end_of_an_altered_file_is_never_sent() {
        let expected = FileDigest { bytes: 10, sha256: sha256(b"0123456789") };
        assert_eq!(read(b"0123456789", &expected), (10, None));
        for (content, words) in
            [(&b"x123456789"[..], "model.weights: expected SHA-256"), (b"01234", "expected 10 bytes, found 5")]
        {
            let (came, problem) = read(content, &expected);
            assert!(came < 10 && problem.as_ref().unwrap().contains(words), "{came} {problem:?}");
        }
    }

    #[test]
    fn files_are_weights_or_settings() {
        let types = ["model.weights", "a.onnx", "part/manifest.json", "tokenizer/merges.txt", "tensorrt-rtx/a.plan"];
        assert_eq!(types.map(media_type), [WEIGHT_LAYER, WEIGHT_LAYER, SETTINGS_LAYER, SETTINGS_LAYER, WEIGHT_LAYER]);
    }
}
