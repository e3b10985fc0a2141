//! Engines of several parts.

use crate::small_engine::{FILES, content, manifest, text, write};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use tileforge_engine::archive::{pack, unpack};
use tileforge_engine::digest::sha256;
use tileforge_engine::manifest::SCHEMA;
use tileforge_engine::share::share_files;
use tileforge_engine::signature::{keygen, sign};
use tileforge_engine::{Bundle, Engine, Error, MANIFEST_FILE, Pipeline, PublicKey, WEIGHTS_FILE, diff, exchange};

const PARTS: [&str; 2] = ["decoder", "encoder"];
const OWN: [&str; 2] = ["model_index.json", "tokenizer/vocab.json"];

/// Writes a pipeline engine of [`PARTS`] and [`OWN`] to `parent`, and returns its directory.
fn pipeline(parent: &Path, name: &str) -> PathBuf {
    let directory = parent.join(name);
    for part in PARTS {
        write(&directory, &manifest(part));
    }
    for name in OWN {
        let path = directory.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content(name)).unwrap();
    }
    list(&directory, name);
    directory
}

/// Writes a manifest that lists the present content of the directory.
fn list(directory: &Path, name: &str) {
    let digest = |name: &str| {
        let bytes = fs::read(directory.join(name)).unwrap();
        json!({ "bytes": bytes.len(), "sha256": sha256(&bytes) })
    };
    let parts = PARTS.map(|part| (part.to_owned(), digest(&format!("{part}/{MANIFEST_FILE}"))));
    let outer = json!({
        "schema": SCHEMA, "name": name, "producer": "engine-builder 0.1.0",
        "parts": parts.into_iter().collect::<serde_json::Map<_, _>>(),
        "files": OWN.map(|name| (name.to_owned(), digest(name))).into_iter().collect::<serde_json::Map<_, _>>(),
    });
    fs::write(directory.join(MANIFEST_FILE), outer.to_string()).unwrap();
}

fn refusal(directory: &Path) -> String {
    let error = text(Pipeline::open(directory).unwrap_err());
    assert_eq!(text(Bundle::open(directory).unwrap_err()), error);
    error
}

#[test]
fn an_opened_pipeline_gives_its_parts_and_files_as_they_were_digested() {
    let folder = tempfile::tempdir().unwrap();
    let directory = pipeline(folder.path(), "vae");
    let opened = Pipeline::open(&directory).unwrap();
    assert_eq!((opened.directory(), opened.manifest().name.as_str()), (directory.as_path(), "vae"));
    assert_eq!(opened.parts().map(|(name, _)| name).collect::<Vec<_>>(), PARTS);
    assert_eq!(opened.files().map(|(name, _)| name).collect::<Vec<_>>(), OWN);
    assert!(opened.part("unet").is_none());

    // A later folder or file of the same name has no effect.
    fs::rename(directory.join("encoder"), directory.join("old")).unwrap();
    fs::create_dir(directory.join("encoder")).unwrap();
    fs::write(directory.join("new"), "other").unwrap();
    fs::rename(directory.join("new"), directory.join(OWN[1])).unwrap();
    let encoder = opened.part("encoder").unwrap();
    assert_eq!(encoder.directory(), directory.join("encoder"));
    FILES.iter().for_each(|name| assert_eq!(encoder.file(name).unwrap(), content(name)));
    assert_eq!(opened.file(OWN[1]).unwrap(), content(OWN[1]));
    let unlisted =
        |name: &str| matches!(opened.file(name), Err(Error::Unlisted { path }) if path == directory.join(name));
    assert!(unlisted("encoder/model.weights") && unlisted(MANIFEST_FILE));
}

