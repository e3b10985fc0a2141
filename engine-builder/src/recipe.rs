//! The inputs of an engine: recorded for a rebuild, and later compared with the present files.

use crate::digests::digest_of;
use crate::{Error, PipelineExtras, Result, Source};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use tileforge_engine::digest::{FileDigest, sha256, sha256_file};
use tileforge_engine::manifest::{FolderRecipe, ProfileRecipe, Recipe};
use tileforge_engine::rebuild::Predecessor;
use tileforge_files::Digests;
use tileforge_image::Format;

/// Digests every file that the sources and `beside` are read from.
///
/// The name of a file is the entry of `known` (such as `unet/model.safetensors`) that its path ends with; else its
/// path below the first of `folders` that holds it; else as much of the end of its path as distinguishes it from the
/// other files. So names do not depend on where these folders are.
///
/// # Errors
/// A file cannot be read.
pub(crate) fn input_digests<'k>(
    known: impl IntoIterator<Item = &'k str>,
    folders: &[&Path],
    sources: &[&Source],
    extras: &PipelineExtras,
    digests: &Digests,
) -> Result<BTreeMap<String, FileDigest>> {
    let mut known: Vec<&str> = known.into_iter().collect();
    // The longest name first: `unet/model.json` also ends with `model.json`.
    known.sort_by_key(|name| std::cmp::Reverse(name.len()));
    let mut files = Vec::new();
    for source in sources {
        files.extend(source.input_digests()?);
    }
    for file in extras.files.values() {
        files.push((file.path().to_owned(), digest_of(digests, file.path())?));
    }
    let (mut named, mut done) = (BTreeMap::new(), BTreeSet::new());
    for (file, digest) in files.into_iter().filter(|(file, _)| done.insert(file.clone())) {
        let name = names_of(&file, &known, folders).into_iter().find(|name| !named.contains_key(name));
        let name = name.ok_or_else(|| Error::input(&file, "expected another name than those of the other files"))?;
        named.insert(name, digest);
    }
    Ok(named)
}

/// The possible names of a file in the record, the best first.
fn names_of(file: &Path, known: &[&str], folders: &[&Path]) -> Vec<String> {
    let known = known.iter().filter(|name| file.ends_with(name)).map(PathBuf::from);
    let below = folders.iter().filter_map(|folder| file.strip_prefix(folder).ok()).filter(|path| path.is_relative());
    let parts: Vec<Component<'_>> = file.components().collect();
    let ends = (0..parts.len()).rev().map(|from| parts.iter().skip(from).collect::<PathBuf>());
    let text = |path: PathBuf| {
        let parts = path.components().filter_map(|part| match part {
            Component::Normal(part) => Some(plain(&part.to_string_lossy())),
            _ => None,
        });
        parts.collect::<Vec<_>>().join("/")
    };
    let all = known.chain(below.map(Path::to_owned)).chain(ends).map(text);
    all.filter(|name| !name.is_empty()).collect()
}

/// The name of a file or folder in a form that manifests allow.
pub(crate) fn plain_name(path: &Path) -> String {
    let named = path.file_name().map(|name| name.to_string_lossy().into_owned());
    // `.` and `..` get the name of the folder that they stand for.
    let named = named.or_else(|| Some(path.canonicalize().ok()?.file_name()?.to_string_lossy().into_owned()));
    plain(&named.unwrap_or_default())
}

/// The same name without characters that manifests do not allow.
fn plain(name: &str) -> String {
    let allowed = |c: char| if c.is_control() || ['/', '\\', ':'].contains(&c) { '_' } else { c };
    let name: String = name.chars().map(allowed).collect();
    if tileforge_files::is_plain(&name) { name } else { "_".into() }
}

/// The name of a folder of calibration data, and a digest over the names and contents of its pictures and tensors. For
/// an engine of several parts, the folders of the parts count.
///
/// # Errors
/// A file cannot be read.
pub(crate) fn folder_digest(folder: &Path, parts: &[&str]) -> Result<FolderRecipe> {
    let mut lines = Vec::new();
    if parts.is_empty() {
        digest_lines(folder, "", &mut lines)?;
    }
    for part in parts.iter().filter(|part| folder.join(part).is_dir()) {
        digest_lines(&folder.join(part), &format!("{part}/"), &mut lines)?;
    }
    lines.sort();
    Ok(FolderRecipe { name: plain_name(folder), sha256: sha256(lines.concat().as_bytes()) })
}

