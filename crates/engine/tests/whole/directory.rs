//! Engine directories: opening, comparing, and storing equal files once.

use crate::small_engine::{FILES, content, manifest, text, write};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use tileforge_engine::digest::{FileDigest, sha256};
use tileforge_engine::share::share_files;
use tileforge_engine::store::{self, Facts, Store, TensorRtFacts};
use tileforge_engine::{Bundle, Engine, Error, MANIFEST_FILE, MANIFEST_MAXIMUM_BYTES, WEIGHTS_FILE, diff, extend};

fn inode(directory: &Path, name: &str) -> u64 {
    fs::metadata(directory.join(name)).unwrap().ino()
}

fn refusal(directory: &Path) -> String {
    text(Engine::open(directory).unwrap_err())
}

#[test]
fn an_opened_engine_gives_its_graphs_and_the_files_that_were_digested() {
    let folder = tempfile::tempdir().unwrap();
    let directory = write(folder.path(), &manifest("x2"));
    let engine = Engine::open(&directory).unwrap();
    assert_eq!(engine.directory(), directory);
    let bundle = Bundle::open(&directory).unwrap();
    let engines = bundle.engines();
    assert!(matches!(engines[..], [(None, only)] if only.manifest() == engine.manifest()));
    assert_eq!(engine.path_of("model.weights"), directory.join("model.weights"));
    assert_eq!(engine.graph_named(FILES[1]).unwrap().inputs["input"], [1, 3, 16, 32]);
    assert_eq!(engine.graph_named(FILES[2]), None);
    let sizes = engine.graph_named(FILES[1]).unwrap().sizes(&engine.manifest().contract).unwrap();
    assert_eq!((sizes.batch, sizes.height, sizes.width), (1, 16, 32));

    // A later file of the same name has no effect.
    fs::write(directory.join("new"), "other").unwrap();
    fs::rename(directory.join("new"), directory.join(FILES[0])).unwrap();
    let files: Vec<_> = engine.files().map(|(name, bytes)| (name.to_owned(), bytes.to_vec())).collect();
    assert_eq!(files, FILES.map(|name| (name.to_owned(), content(name))));
    assert_eq!(engine.file(WEIGHTS_FILE).unwrap(), content(WEIGHTS_FILE));
    assert!(
        matches!(engine.file(MANIFEST_FILE), Err(Error::Unlisted { path }) if path == directory.join(MANIFEST_FILE))
    );

    // Libraries that read by path get the digested file.
    let placed = tempfile::tempdir().unwrap();
    assert_eq!(engine.opened_path(FILES[0]).unwrap(), None, "the digested file has no name any more");
    engine.place_files(FILES, placed.path()).unwrap();
    FILES.iter().for_each(|name| assert_eq!(fs::read(placed.path().join(name)).unwrap(), content(name)));
    assert!(engine.place_files(["other"], placed.path()).is_err());
    let opened = engine.opened_path(FILES[1]).unwrap().unwrap();
    assert_eq!(fs::read(opened).unwrap(), content(FILES[1]));
}

#[test]
fn a_folder_that_is_no_engine_says_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    assert!(refusal(&at("missing")).contains("no such folder"));
    assert!(refusal(folder.path()).contains("no manifest.json in this folder"));
    fs::write(at("file"), "x").unwrap();
    assert!(refusal(&at("file")).contains("not a folder"), "{}", refusal(&at("file")));

    // Larger than any manifest. Spaces behind it are allowed up to the limit.
    let directory = write(folder.path(), &manifest("x2"));
    let grow = |length: u64| {
        let mut file = File::options().append(true).open(directory.join(MANIFEST_FILE)).unwrap();
        let missing = length - file.metadata().unwrap().len();
        file.write_all(&vec![b' '; missing as usize]).unwrap();
    };
    grow(MANIFEST_MAXIMUM_BYTES);
    assert_eq!(MANIFEST_MAXIMUM_BYTES, 16_777_216);
    Engine::open(&directory).unwrap();
    grow(MANIFEST_MAXIMUM_BYTES + 1);
    assert!(refusal(&directory).contains("16777217"), "{}", refusal(&directory));
}

#[test]
fn a_folder_that_cannot_be_opened_is_not_called_missing() {
    let error = refusal(Path::new(&"x".repeat(300)));
    assert!(error.contains("cannot open") && !error.contains("no such folder"), "{error}");
}