#[test]
fn a_part_is_an_engine_by_its_own_path_and_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let directory = pipeline(folder.path(), "vae");
    let by_path = Engine::open(&directory.join("decoder")).unwrap();
    let by_name = Pipeline::open_part(&directory, "decoder", None).unwrap();
    assert_eq!(by_path.manifest(), by_name.manifest());
    let error = text(Pipeline::open_part(&directory, "unet", None).unwrap_err());
    assert!(error.contains("vae: no part `unet`; its parts are decoder, encoder"), "{error}");
    let error = text(Engine::open(&directory).unwrap_err());
    assert!(error.contains("expected an engine of one network, found one of the parts decoder, encoder"), "{error}");
    let error = text(Pipeline::open(&directory.join("decoder")).unwrap_err());
    assert!(error.contains("expected an engine of several parts, found one of a single network"), "{error}");

    // Only the part that is opened has to be whole.
    fs::remove_file(directory.join("encoder").join(WEIGHTS_FILE)).unwrap();
    Pipeline::open_part(&directory, "decoder", None).unwrap();
    assert!(refusal(&directory).contains("encoder/model.weights: expected a file"), "{}", refusal(&directory));
}

#[test]
fn what_was_changed_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let other = pipeline(folder.path(), "other");
    let mut changed = manifest("encoder");
    changed["model"]["licence"] = json!("MIT");
    write(&other, &changed);
    type Change<'c> = &'c dyn Fn(&Path);
    let at = |directory: &Path, name: &str| directory.join(name);
    let changes: [(Change<'_>, &str); 9] = [
        (&|vae| fs::write(at(vae, "decoder/model.weights"), [0; 1013]).unwrap(), "decoder/model.weights: expected SHA"),
        (&|vae| fs::write(at(vae, OWN[1]), "short").unwrap(), "tokenizer/vocab.json: expected 1020 bytes, found 5"),
        (&|vae| fs::remove_file(at(vae, OWN[0])).unwrap(), "model_index.json: expected a file"),
        (&|vae| fs::remove_dir_all(at(vae, "decoder")).unwrap(), "decoder/manifest.json: expected a file"),
        (&|vae| fs::remove_file(at(vae, "decoder/manifest.json")).unwrap(), "decoder/manifest.json: expected a file"),
        (&|vae| fs::rename(at(vae, "decoder"), at(vae, "renamed")).unwrap(), "decoder/manifest.json: expected a file"),
        // The encoder of another engine, which is whole in itself.
        (
            &|vae| {
                fs::remove_dir_all(at(vae, "encoder")).unwrap();
                fs::rename(at(&other, "encoder"), at(vae, "encoder")).unwrap();
                Engine::open(&at(vae, "encoder")).unwrap();
            },
            "encoder/manifest.json: expected ",
        ),
        // The parts are swapped, and a new manifest lists them in their wrong places.
        (
            &|vae| {
                fs::rename(at(vae, "encoder"), at(vae, "x")).unwrap();
                fs::rename(at(vae, "decoder"), at(vae, "encoder")).unwrap();
                fs::rename(at(vae, "x"), at(vae, "decoder")).unwrap();
                list(vae, "vae");
            },
            "name: expected \"decoder\", the part's name, found \"encoder\"",
        ),
        // A part that has parts itself.
        (
            &|vae| {
                let inner = pipeline(folder.path(), "encoder");
                fs::remove_dir_all(at(vae, "encoder")).unwrap();
                fs::rename(inner, at(vae, "encoder")).unwrap();
                list(vae, "vae");
            },
            "expected a part of one network, found one with parts",
        ),
    ];
    for (change, expected) in changes {
        let directory = pipeline(folder.path(), "vae");
        Pipeline::open(&directory).unwrap();
        change(&directory);
        let error = refusal(&directory);
        assert!(error.contains(expected), "expected {expected}, found {error}");
        fs::remove_dir_all(directory).unwrap();
    }
}