/// A line for each file, as `sha256sum` writes it.
fn digest_lines(folder: &Path, within: &str, lines: &mut Vec<String>) -> Result<()> {
    for entry in folder.read_dir().map_err(|e| Error::file(folder, "list", e))? {
        let path = entry.map_err(|e| Error::file(folder, "list", e))?.path();
        // All file types that calibration reads.
        let is_tensors = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("safetensors"));
        if (is_tensors || Format::of_name(&path).is_ok()) && path.is_file() {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            lines.push(format!("{}  {within}{name}\n", sha256_file(&path)?.sha256));
        }
    }
    Ok(())
}

/// A line if the profile of `recipe` has the same name as the recorded profile but another content. `None` if it is
/// unchanged, or if the manifest does not record it.
pub(crate) fn changed_profile(predecessor: &Predecessor, recipe: &Recipe) -> Option<String> {
    let (before, now) = (&predecessor.recipe.as_ref()?.profile, &recipe.profile);
    let ProfileRecipe { name, sha256 } = before;
    let is_changed = *name == now.name && *sha256 != now.sha256;
    is_changed.then(|| format!("the profile {name}: expected SHA-256 {sha256}, found {}", now.sha256))
}

/// The recorded inputs that `recipe` lacks, a sentence for each file. Files may be renamed: only the digests are
/// compared.
pub(crate) fn changes(predecessor: &Predecessor, recipe: &Recipe) -> Vec<String> {
    let inputs = recipe.inputs.iter().map(|(name, digest)| (name.as_str(), digest.sha256.as_str()));
    let adaptations = &recipe.diffusion.adaptations;
    let found: BTreeMap<&str, &str> =
        inputs.chain(adaptations.iter().map(|one| (one.file.as_str(), one.digest.sha256.as_str()))).collect();
    let here: BTreeSet<&str> = found.values().copied().collect();
    let gone = predecessor.inputs().into_iter().filter(|(_, sha256)| !here.contains(sha256.as_str()));
    let mut changes: Vec<String> = gone
        .map(|(name, expected)| {
            let found = found.get(name.as_str()).map_or("no file with it", |sha256| sha256);
            format!("{name}: expected SHA-256 {expected}, found {found}")
        })
        .collect();
    // A new file, such as a configuration, also changes the engine. Engines of earlier releases do not record the
    // model file.
    if let Some(before) = &predecessor.recipe {
        let known: BTreeSet<&str> = before.inputs.values().map(|digest| digest.sha256.as_str()).collect();
        let added = recipe.inputs.iter().filter(|(name, digest)| {
            !known.contains(digest.sha256.as_str()) && !before.inputs.contains_key(*name) && **name != recipe.model
        });
        changes.extend(added.map(|(name, _)| format!("{name}: the engine was made without it")));
    }
    let folder = |recipe: &Recipe| recipe.calibration.folder.as_ref().map(|folder| folder.sha256.clone());
    let (before, now) = (predecessor.recipe.as_deref().and_then(folder), folder(recipe));
    if let Some(before) = before.filter(|before| now.as_ref() != Some(before)) {
        let now = now.unwrap_or_else(|| "none".into());
        changes.push(format!("the calibration folder: expected SHA-256 {before} over its files, found {now}"));
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::fs;

    fn digest(digit: &str) -> FileDigest {
        FileDigest { bytes: 1, sha256: digit.repeat(64) }
    }

    fn recipe(inputs: &[(&str, &str)]) -> Recipe {
        let inputs = inputs.iter().map(|(name, digit)| ((*name).to_owned(), digest(digit))).collect();
        Recipe { inputs, ..Recipe::default() }
    }

    fn made_of(recipe: Recipe) -> Predecessor {
        Predecessor { schema: 2, manifest: Value::Null, recipe: Some(Box::new(recipe)) }
    }

    #[test]
    fn a_file_may_have_another_name_and_not_another_content() {
        let old = made_of(recipe(&[("x4.pth", "a"), ("config.json", "b")]));
        assert_eq!(changes(&old, &recipe(&[("renamed.pth", "a"), ("config.json", "b")])), [""; 0]);
        // A file was renamed, and another file got its old name.
        assert_eq!(changes(&old, &recipe(&[("config.json", "a"), ("x.json", "b")])), [""; 0]);
        let found = changes(&old, &recipe(&[("x4.pth", "c")]));
        let (a, b, c) = ("a".repeat(64), "b".repeat(64), "c".repeat(64));
        assert_eq!(
            found,
            [
                format!("config.json: expected SHA-256 {b}, found no file with it"),
                format!("x4.pth: expected SHA-256 {a}, found {c}"),
            ]
        );
    }

    #[test]
    fn a_file_that_was_not_there_is_a_change_and_a_model_file_that_was_not_recorded_is_none() {
        let old = made_of(recipe(&[("x4.pth", "a")]));
        let now = |name| {
            let recipe = recipe(&[("x4.pth", "a"), (name, "b")]);
            changes(&old, &Recipe { model: "x4.yaml".into(), ..recipe })
        };
        assert_eq!(now("config.json"), ["config.json: the engine was made without it"]);
        assert_eq!(now("x4.yaml"), [""; 0]);
        // Once the model file is recorded, it counts as any other file.
        let old = made_of(recipe(&[("x4.pth", "a"), ("x4.yaml", "c")]));
        assert!(changes(&old, &recipe(&[("x4.pth", "a"), ("x4.yaml", "b")]))[0].starts_with("x4.yaml: expected"));
    }

    #[test]
    fn a_profile_with_another_content_is_named() {
        let with = |name: &str, digit: &str| Recipe {
            profile: ProfileRecipe { name: name.into(), sha256: digit.repeat(64) },
            ..Recipe::default()
        };
        let old = made_of(with("cpu", "a"));
        assert_eq!(changed_profile(&old, &with("cpu", "a")), None);
        assert_eq!(changed_profile(&old, &with("other", "b")), None);
        let found = changed_profile(&old, &with("cpu", "b")).unwrap();
        assert!(found.starts_with("the profile cpu: expected SHA-256 aaa"), "{found}");
        let unknown = Predecessor { schema: 1, manifest: Value::Null, recipe: None };
        assert_eq!(changed_profile(&unknown, &with("cpu", "b")), None);
    }

    #[test]
    fn an_engine_without_a_recipe_has_the_digest_of_its_checkpoint() {
        let manifest = json!({ "model": { "checkpoint_sha256": "a".repeat(64) } });
        let old = Predecessor { schema: 1, manifest, recipe: None };
        assert_eq!(changes(&old, &recipe(&[("x4.pth", "a")])), [""; 0]);
        assert!(changes(&old, &recipe(&[("x4.pth", "b")]))[0].starts_with("the checkpoint: expected SHA-256 aaa"));
    }

    #[test]
    fn a_changed_calibration_folder_is_named() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("unet")).unwrap();
        fs::write(folder.path().join("unet/a.png"), "a").unwrap();
        let with = |folder| {
            let mut recipe = recipe(&[]);
            recipe.calibration.folder = folder;
            recipe
        };
        let before = folder_digest(folder.path(), &["unet"]).unwrap();
        let old = made_of(with(Some(before.clone())));
        assert_eq!(changes(&old, &with(Some(before.clone()))), [""; 0]);
        assert!(changes(&old, &with(None))[0].starts_with("the calibration folder: expected SHA-256"));
        for (name, text) in [("unet/a.png", "b"), ("unet/b.png", "a")] {
            fs::write(folder.path().join(name), text).unwrap();
            assert_eq!(changes(&old, &with(Some(folder_digest(folder.path(), &["unet"]).unwrap()))).len(), 1);
        }
    }

    #[test]
    fn files_have_their_names_below_a_folder_or_as_much_of_their_path_as_tells_them_apart() {
        let folders = [Path::new("config"), Path::new("models/sd"), Path::new("")];
        let names = |file| names_of(Path::new(file), &["unet/x.json", "x.json"], &folders);
        assert_eq!(names("models/sd/unet/y.safetensors")[0], "unet/y.safetensors");
        assert_eq!(names("config/tokenizer/vocab.json")[0], "tokenizer/vocab.json");
        assert_eq!(names("/hub/snapshots/1/unet/x.json")[..2], ["unet/x.json", "x.json"]);
        assert_eq!(names("/cache/a/y.json"), ["y.json", "a/y.json", "cache/a/y.json", "cache/a/y.json"]);
        assert_eq!(plain_name(Path::new("a:b\n.pth")), "a_b_.pth");
        let here = std::env::current_dir().unwrap();
        assert_eq!(plain_name(Path::new(".")), plain_name(&here));
    }
}
