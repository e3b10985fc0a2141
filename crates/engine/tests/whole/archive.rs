//! Engines as one file: what `pack` writes, and what `unpack` accepts.

use crate::small_engine::{FILES, content, manifest, text, write};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use tar::{Archive, Builder, EntryType, Header};
use tileforge_engine::archive::{pack, unpack};
use tileforge_engine::signature::{keygen, sign};
use tileforge_engine::{Bundle, Engine, MANIFEST_FILE, PublicKey};

/// The files of a folder by name.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = folder.read_dir().unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())).collect()
}

#[test]
fn an_engine_is_packed_and_unpacked_byte_for_byte() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let directory = write(folder.path(), &manifest("x2"));
    pack(&directory, &at("x2.tar")).unwrap();
    let mut archive = Archive::new(File::open(at("x2.tar")).unwrap());
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        let header = entry.header();
        assert_eq!((header.mode().unwrap(), header.mtime().unwrap()), (0o644, 0));
        assert_eq!((header.uid().unwrap(), header.gid().unwrap()), (0, 0));
        (entry.path().unwrap().to_str().unwrap().to_owned(), bytes)
    });
    let mut expected = vec![(format!("x2/{MANIFEST_FILE}"), fs::read(directory.join(MANIFEST_FILE)).unwrap())];
    expected.extend(FILES.map(|name| (format!("x2/{name}"), content(name))));
    assert_eq!(entries.collect::<Vec<_>>(), expected);

    let found = unpack(&at("x2.tar"), &at("unpacked"), None).unwrap();
    assert_eq!((found.name.as_str(), found.files), ("x2", FILES.len()));
    assert_eq!(files(&at("unpacked")), files(&directory));
    pack(&at("unpacked"), &at("again.tar")).unwrap();
    assert_eq!(fs::read(at("again.tar")).unwrap(), fs::read(at("x2.tar")).unwrap());
    // An archive is never written into the engine that it packs.
    assert!(pack(&directory, &directory.join("model.weights")).is_err());
    Engine::open(&directory).unwrap();
}

#[test]
fn a_signed_engine_stays_signed_and_is_unpacked_with_its_key_only() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let directory = write(folder.path(), &manifest("x2"));
    pack(&directory, &at("unsigned.tar")).unwrap();
    let [own, other] = ["own", "other"].map(|name| keygen(&at(name)).unwrap());
    let [own_public, other_public] = [&own, &other].map(|keys| PublicKey::read(&keys.public).unwrap());
    sign(&Bundle::open(&directory).unwrap(), &own.private).unwrap();
    pack(&directory, &at("signed.tar")).unwrap();

    unpack(&at("signed.tar"), &at("unpacked"), Some(&own_public)).unwrap();
    assert_eq!(files(&at("unpacked")), files(&directory));
    Engine::open_of(&at("unpacked"), Some(&own_public)).unwrap();
    unpack(&at("signed.tar"), &at("trusting"), None).unwrap();

    let refused = |archive: &str, key: &PublicKey| text(unpack(&at(archive), &at("refused"), Some(key)).unwrap_err());
    let error = refused("signed.tar", &other_public);
    assert!(error.contains("manifest.sig: the signature is not one of this key"), "{error}");
    let error = refused("unsigned.tar", &own_public);
    assert!(error.contains("a signature is required"), "{error}");
    assert!(!at("refused").exists());
}

/// An archive of these entries. The content of a hard link is its target.
fn archive(folder: &Path, entries: &[(&str, EntryType, Vec<u8>)]) -> PathBuf {
    let path = folder.join("made.tar");
    let mut builder = Builder::new(File::create(&path).unwrap());
    for (name, kind, bytes) in entries {
        let mut header = Header::new_gnu();
        header.set_entry_type(*kind);
        let content = if *kind == EntryType::Link { &[][..] } else { bytes };
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        // The builder refuses names that lead out of a folder.
        header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
        if *kind == EntryType::Link {
            header.set_link_name_literal(bytes).unwrap();
        }
        header.set_cksum();
        builder.append(&header, content).unwrap();
    }
    builder.finish().unwrap();
    path
}