#[test]
fn one_signature_covers_everything_and_comes_first() {
    let folder = tempfile::tempdir().unwrap();
    let directory = pipeline(folder.path(), "vae");
    let keys = keygen(&folder.path().join("key")).unwrap();
    let key = PublicKey::read(&keys.public).unwrap();
    let refused = || {
        let error = text(Pipeline::open_of(&directory, Some(&key)).unwrap_err());
        assert_eq!(text(Pipeline::open_part(&directory, "decoder", Some(&key)).unwrap_err()), error);
        assert_eq!(text(Bundle::open_of(&directory, Some(&key)).unwrap_err()), error);
        error
    };
    assert!(refused().contains("a signature is required"), "{}", refused());
    sign(&Bundle::open(&directory).unwrap(), &keys.private).unwrap();
    Pipeline::open_of(&directory, Some(&key)).unwrap().check_nothing_unlisted().unwrap();
    Pipeline::open_part(&directory, "decoder", Some(&key)).unwrap();

    // A changed part needs a changed manifest, and so the signed manifest changes, too.
    let mut changed = manifest("decoder");
    changed["model"]["licence"] = json!("MIT");
    write(&directory, &changed);
    assert!(refused().contains("decoder/manifest.json: expected"), "{}", refused());
    list(&directory, "vae");
    assert!(refused().contains("not one of this key"), "{}", refused());
    fs::write(directory.join(MANIFEST_FILE), "{").unwrap();
    assert!(refused().contains("not one of this key"), "{}", refused());
}

#[test]
fn a_file_that_no_manifest_lists_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let directory = pipeline(folder.path(), "vae");
    let keys = keygen(&folder.path().join("key")).unwrap();
    let bundle = Bundle::open(&directory).unwrap();
    bundle.check_nothing_unlisted().unwrap();
    fs::create_dir_all(directory.join("other")).unwrap();
    for name in ["notes", "decoder/notes", "tokenizer/notes", "other/notes", "decoder/manifest.sig", "tokenizer/a/b"] {
        let path = directory.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "x").unwrap();
        let error = text(bundle.check_nothing_unlisted().unwrap_err());
        assert!(error.contains(&format!("{name}: expected only files that the manifest lists")), "{error}");
        assert!(sign(&bundle, &keys.private).is_err());
        // The file would be lost if the engine were replaced.
        let error = text(exchange::place_for(&directory).unwrap_err());
        assert!(error.contains(&format!("the folder holds `{name}`")), "{error}");
        fs::remove_file(path).unwrap();
    }
    // A part that is a link to another folder.
    fs::rename(directory.join("decoder"), folder.path().join("elsewhere")).unwrap();
    symlink("../elsewhere", directory.join("decoder")).unwrap();
    let error = text(bundle.check_nothing_unlisted().unwrap_err());
    assert!(error.contains("vae/decoder: expected only files"), "{error}");
    // One that cannot be opened is not called missing.
    fs::remove_file(directory.join("decoder")).unwrap();
    symlink("decoder", directory.join("decoder")).unwrap();
    assert!(refusal(&directory).contains("decoder: cannot open"), "{}", refusal(&directory));
}

#[test]
fn only_a_whole_pipeline_is_put_in_place_and_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("vae");
    let staged = |change: &str| {
        let staging = exchange::temporary(folder.path()).unwrap();
        fs::remove_dir(staging.path()).unwrap();
        pipeline(folder.path(), staging.path().file_name().unwrap().to_str().unwrap());
        fs::write(staging.path().join(OWN[0]), change).unwrap();
        staging
    };
    drop(staged("killed"));
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
    for change in ["first", "second"] {
        exchange::put_in_place(staged(change), &place).unwrap();
        assert_eq!(fs::read_to_string(place.join(OWN[0])).unwrap(), change);
        assert_eq!(folder.path().read_dir().unwrap().count(), 1);
    }
    // A missing file is a reason to build it again.
    fs::remove_dir_all(place.join("encoder")).unwrap();
    fs::remove_file(place.join("decoder").join(WEIGHTS_FILE)).unwrap();
    exchange::put_in_place(staged("third"), &place).unwrap();
    // Without a part's manifest, it is not known which files belong to the part.
    fs::remove_file(place.join("decoder").join(MANIFEST_FILE)).unwrap();
    let error = text(exchange::put_in_place(staged("fourth"), &place).unwrap_err());
    assert!(error.contains("the folder holds `decoder/16x16.onnx`"), "{error}");
}

/// Entries of an archive to make: names with content, or with the target of a hard link.
type Entries = Vec<(String, Result<Vec<u8>, String>)>;

