//! Pulls engines from a registry.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use tileforge_engine::exchange::{self, Temporary};
use tileforge_engine::signature::SIGNATURE_FILE;
use tileforge_engine::{BundleManifest, Contents, MANIFEST_FILE, MANIFEST_MAXIMUM_BYTES, PublicKey, manifest_of};
use tileforge_files::{Transfer, unfinished};

use crate::annotations::{self, Contradiction};
use crate::blob::{Parts, Wanted};
use crate::cache::Cache;
use crate::client::Registry;
use crate::document::{Descriptor, Document, FILE_PATH, Manifest};
use crate::error::{Error, Result};
use crate::offer::{Variant, check_kind};
use crate::reference::Version;
use crate::signatures;

/// The maximum nesting of folders, more than any engine has.
const DEPTH_MAXIMUM: usize = 8;

/// An engine that was pulled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pulled {
    /// The engine's name: that of its directory when it was built.
    pub name: String,
    /// Number of files that were checked, without the engine's manifest and signature.
    pub files: usize,
    /// Bytes that this pull downloaded, without the bytes that an earlier pull left.
    pub downloaded: u64,
    /// Whether the engine is signed. Without a key, the signature was not verified.
    pub is_signed: bool,
}

/// Pulls a variant to the engine directory `directory`, which must not exist or must hold an older engine.
///
/// All files are digested while they arrive. With a `key`, the engine's manifest is not parsed before its signature
/// has been verified. Graphs and plans are never parsed. After a cut, the received bytes stay beside the directory, in
/// `NAME.part`, and the next call continues from there.
///
/// # Errors
/// The registry cannot be reached; a file is missing, additional or altered; the signature is not by `key`; the index
/// contradicts the engine; the disk has too little space. After a failure there is no engine, or still the older one.
pub fn pull(
    registry: &Registry,
    variant: &Variant,
    directory: &Path,
    key: Option<&PublicKey>,
    progress: &mut dyn Transfer,
) -> Result<Pulled> {
    exchange::place_for(directory)?;
    let parts = Parts::beside(directory, false)?;
    pull_with(registry, variant, directory, key, parts, progress)
}

/// Pulls a variant into the cache, unless the cache has it. If several processes want the same variant, one pulls it
/// and the others wait. Returns its directory, and what was pulled.
///
/// # Errors
/// As [`pull`].
pub fn pull_to_cache(
    registry: &Registry,
    variant: &Variant,
    cache: &Cache,
    key: Option<&PublicKey>,
    progress: &mut dyn Transfer,
) -> Result<(PathBuf, Option<Pulled>)> {
    let directory = cache.engine(&variant.digest);
    if cache.has_engine(&variant.digest) {
        return Ok((directory, None));
    }
    exchange::place_for(&directory)?;
    let parts = Parts::beside(&directory, true)?;
    if cache.has_engine(&variant.digest) {
        parts.remove()?;
        return Ok((directory, None));
    }
    let pulled = pull_with(registry, variant, &directory, key, parts, progress)?;
    Ok((directory, Some(pulled)))
}

/// As [`pull`], for a caller that holds the lock of the unfinished files.
fn pull_with(
    registry: &Registry,
    variant: &Variant,
    directory: &Path,
    key: Option<&PublicKey>,
    parts: Parts,
    progress: &mut dyn Transfer,
) -> Result<Pulled> {
    let pulled = Engine::ask(registry, variant, key).and_then(|engine| {
        let downloaded = engine.download(registry, &parts, progress)?;
        let staging = exchange::temporary(exchange::parent_of(directory))?;
        engine.assemble(&staging, &parts)?;
        exchange::put_in_place(staging, directory)?;
        Ok(Pulled {
            name: engine.contents.name().to_owned(),
            files: engine.contents.files().len(),
            downloaded,
            is_signed: engine.signature.is_some(),
        })
    });
    // The next pull cannot use refused bytes.
    if pulled.as_ref().is_err_and(Error::is_resumable) && !parts.is_empty() {
        return pulled;
    }
    let removed = parts.remove();
    pulled.and_then(|pulled| removed.map(|()| pulled))
}

/// An engine in a registry, whose manifests have been downloaded and checked.
struct Engine {
    contents: Contents,
    /// The engine's manifest and those of its parts, by their paths.
    manifests: BTreeMap<String, Vec<u8>>,
    signature: Option<Vec<u8>>,
    /// The other files.
    layers: BTreeMap<String, Descriptor>,
}