#[test]
fn a_manifest_leaves_defaults_out() {
    let folder = tempfile::tempdir().unwrap();
    let target = |change: Value| {
        let mut changed = manifest("x2");
        change.as_object().unwrap().iter().for_each(|(name, value)| changed["target"][name] = value.clone());
        let engine = Engine::open(&write(folder.path(), &changed)).unwrap();
        serde_json::to_value(&engine.manifest().target).unwrap()
    };
    let plain = target(json!({}));
    assert!(plain.get("portable").is_none() && plain.get("streams").is_none(), "{plain}");
    assert_eq!(target(json!({ "portable": false, "streams": 1 })), plain);
    let other = target(json!({ "portable": true, "streams": 2 }));
    assert_eq!((&other["portable"], &other["streams"]), (&json!(true), &json!(2)));
}

#[test]
fn an_engine_is_extended_by_files_that_its_new_manifest_lists() {
    let folder = tempfile::tempdir().unwrap();
    let first = write(folder.path(), &manifest("first"));
    let engine = Engine::open(&first).unwrap();
    let (cache, other) = (folder.path().join("made"), folder.path().join("second"));
    fs::write(&cache, "cache").unwrap();
    let added = ["tensorrt/key/cache", FILES[3]].map(|name| (name.to_owned(), cache.clone()));
    let made = extend(&engine, &added.into(), &other).unwrap();
    let extended = Engine::open(&other).unwrap();
    assert_eq!(extended.manifest(), &made);
    extended.check_nothing_unlisted().unwrap();
    for (name, bytes) in extended.files() {
        let is_added = name == FILES[3] || name == "tensorrt/key/cache";
        assert_eq!(bytes, if is_added { b"cache".to_vec() } else { content(name) }, "{name}");
        assert!(is_added || inode(&first, name) == inode(&other, name), "{name}");
    }
    assert_eq!(extended.files().count(), FILES.len() + 1);
    let outside = BTreeMap::from([("../cache".to_owned(), cache)]);
    assert!(matches!(extend(&engine, &outside, &folder.path().join("third")), Err(Error::Manifest { .. })));
    assert!(!folder.path().join("third").exists());
}

#[test]
fn every_file_is_checked() {
    for name in FILES {
        let folder = tempfile::tempdir().unwrap();
        let directory = write(folder.path(), &manifest("x2"));
        let path = directory.join(name);
        let refused = |expected: &str| {
            let found = refusal(&directory);
            assert!(found.contains(name) && found.contains(expected), "{found}");
        };
        let mut bytes = content(name);
        bytes[17] ^= 1;
        fs::write(&path, &bytes).unwrap();
        refused(&format!("expected SHA-256 {}, found {}", sha256(&content(name)), sha256(&bytes)));
        fs::write(&path, "short").unwrap();
        refused("found 5");
        fs::remove_file(&path).unwrap();
        refused("missing");
        fs::create_dir(&path).unwrap();
        refused("folder");
    }
}

#[test]
fn additional_files_are_found_in_subfolders_too() {
    let folder = tempfile::tempdir().unwrap();
    let directory = write(folder.path(), &manifest("x2"));
    let engine = Engine::open(&directory).unwrap();
    fs::write(directory.join("manifest.sig"), "a signature is no additional file").unwrap();
    engine.check_nothing_unlisted().unwrap();
    fs::create_dir_all(directory.join("tensorrt/key")).unwrap();
    engine.check_nothing_unlisted().unwrap();
    fs::write(directory.join("tensorrt/key/plan"), "x").unwrap();
    let error = text(engine.check_nothing_unlisted().unwrap_err());
    assert!(error.contains("tensorrt/key/plan: expected only files that the manifest lists"), "{error}");
}