/// The entries of an archive: names, and for links their targets.
fn entries(archive: &Path) -> Vec<(String, Option<String>)> {
    let mut archive = tar::Archive::new(fs::File::open(archive).unwrap());
    let text = |path: std::borrow::Cow<'_, Path>| path.to_str().unwrap().to_owned();
    let entries = archive.entries().unwrap().map(|entry| {
        let entry = entry.unwrap();
        (text(entry.path().unwrap()), entry.link_name().unwrap().map(text))
    });
    entries.collect()
}

#[test]
fn a_pipeline_is_packed_with_equal_files_once_and_unpacked_byte_for_byte() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let directory = pipeline(folder.path(), "vae");
    let keys = keygen(&at("key")).unwrap();
    let key = PublicKey::read(&keys.public).unwrap();
    sign(&Bundle::open(&directory).unwrap(), &keys.private).unwrap();
    pack(&directory, &at("vae.tar")).unwrap();
    let file = |name: &str| (format!("vae/{name}"), None);
    let mut expected = vec![file(MANIFEST_FILE), file("manifest.sig"), file("decoder/manifest.json")];
    expected.extend(FILES.map(|name| file(&format!("decoder/{name}"))));
    expected.push(file("encoder/manifest.json"));
    expected.extend(FILES.map(|name| (format!("vae/encoder/{name}"), Some(format!("vae/decoder/{name}")))));
    expected.extend(OWN.map(file));
    assert_eq!(entries(&at("vae.tar")), expected);

    let unpacked = unpack(&at("vae.tar"), &at("unpacked"), Some(&key)).unwrap();
    assert_eq!((unpacked.name.as_str(), unpacked.files), ("vae", 2 * (1 + FILES.len()) + OWN.len()));
    assert_eq!(diff::diff(&directory, &at("unpacked")).unwrap(), []);
    Bundle::open_of(&at("unpacked"), Some(&key)).unwrap().check_nothing_unlisted().unwrap();
    let inode = |name: &str| fs::metadata(at("unpacked").join(name)).unwrap().ino();
    assert_eq!(inode("decoder/model.weights"), inode("encoder/model.weights"));
    pack(&at("unpacked"), &at("again.tar")).unwrap();
    assert_eq!(fs::read(at("again.tar")).unwrap(), fs::read(at("vae.tar")).unwrap());
}

#[test]
fn an_archive_that_is_not_exactly_one_pipeline_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let directory = pipeline(folder.path(), "vae");
    let made = |change: &dyn Fn(&mut Entries)| {
        let read = |name: String| (name.clone(), Ok(fs::read(directory.join(name)).unwrap()));
        let mut entries = vec![read(MANIFEST_FILE.into())];
        for part in PARTS {
            entries.push(read(format!("{part}/{MANIFEST_FILE}")));
            entries.extend(FILES.map(|name| read(format!("{part}/{name}"))));
        }
        entries.extend(OWN.map(|name| read(name.into())));
        change(&mut entries);
        let path = folder.path().join("made.tar");
        let mut builder = tar::Builder::new(fs::File::create(&path).unwrap());
        for (name, content) in entries {
            let mut header = tar::Header::new_gnu();
            header.set_mode(0o644);
            match content {
                Ok(bytes) => {
                    header.set_size(bytes.len() as u64);
                    builder.append_data(&mut header, format!("vae/{name}"), bytes.as_slice()).unwrap();
                }
                Err(target) => {
                    header.set_size(0);
                    header.set_entry_type(tar::EntryType::Link);
                    builder.append_link(&mut header, format!("vae/{name}"), target).unwrap();
                }
            }
        }
        builder.into_inner().unwrap();
        let place = folder.path().join("unpacked");
        let outcome = unpack(&path, &place, None).map_err(text);
        assert_eq!(place.exists(), outcome.is_ok());
        if outcome.is_ok() {
            fs::remove_dir_all(place).unwrap();
        }
        outcome.map(drop)
    };
    assert_eq!(made(&|_| ()), Ok(()));
    let link = |name: &str, target: &str| (name.to_owned(), Err(target.to_owned()));
    assert_eq!(made(&|entries| entries[9] = link("encoder/model.weights", "vae/decoder/model.weights")), Ok(()));
    type Change<'c> = &'c dyn Fn(&mut Entries);
    let changes: [(Change<'_>, &str); 10] = [
        (&|entries| drop(entries.remove(1)), "decoder/16x16.onnx: the manifest does not list it"),
        (&|entries| entries.swap(1, 2), "decoder/16x16.onnx: the manifest does not list it"),
        (&|entries| drop(entries.drain(6..11)), "encoder/manifest.json: listed in the manifest, but missing"),
        (&|entries| drop(entries.remove(9)), "encoder/model.weights: listed in the manifest, but missing"),
        (&|entries| entries[6].1.as_mut().unwrap()[9] ^= 1, "encoder/manifest.json: expected SHA-256"),
        (&|entries| entries[11].1.as_mut().unwrap()[9] ^= 1, "model_index.json: expected SHA-256"),
        (
            &|entries| entries.push(("decoder/manifest.sig".into(), Ok(vec![0; 64]))),
            "decoder/manifest.sig: the manifest does not list it",
        ),
        (
            &|entries| entries[9] = link("encoder/model.weights", "vae/decoder/16x16.onnx"),
            "expected a link to an equal file before it, found `decoder/16x16.onnx`",
        ),
        (&|entries| entries[4] = link("decoder/model.weights", "vae/encoder/model.weights"), "an equal file before it"),
        (&|entries| entries[9] = link("encoder/model.weights", "../../etc/passwd"), "expected files ENGINE/NAME"),
    ];
    for (change, expected) in changes {
        let error = made(change).unwrap_err();
        assert!(error.contains(expected), "expected {expected}, found {error}");
    }
}