impl Engine {
    /// Requests the manifests, and checks everything that can be checked without the files.
    fn ask(registry: &Registry, variant: &Variant, key: Option<&PublicKey>) -> Result<Self> {
        let digest = &variant.digest;
        let broken = |problem: String| registry.broken(digest, problem);
        let (bytes, _) = registry.document(&Version::Digest(digest.clone()))?;
        let Document::Manifest(manifest) = registry.parse(&bytes, digest)? else {
            return Err(broken("expected the manifest of an engine, found an index".into()));
        };
        check_kind(&manifest).map_err(broken)?;
        let mut layers = layers_of(&manifest).map_err(broken)?;
        let missing = || broken(format!("layers: expected one with the file {MANIFEST_FILE}, found none"));
        let own = layers.remove(MANIFEST_FILE).ok_or_else(missing)?;
        let text = Wanted::new(MANIFEST_FILE, &own).read(registry, MANIFEST_MAXIMUM_BYTES)?;
        let signature = signatures::of_engine(registry, digest, &text, key)?;
        let invalid = |path: &str| {
            let path = PathBuf::from(registry.reference_of(digest)).join(path);
            move |source| Error::Engine(tileforge_engine::Error::Invalid { path, source: Box::new(source) })
        };
        let mut contents = Contents::new(BundleManifest::parse(&text).map_err(invalid(MANIFEST_FILE))?);
        let mut manifests = BTreeMap::from([(MANIFEST_FILE.to_owned(), text)]);
        for part in contents.unread_parts() {
            let path = manifest_of(&part);
            let layer = checked_layer(&layers, &contents, &path).map_err(broken)?;
            let text = Wanted::new(&path, layer).read(registry, MANIFEST_MAXIMUM_BYTES)?;
            let read = BundleManifest::parse(&text).and_then(|manifest| contents.add_part(&part, manifest));
            read.map_err(invalid(&path))?;
            layers.remove(&path);
            manifests.insert(path, text);
        }
        check_layers(&layers, &contents, &manifests).map_err(broken)?;
        let is = annotations::of(&contents);
        for said in [&variant.annotations, &manifest.annotations] {
            if let Some(Contradiction { key, said, is }) = annotations::contradiction(said, &is) {
                let (reference, engine) = (registry.reference_of(digest), contents.name().to_owned());
                return Err(Error::Contradiction { reference, engine, key, said, is });
            }
        }
        Ok(Self { contents, manifests, signature, layers })
    }

    /// Downloads the missing files. Returns the number of received bytes.
    fn download(&self, registry: &Registry, parts: &Parts, progress: &mut dyn Transfer) -> Result<u64> {
        let mut seen = BTreeSet::new();
        let unique: Vec<_> = self.layers.iter().filter(|(_, layer)| seen.insert(&layer.digest)).collect();
        let missing = unique.iter().map(|(_, layer)| layer.size.saturating_sub(parts.length(&layer.digest)));
        parts.check_space(missing.fold(0_u64, u64::saturating_add))?;
        let mut downloaded = 0;
        for (name, layer) in unique {
            downloaded += parts.fetch(registry, &Wanted::new(name, layer), progress)?;
        }
        Ok(downloaded)
    }

    /// Moves the files to their paths in the engine.
    fn assemble(&self, staging: &Temporary, parts: &Parts) -> Result<()> {
        let place_of = |name: &str| -> Result<PathBuf> {
            let place = staging.path().join(name);
            let folder = exchange::parent_of(&place);
            unfinished::create_folders(folder).map_err(|e| Error::file(folder, "create", e))?;
            Ok(place)
        };
        let own = self.signature.iter().map(|signature| (SIGNATURE_FILE, signature));
        for (name, bytes) in self.manifests.iter().map(|(name, bytes)| (name.as_str(), bytes)).chain(own) {
            let place = place_of(name)?;
            fs::write(&place, bytes).map_err(|e| Error::file(&place, "write", e))?;
        }
        for (name, layer) in &self.layers {
            parts.place(&layer.digest, &place_of(name)?)?;
        }
        Ok(())
    }
}

/// The layers by the paths of their files.
fn layers_of(manifest: &Manifest) -> Result<BTreeMap<String, Descriptor>, String> {
    let mut layers = BTreeMap::new();
    for layer in &manifest.layers {
        let path = layer.annotations.get(FILE_PATH);
        let path =
            path.ok_or_else(|| format!("layers: {}: expected the annotation {FILE_PATH}, found none", layer.digest))?;
        let parts: Vec<&str> = path.split('/').collect();
        if parts.len() > DEPTH_MAXIMUM || !parts.iter().all(|part| tileforge_files::is_plain(part)) {
            return Err(format!("layers: expected the path of a file in the engine, found `{}`", path.escape_debug()));
        }
        if layers.insert(path.clone(), layer.clone()).is_some() {
            return Err(format!("layers: {path} is there twice"));
        }
    }
    Ok(layers)
}

/// The layer of a file, which must be the file that the engine's manifests list.
fn checked_layer<'l>(
    layers: &'l BTreeMap<String, Descriptor>,
    contents: &Contents,
    path: &str,
) -> Result<&'l Descriptor, String> {
    let listed =
        contents.files().get(path).ok_or_else(|| format!("layers: {path}: the engine's manifest does not list it"))?;
    let layer =
        layers.get(path).ok_or_else(|| format!("layers: {path}: the engine's manifest lists it, and there is none"))?;
    let expected = format!("{} bytes with the SHA-256 {}", listed.bytes, listed.sha256);
    let found = format!("{} bytes with the SHA-256 {}", layer.size, layer.digest.hexadecimal());
    if expected == found { Ok(layer) } else { Err(format!("layers: {path}: expected {expected}, found {found}")) }
}