#[test]
fn a_comparison_names_every_key_that_differs() {
    let folder = tempfile::tempdir().unwrap();
    let first = write(folder.path(), &manifest("first"));
    assert_eq!(diff::diff(&first, &first).unwrap(), []);

    let mut changed = manifest("second");
    changed["graphs"][1]["inputs"]["input"] = json!([2, 3, 16, 32]);
    changed["graphs"][1]["outputs"]["output"] = json!([2, 3, 32, 64]);
    changed["target"]["tensorrt"] = json!({ "trt_sparsity_enable": "1" });
    changed["model"]["licence"] = json!("MIT");
    let second = write(folder.path(), &changed);
    let differences = diff::diff(&first, &second).unwrap();
    let found: Vec<_> = differences.iter().map(|found| (found.key.as_str(), &found.first, &found.second)).collect();
    let some = |value: Value| Some(value);
    let expected = [
        ("graphs.1.inputs.input", some(json!([1, 3, 16, 32])), some(json!([2, 3, 16, 32]))),
        ("graphs.1.outputs.output", some(json!([1, 3, 32, 64])), some(json!([2, 3, 32, 64]))),
        ("model.licence", some(Value::Null), some(json!("MIT"))),
        ("name", some(json!("first")), some(json!("second"))),
        ("target.tensorrt.trt_sparsity_enable", None, some(json!("1"))),
    ];
    assert_eq!(found, expected.each_ref().map(|(key, first, second)| (*key, first, second)));

    // An empty list counts as a value.
    let mut gated = manifest("first");
    gated["gates"] = json!([{ "name": "finite", "graph": FILES[0], "value": 1.0, "floor": 1.0 }]);
    let gated = write(&folder.path().join("gated"), &gated);
    let keys: Vec<_> = diff::diff(&first, &gated).unwrap().into_iter().map(|found| (found.key, found.first)).collect();
    let of = |key: &str, first: Option<Value>| (key.to_owned(), first);
    let added = ["floor", "graph", "name", "value"].map(|name| of(&format!("gates.0.{name}"), None));
    let expected: Vec<_> = [of("gates", some(json!([])))].into_iter().chain(added).collect();
    assert_eq!(keys, expected);

    fs::write(second.join(WEIGHTS_FILE), "altered").unwrap();
    assert!(matches!(diff::diff(&first, &second), Err(Error::Altered { .. })));
    assert!(matches!(diff::diff(&second, &first), Err(Error::Altered { .. })));
}

#[test]
fn equal_files_of_engines_are_stored_once() {
    let folder = tempfile::tempdir().unwrap();
    let deep = folder.path().join("rtx4090");
    let first = write(&deep, &manifest("first"));
    let second = write(&deep, &manifest("second"));
    let everything: u64 = FILES.iter().map(|name| content(name).len() as u64).sum();
    assert_eq!(share_files(&second, folder.path()).unwrap(), everything);
    FILES.iter().for_each(|name| assert_eq!(inode(&first, name), inode(&second, name)));
    assert_ne!(inode(&first, MANIFEST_FILE), inode(&second, MANIFEST_FILE));
    // They are shared already.
    assert_eq!(share_files(&second, folder.path()).unwrap(), 0);
    Engine::open(&second).unwrap();
    let names = |folder: &Path| {
        let mut names: Vec<_> =
            folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&deep), ["first", "second"]);

    // Engines are searched for two folders deep, not deeper.
    let third = write(&folder.path().join("x/y/z"), &manifest("third"));
    assert_eq!(share_files(&third, &folder.path().join("rtx4090")).unwrap(), everything);
    let fourth = write(folder.path(), &manifest("fourth"));
    assert_eq!(share_files(&fourth, &folder.path().join("x")).unwrap(), 0);
    assert_eq!(share_files(&fourth, &folder.path().join("x/y")).unwrap(), everything);
    assert!(matches!(share_files(&folder.path().join("none"), folder.path()), Err(Error::NotAnEngine { .. })));
}

#[test]
fn a_file_is_shared_only_with_one_that_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let saved = |change: &dyn Fn(&Path)| {
        let folder = tempfile::tempdir_in(folder.path()).unwrap();
        let other = write(folder.path(), &manifest("a"));
        let own = write(folder.path(), &manifest("b"));
        change(&other);
        let saved = share_files(&own, folder.path()).unwrap();
        Engine::open(&own).unwrap();
        saved
    };
    let everything: u64 = FILES.iter().map(|name| content(name).len() as u64).sum();
    let weights = content(WEIGHTS_FILE).len() as u64;
    assert_eq!(saved(&|_| ()), everything);
    // Damage does not spread, and permissions are not changed.
    assert_eq!(saved(&|other| fs::write(other.join(WEIGHTS_FILE), vec![0; 1013]).unwrap()), everything - weights);
    let mode = Permissions::from_mode(0o640);
    assert_eq!(
        saved(&|other| fs::set_permissions(other.join(WEIGHTS_FILE), mode.clone()).unwrap()),
        everything - weights
    );
    let link = |other: &Path| {
        fs::rename(other.join(WEIGHTS_FILE), other.with_file_name("elsewhere")).unwrap();
        symlink("../elsewhere", other.join(WEIGHTS_FILE)).unwrap();
    };
    assert_eq!(saved(&link), everything - weights);
    // An unfinished engine is not looked at.
    let unfinished = |other: &Path| fs::rename(other, other.with_file_name(".tileforge-0123456789aB.partial")).unwrap();
    assert_eq!(saved(&unfinished), 0);
}