#[test]
fn equal_files_of_parts_and_of_other_engines_are_stored_once() {
    let folder = tempfile::tempdir().unwrap();
    let directory = pipeline(folder.path(), "vae");
    let inode = |path: PathBuf| fs::metadata(path).unwrap().ino();
    let everything: u64 = FILES.iter().map(|name| content(name).len() as u64).sum();
    assert_eq!(share_files(&directory.join("encoder"), &directory).unwrap(), everything);
    Pipeline::open(&directory).unwrap().check_nothing_unlisted().unwrap();
    for name in FILES {
        assert_eq!(inode(directory.join("decoder").join(name)), inode(directory.join("encoder").join(name)));
    }
    let single = write(folder.path(), &manifest("single"));
    assert_eq!(share_files(&single, folder.path()).unwrap(), everything);
    assert_eq!(inode(single.join(WEIGHTS_FILE)), inode(directory.join("encoder").join(WEIGHTS_FILE)));
    let second = pipeline(folder.path(), "second");
    assert!(share_files(&second, folder.path()).unwrap() > everything);
    assert_eq!(inode(second.join(OWN[0])), inode(directory.join(OWN[0])));
    Pipeline::open(&second).unwrap().check_nothing_unlisted().unwrap();
}

#[test]
fn pipelines_are_compared_part_by_part() {
    let folder = tempfile::tempdir().unwrap();
    let first = pipeline(folder.path(), "first");
    let second = pipeline(folder.path(), "second");
    let mut changed = manifest("decoder");
    changed["model"]["licence"] = json!("MIT");
    write(&second, &changed);
    list(&second, "second");
    let found = diff::diff(&first, &second).unwrap();
    let found: Vec<_> = found.iter().map(|found| (found.key.as_str(), &found.second)).collect();
    let (licence, name) = (Some(json!("MIT")), Some(json!("second")));
    assert_eq!(found, [("name", &name), ("parts.decoder.model.licence", &licence)]);
    let bundle = Bundle::open(&first).unwrap();
    let parts = &bundle.manifest_json().unwrap()["parts"];
    assert_eq!(parts["encoder"]["name"], Value::from("encoder"));
    let names: Vec<_> = bundle.engines().into_iter().map(|(name, engine)| (name, &*engine.manifest().name)).collect();
    assert_eq!(names, PARTS.map(|part| (Some(part), part)));
}