/// Checks that the layers are exactly the files that the engine's manifests list.
fn check_layers(
    layers: &BTreeMap<String, Descriptor>,
    contents: &Contents,
    read: &BTreeMap<String, Vec<u8>>,
) -> Result<(), String> {
    let listed = contents.files().keys().filter(|path| !read.contains_key(*path));
    let all: BTreeSet<&String> = layers.keys().chain(listed).collect();
    all.into_iter().try_for_each(|path| checked_layer(layers, contents, path).map(drop))
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;
    use tileforge_engine::manifest::Plan;
    use tileforge_engine::testing;

    use super::*;
    use crate::document::{Annotations, Digest, MANIFEST, MODEL, WEIGHT_LAYER};

    pub(crate) fn plan() -> Plan {
        Plan {
            context: "tensorrt-rtx/a.onnx".into(),
            file: "tensorrt-rtx/a.plan".into(),
            library: "1.7.1.116".into(),
            compute_capabilities: vec!["8.6".into(), "8.9".into()],
            figures: None,
        }
    }

    /// An engine of one graph for CPUs, changed in some way.
    pub(crate) fn contents(change: impl Fn(&mut tileforge_engine::Manifest)) -> Contents {
        let file = |bytes: u64| json!({ "bytes": bytes, "sha256": "0".repeat(64) });
        let files = json!({
            "a.onnx": file(1), "model.weights": file(100), "selftest.safetensors": file(1),
            "tensorrt-rtx/a.onnx": file(1), "tensorrt-rtx/a.plan": file(2),
        });
        let graphs = vec![testing::graph("a.onnx", &[1, 3, 64, 64], &[1, 3, 128, 128])];
        let value = testing::manifest("a", &testing::upscale(2, 3).contract(), graphs, files);
        let mut manifest: tileforge_engine::Manifest = serde_json::from_value(value).unwrap();
        change(&mut manifest);
        Contents::new(BundleManifest::Engine(manifest.into()))
    }

    fn layer(path: &str, size: u64) -> Descriptor {
        Descriptor {
            media_type: WEIGHT_LAYER.into(),
            artifact_type: None,
            digest: Digest::from_hexadecimal(&"0".repeat(64)),
            size,
            annotations: Annotations::from([(FILE_PATH.to_owned(), path.to_owned())]),
        }
    }

    fn manifest(layers: Vec<Descriptor>) -> Manifest {
        Manifest {
            schema_version: 2,
            media_type: MANIFEST.into(),
            artifact_type: Some(MODEL.into()),
            config: layer("config", 2),
            layers,
            subject: None,
            annotations: Annotations::new(),
        }
    }

    #[test]
    fn layers_have_paths_that_stay_in_the_engine_and_none_comes_twice() {
        let of = |layers: &[Descriptor]| layers_of(&manifest(layers.to_vec())).map(|layers| layers.len());
        assert_eq!(of(&[layer("a", 1), layer("1/2/3/4/5/6/7/8", 1)]), Ok(2));
        for path in ["", "/a", "../a", "a/../b", "a//b", "a/", "a\\b", "a\nb", "c:a", "1/2/3/4/5/6/7/8/9"] {
            let error = of(&[layer(path, 1)]).unwrap_err();
            assert!(error.contains("expected the path of a file in the engine"), "{error}");
        }
        assert!(of(&[layer("a", 1), layer("a", 1)]).unwrap_err().contains("a is there twice"));
        let without = Descriptor { annotations: Annotations::new(), ..layer("a", 1) };
        assert!(of(&[without]).unwrap_err().contains(FILE_PATH));
    }

    #[test]
    fn layers_are_exactly_the_files_that_the_manifest_lists() {
        let contents = contents(|_| ());
        let whole = contents.files().iter().map(|(path, file)| layer(path, file.bytes)).collect::<Vec<_>>();
        let check = |change: &dyn Fn(&mut BTreeMap<String, Descriptor>)| {
            let mut layers = layers_of(&manifest(whole.clone())).unwrap();
            change(&mut layers);
            check_layers(&layers, &contents, &BTreeMap::new())
        };
        assert_eq!(check(&|_| ()), Ok(()));
        let missing = check(&|layers| drop(layers.remove("model.weights"))).unwrap_err();
        assert!(missing.contains("model.weights: the engine's manifest lists it, and there is none"), "{missing}");
        let more = check(&|layers| drop(layers.insert("x".into(), layer("x", 1)))).unwrap_err();
        assert!(more.contains("x: the engine's manifest does not list it"), "{more}");
        let larger = check(&|layers| drop(layers.insert("a.onnx".into(), layer("a.onnx", 1 << 60)))).unwrap_err();
        assert!(larger.contains("a.onnx: expected 1 bytes") && larger.contains(&(1_u64 << 60).to_string()), "{larger}");
    }

    #[test]
    fn an_engine_that_no_disk_holds_is_not_begun() {
        let folder = tempfile::tempdir().unwrap();
        let parts = Parts::beside(&folder.path().join("engine"), false).unwrap();
        assert!(parts.check_space(1).is_ok());
        assert!(matches!(parts.check_space(u64::MAX), Err(Error::Space { .. })));
    }
}