/// Needs a user who may change the owner of files.
#[test]
fn a_file_that_another_user_can_change_is_not_shared() {
    let folder = tempfile::tempdir().unwrap();
    let (other, own) = (write(folder.path(), &manifest("a")), write(folder.path(), &manifest("b")));
    let saved = || share_files(&own, folder.path()).unwrap();
    let weights = content(WEIGHTS_FILE).len() as u64;
    let everything: u64 = FILES.iter().map(|name| content(name).len() as u64).sum();
    let give = |owner| {
        std::os::unix::fs::chown(other.join(WEIGHTS_FILE), Some(owner), None)
            .unwrap_or_else(|error| panic!("{error}; run the tests as root, or with `unshare --map-auto -r`"))
    };
    give(12_345);
    assert_eq!(saved(), everything - weights);
    assert_ne!(inode(&other, WEIGHTS_FILE), inode(&own, WEIGHTS_FILE));
    assert_eq!(fs::metadata(own.join(WEIGHTS_FILE)).unwrap().nlink(), 1);
    // The user's own file that everybody may write: both files are.
    give(fs::metadata(&own).unwrap().uid());
    for engine in [&other, &own] {
        fs::set_permissions(engine.join(WEIGHTS_FILE), Permissions::from_mode(0o666)).unwrap();
    }
    assert_eq!(saved(), 0);
    for engine in [&other, &own] {
        fs::set_permissions(engine.join(WEIGHTS_FILE), Permissions::from_mode(0o644)).unwrap();
    }
    assert_eq!(saved(), weights);
}

#[test]
fn compiled_graphs_that_an_engine_ships_are_found_by_their_facts() {
    let folder = tempfile::tempdir().unwrap();
    let facts = TensorRtFacts {
        graph_sha256: sha256(&content(FILES[0])),
        weights_sha256: vec![sha256(&content(WEIGHTS_FILE))],
        gpu: "GPU".into(),
        compute_capability: "9.0".into(),
        tensorrt: "10.14.1".into(),
        driver_cuda: "13.0".into(),
        onnxruntime: "1.31.1".into(),
        options: Default::default(),
    };
    let store = Store::at(folder.path().join("store"));
    let context = store
        .get_or_make(&facts, |folder| {
            fs::write(folder.join(store::CONTEXT), "context").unwrap();
            fs::write(folder.join("plan"), "ftrt plan").map_err(|error| Error::file(folder, "write", error))
        })
        .unwrap();
    let ship = |name: &str, leave_out: Option<&str>| {
        let mut manifest = manifest(name);
        let place = folder.path().join(name).join(store::FOLDER).join(facts.key());
        fs::create_dir_all(&place).unwrap();
        for file in [store::CONTEXT, store::RECORD, "plan"].into_iter().filter(|file| Some(*file) != leave_out) {
            let bytes = fs::read(context.with_file_name(file)).unwrap();
            fs::write(place.join(file), &bytes).unwrap();
            let digest = FileDigest { bytes: bytes.len() as u64, sha256: sha256(&bytes) };
            manifest["files"][format!("{}/{}/{file}", store::FOLDER, facts.key())] = json!(digest);
        }
        Engine::open(&write(folder.path(), &manifest)).unwrap()
    };
    let whole = ship("whole", None);
    let name = |file: &str| format!("tensorrt/{}/{file}", facts.key());
    assert_eq!(store::shipped(&whole, &facts), Some(vec![name(store::CONTEXT), name("plan")]));
    assert_eq!(store::shipped(&whole, &TensorRtFacts { gpu: "another".into(), ..facts.clone() }), None);
    assert_eq!(store::shipped_facts(&whole), std::slice::from_ref(&facts));
    for missing in [store::CONTEXT, store::RECORD, "plan"] {
        let engine = ship(&format!("without-{missing}"), Some(missing));
        assert_eq!(store::shipped_facts(&engine).len(), usize::from(missing != store::RECORD));
        assert_eq!(store::shipped(&engine, &facts), None, "{missing}");
    }
}