#[test]
fn an_archive_that_is_not_exactly_one_engine_is_refused() {
    type Entry = (&'static str, EntryType, Vec<u8>);
    let file = |name: &'static str, bytes: Vec<u8>| -> Entry { (name, EntryType::Regular, bytes) };
    let whole = || {
        let mut entries = vec![file("x2/manifest.json", manifest("x2").to_string().into_bytes())];
        let names = ["x2/16x16.onnx", "x2/32x16.onnx", "x2/model.weights", "x2/selftest.safetensors"];
        entries.extend(names.map(|name| file(name, content(&name[3..]))));
        entries
    };
    let folder = tempfile::tempdir().unwrap();
    let outcome = |entries: &[Entry]| {
        let place = folder.path().join("engine");
        let outcome = unpack(&archive(folder.path(), entries), &place, None).map(drop).map_err(text);
        assert_eq!(place.exists(), outcome.is_ok());
        let left: Vec<_> = folder.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left.len(), 1 + usize::from(outcome.is_ok()), "{left:?}");
        if outcome.is_ok() {
            fs::remove_dir_all(place).unwrap();
        }
        outcome
    };
    assert_eq!(outcome(&whole()), Ok(()));
    type Change<'a> = &'a dyn Fn(&mut Vec<Entry>);
    let changes: [(Change<'_>, &str); 14] = [
        (&|entries| entries[3].2[5] ^= 1, "model.weights: expected SHA-256"),
        (&|entries| entries[3].2.push(0), "model.weights: expected 1013 bytes, found 1014"),
        (&|entries| drop(entries.pop()), "selftest.safetensors: listed in the manifest, but missing"),
        (&|entries| entries.push(entries[1].clone()), "16x16.onnx: it is there twice"),
        (&|entries| entries.push(file("x2/readme", vec![])), "readme: the manifest does not list it"),
        (&|entries| entries.push(file("x2/a/readme", vec![])), "a/readme: the manifest does not list it"),
        (&|entries| entries.rotate_left(1), "expected manifest.json first, found none"),
        (&|entries| entries.clear(), "expected manifest.json first, found none"),
        (&|entries| entries.push(file("x2/../../out", vec![])), "expected files ENGINE/NAME"),
        (&|entries| entries.push(file("/x2/out", vec![])), "expected files ENGINE/NAME"),
        (&|entries| entries.push(file("readme", vec![])), "expected files ENGINE/NAME"),
        (&|entries| entries[1].1 = EntryType::Symlink, "expected files ENGINE/NAME"),
        (&|entries| entries[0].2 = b"{}".to_vec(), "not a manifest"),
        (
            &|entries| entries.insert(1, file("x2/manifest.sig", vec![0; 1025])),
            "expected a signature, found 1025 bytes",
        ),
    ];
    for (change, expected) in changes {
        let mut entries = whole();
        change(&mut entries);
        let error = outcome(&entries).unwrap_err();
        assert!(error.contains(expected), "expected {expected}, found {error}");
    }
    // The target of a link must be an equal file before it.
    let mut equal = manifest("x2");
    equal["files"]["32x16.onnx"] = equal["files"]["16x16.onnx"].clone();
    let mut entries = whole();
    entries[0].2 = equal.to_string().into_bytes();
    entries[2] = ("x2/32x16.onnx", EntryType::Link, b"x2/16x16.onnx".to_vec());
    assert_eq!(outcome(&entries), Ok(()));
    entries.swap(1, 2);
    let error = outcome(&entries).unwrap_err();
    assert!(error.contains("expected a link to an equal file before it, found `16x16.onnx`"), "{error}");
    // A signature of the greatest length is accepted, because no key is given to verify it.
    let mut entries = whole();
    entries.insert(1, file("x2/manifest.sig", vec![0; 1024]));
    assert_eq!(outcome(&entries), Ok(()));
}

#[test]
fn names_and_attributes_of_an_archive_have_a_limit() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("engine");
    for kind in [EntryType::GNULongName, EntryType::GNULongLink, EntryType::XHeader, EntryType::XGlobalHeader] {
        let refused = |length: usize| {
            let path = archive(folder.path(), &[("x", kind, vec![b'a'; length])]);
            text(unpack(&path, &place, None).unwrap_err())
        };
        let limit = "expected names and attributes of at most 65536 bytes";
        assert!(refused(65_537).contains(&format!("{limit}, found 65537")), "{kind:?}: {}", refused(65_537));
        assert!(!refused(65_536).contains(limit), "{kind:?}: {}", refused(65_536));
    }
}

#[test]
fn a_cut_archive_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let directory = write(folder.path(), &manifest("x2"));
    let whole = folder.path().join("x2.tar");
    pack(&directory, &whole).unwrap();
    let bytes = fs::read(&whole).unwrap();
    let cut = folder.path().join("cut.tar");
    for length in [0, 100, 512, 700, bytes.len() / 2] {
        fs::write(&cut, &bytes[..length]).unwrap();
        let error = text(unpack(&cut, &folder.path().join("engine"), None).unwrap_err());
        assert!(error.contains("cut.tar"), "{length}: {error}");
        assert!(!folder.path().join("engine").exists());
    }
}
