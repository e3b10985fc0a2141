//! Files of other people: names that lead elsewhere, engines that change while they are opened, libraries and profiles
//! that other users have placed in the search path, and text that contains terminal commands.

use end_to_end::{
    Outcome, command, copied_engine, demo_engine, engine_of, environment, names_in, new_key, repository, run, words,
};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use tileforge_engine::Engine;
use tileforge_session::{Cancel, Ladder, Placement, selftest};

fn change(path: &Path, change: impl FnOnce(&mut Value)) {
    let mut value: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    change(&mut value);
    fs::write(path, value.to_string()).unwrap();
}

fn allow(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A checkpoint with this text in its metadata, as key and as value.
fn checkpoint_with_note(path: &Path, note: &str) {
    let bytes = fs::read(repository("models/compact-x4.safetensors")).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let mut header: Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    header["__metadata__"] = json!({ note: note });
    let header = header.to_string();
    let start = (header.len() as u64).to_le_bytes();
    fs::write(path, [&start, header.as_bytes(), &bytes[8 + length..]].concat()).unwrap();
}

#[test]
fn components_of_a_pipeline_are_folders_in_it() {
    let work = tempfile::tempdir().unwrap();
    let (root, secret) = (work.path().join("deep/pipeline"), work.path().join("secret"));
    fs::create_dir_all(&root).unwrap();
    fs::create_dir(&secret).unwrap();
    fs::write(secret.join("key"), "x").unwrap();
    for name in ["../../secret", "/etc/skel", "a/b", "..", "", "scheduler\u{1b}[2J"] {
        let index = json!({ "_class_name": "StableDiffusionPipeline", name: ["diffusers", "EulerDiscreteScheduler"] });
        fs::write(root.join("model_index.json"), index.to_string()).unwrap();
        let refused = run("exporter", words(&[&"export", &root, &"-o", &work.path().join("deep/out")]));
        let refused = refused.failure(1, &["model_index.json", "expected the names of folders beside it"]);
        assert!(!refused.stderr.contains('\u{1b}'), "{refused:?}");
    }
    assert_eq!(names_in(&work.path().join("deep")), ["pipeline"]);
}

#[test]
fn shards_model_files_and_families_have_plain_names() {
    let work = tempfile::tempdir().unwrap();
    let folder = work.path().join("folder");
    fs::create_dir(&folder).unwrap();
    fs::copy(repository("models/compact-x4.safetensors"), work.path().join("compact-x4.safetensors")).unwrap();
    let index = folder.join("model.safetensors.index.json");
    for shard in ["../compact-x4.safetensors", "a/b.safetensors"] {
        fs::write(&index, json!({ "weight_map": { "x": shard } }).to_string()).unwrap();
        let _ = run("exporter", words(&[&"inspect", &index])).failure(1, &["must be beside the index"]);
    }
    let model = folder.join("compact-x4.yaml");
    let text = fs::read_to_string(repository("models/compact-x4.yaml")).unwrap();
    fs::write(&model, text.replace("compact-x4.safetensors", "../compact-x4.safetensors")).unwrap();
    let profile = folder.join("mine.yaml");
    fs::write(&profile, "name: mine\nextends: ../../folder/mine\n").unwrap();
    let build = |model: &Path, profile: &Path| {
        let line = words(&[&"build", &model, &"--profile", &profile, &"-o", &work.path().join("engine")]);
        run("engine-builder", line)
    };
    let _ = build(&model, &repository("tests/profiles/small-tiles.yaml"))
        .failure(1, &["`files`: expected names of files below the model's folder"]);
    let _ = build(&repository("models/compact-x4.yaml"), &profile)
        .failure(1, &["`extends`: expected the name of a family"]);
}

#[test]
fn an_engine_is_what_it_was_when_it_was_checked() {
    let work = tempfile::tempdir().unwrap();
    let path = copied_engine(work.path());
    let engine = Engine::open(&path).unwrap();
    for name in names_in(&path) {
        let other = work.path().join("other");
        fs::write(&other, "another file").unwrap();
        fs::rename(other, path.join(name)).unwrap();
    }
    let graph = engine.graph_named(&engine.manifest().selftest.graph).unwrap();
    let ladder = Ladder::new(&environment(), &engine, Placement::default()).unwrap();
    let mut session = ladder.session(graph, 0, &Cancel::new()).unwrap();
    let report = selftest::verify(&engine, &mut session).unwrap();
    assert!(report.passed, "{report:?}");
    assert!(Engine::open(&path).is_err());
}

#[test]
fn two_engines_that_are_exchanged_are_never_mixed() {
    let work = tempfile::tempdir().unwrap();
    // The same names, and other weights.
    let (_folder, other) =
        engine_of(&repository("tests/golden/compact-x4/checkpoint.safetensors"), "tests/profiles/small-tiles.yaml");
    let current = work.path().join("current");
    symlink(demo_engine(), &current).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let exchange = scope.spawn(|| {
            let next = work.path().join("next");
            while !done.load(Ordering::Relaxed) {
                for engine in [&*other, demo_engine()] {
                    symlink(engine, &next).unwrap();
                    fs::rename(&next, &current).unwrap();
                }
            }
        });
        let outcomes: Vec<Outcome> =
            (0..20).map(|_| run("runtime", words(&[&"verify", &"--engine", &current, &"--json"]))).collect();
        done.store(true, Ordering::Relaxed);
        exchange.join().unwrap();
        for outcome in outcomes {
            assert_eq!(outcome.success().json()["passed"], true);
        }
    });
}

/// Changes the weight location in an engine's graphs to `location`, which has the length of `model.weights`, and
/// corrects the manifest's digests.
fn take_weights_from(engine: &Path, location: &str) {
    assert_eq!(location.len(), "model.weights".len());
    change(&engine.join("manifest.json"), |manifest| {
        let files = manifest["files"].as_object_mut().unwrap();
        files.shift_remove("model.weights");
        for (name, digest) in files {
            let path = engine.join(name);
            let mut bytes = fs::read(&path).unwrap();
            while let Some(position) = bytes.windows(location.len()).position(|part| part == b"model.weights") {
                bytes[position..position + location.len()].copy_from_slice(location.as_bytes());
            }
            fs::write(&path, bytes).unwrap();
            *digest = serde_json::to_value(tileforge_engine::digest::sha256_file(&path).unwrap()).unwrap();
        }
    });
}

#[test]
fn graphs_use_only_weights_that_the_manifest_lists() {
    for location in ["other.weights", "../at.weights"] {
        let work = tempfile::tempdir().unwrap();
        let engine = copied_engine(work.path());
        take_weights_from(&engine, location);
        // The possible targets of the graph's location.
        let elsewhere = work.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        for folder in [&engine, &elsewhere] {
            fs::copy(demo_engine().join("model.weights"), folder.join(location)).unwrap();
        }
        fs::remove_file(engine.join("model.weights")).unwrap();
        let [private, _] = new_key(work.path(), "ours");
        let in_elsewhere = |program: &str, line: &[&dyn AsRef<OsStr>]| {
            Outcome::of(command(program, words(line)).current_dir(&elsewhere))
        };
        let photo = repository("tests/images/coffee.png");
        let large = work.path().join("large.png");
        let infer: [&dyn AsRef<OsStr>; 7] = [&"infer", &"--engine", &engine, &"--input", &photo, &"--output", &large];
        let _ = in_elsewhere("runtime", &infer).failure(1, &[]);
        let _ = in_elsewhere("runtime", &[&"verify", &"--engine", &engine]).failure(1, &[]);
        let _ = in_elsewhere("engine-builder", &[&"sign", &engine, &"--key", &private])
            .failure(1, &[location, "expected only files that the manifest lists"]);
        assert!(!large.exists() && !engine.join("manifest.sig").exists());
    }
}

#[test]
fn a_file_that_the_manifest_does_not_list_is_refused() {
    let work = tempfile::tempdir().unwrap();
    let engine = copied_engine(work.path());
    let [private, public] = new_key(work.path(), "ours");
    let sign = || run("engine-builder", words(&[&"sign", &engine, &"--key", &private]));
    let _ = sign().success();
    fs::write(engine.join("plugin.so"), "x").unwrap();
    let expected = ["plugin.so", "expected only files that the manifest lists"];
    let _ = sign().failure(1, &expected);
    let _ = run("engine-builder", words(&[&"verify", &engine, &"--require-signature", &public])).failure(1, &expected);
    let _ = run("runtime", words(&[&"verify", &"--engine", &engine])).failure(1, &expected);
}

/// A copy of a program in `work/deep/bin`, with none of our files in the folders above it.
fn program_in(work: &Path, program: &str) -> PathBuf {
    let bin = work.join("deep/bin");
    fs::create_dir_all(&bin).unwrap();
    fs::copy(command(program, [""; 0]).get_program(), bin.join(program)).unwrap();
    bin.join(program)
}

#[test]
fn a_library_is_loaded_only_from_where_nobody_else_can_put_one() {
    let work = tempfile::tempdir().unwrap();
    let program = program_in(work.path(), "runtime");
    let doctor =
        || Outcome::of(Command::new(&program).arg("doctor").env_remove("ORT_DYLIB_PATH").current_dir(work.path()));
    // A user who can write in a folder above the program could plant a library there.
    let planted = work.path().join(".onnxruntime/lib");
    fs::create_dir_all(&planted).unwrap();
    fs::write(planted.join("libonnxruntime.so"), "not a library").unwrap();
    let _ = doctor().success();
    // A library beside the program is loaded only if no other user can write it.
    let beside = program.with_file_name("libonnxruntime.so");
    fs::write(&beside, "not a library").unwrap();
    allow(&beside, 0o666);
    let _ = doctor().failure(1, &["bin/libonnxruntime.so", "every user can write to it"]);
    allow(&beside, 0o644);
    let _ = doctor().failure(1, &["bin/libonnxruntime.so", "cannot be loaded"]);
}

#[test]
fn a_profile_in_the_current_folder_is_used_only_by_its_path() {
    let work = tempfile::tempdir().unwrap();
    let profiles = work.path().join("profiles");
    fs::create_dir(&profiles).unwrap();
    fs::write(profiles.join("cpu.yaml"), "name: cpu\nprovider: nonsense\n").unwrap();
    let build = |profile: &str| {
        let line =
            words(&[&"build", &repository("models/compact-x4.safetensors"), &"--profile", &profile, &"-o", &"engine"]);
        Outcome::of(command("engine-builder", line).current_dir(work.path()))
    };
    let _ = build("cpu").success();
    let _ = build("profiles/cpu.yaml").failure(1, &["profiles/cpu.yaml", "nonsense"]);
    let _ = build("../profiles/cpu").failure(1, &["expected the name of a profile"]);
}

#[test]
fn external_data_stays_in_the_folder_of_its_graph() {
    let work = tempfile::tempdir().unwrap();
    let (folder, outside) = (work.path().join("graph"), work.path().join("outside"));
    fs::create_dir(&folder).unwrap();
    let graph = folder.join("g.onnx");
    let checkpoint = repository("models/compact-x4.safetensors");
    let _ = run("exporter", words(&[&"export", &checkpoint, &"-o", &graph, &"--weights", &"copy"])).success();
    fs::rename(folder.join("g.weights"), &outside).unwrap();
    symlink(&outside, folder.join("g.weights")).unwrap();
    let converted = work.path().join("half.onnx");
    let convert = || run("engine-builder", words(&[&"convert", &graph, &"--precision", &"fp16", &"-o", &converted]));
    let lint = || run("engine-builder", words(&[&"lint", &graph, &"--target", &"tensorrt-10"]));
    for outcome in [convert(), lint()] {
        let _ = outcome.failure(1, &["g.weights is a link to", "outside"]);
    }
    assert_eq!(names_in(work.path()), ["graph", "outside"]);
    // A download cache has links to a folder with all files of the graph.
    let links = work.path().join("links");
    fs::create_dir(&links).unwrap();
    fs::remove_file(folder.join("g.weights")).unwrap();
    fs::rename(&outside, folder.join("g.weights")).unwrap();
    for name in ["g.onnx", "g.weights"] {
        symlink(folder.join(name), links.join(name)).unwrap();
    }
    let line = words(&[&"lint", &links.join("g.onnx"), &"--target", &"tensorrt-10"]);
    let _ = run("engine-builder", line).success();
}

#[test]
fn a_terminal_obeys_nothing_that_comes_out_of_a_file() {
    let work = tempfile::tempdir().unwrap();
    let path = work.path().join("a\u{1b}[2Jb.safetensors");
    let note = "\u{1b}]0;title\u{7}\u{9b}2J\u{202e}";
    checkpoint_with_note(&path, note);
    let shown = run("exporter", words(&[&"inspect", &path])).success();
    let json = run("exporter", words(&[&"inspect", &path, &"--json"])).success();
    assert_eq!(json.json()["metadata"][note], note);
    fs::write(&path, "no checkpoint").unwrap();
    let refused = run("exporter", words(&[&"inspect", &path])).failure(1, &["b.safetensors"]);

    let engine = copied_engine(work.path());
    change(&engine.join("manifest.json"), |manifest| manifest["model"]["licence"] = note.into());
    let inspected = run("runtime", words(&[&"inspect", &"--engine", &engine])).success();
    change(&engine.join("manifest.json"), |manifest| manifest["contract"]["inputs"][0]["name"] = note.into());
    let invalid = run("runtime", words(&[&"inspect", &"--engine", &engine])).failure(1, &[]);
    for text in [shown.stdout, json.stdout, refused.stderr, inspected.stdout, invalid.stderr] {
        let obeyed = text.chars().find(|c| (c.is_control() && *c != '\n') || *c == '\u{202e}');
        assert_eq!(obeyed, None, "{text:?}");
    }
}

#[test]
fn keys_belong_to_their_owner_and_openssl_reads_them() {
    let work = tempfile::tempdir().unwrap();
    let engine = copied_engine(work.path());
    let [private, public] = new_key(work.path(), "ours");
    let sign = || run("engine-builder", words(&[&"sign", &engine, &"--key", &private]));
    let verify = || run("engine-builder", words(&[&"verify", &engine, &"--require-signature", &public]));
    // PKCS#8 version 1 without the public key: 48 bytes of DER, whose beginning is always the same (RFC 8410).
    let text = fs::read_to_string(&private).unwrap();
    let body = text.lines().nth(1).unwrap();
    assert!(body.len() == 64 && body.starts_with("MC4CAQAwBQYDK2VwBCIEI"), "{text}");
    for mode in [0o666, 0o644, 0o640] {
        allow(&private, mode);
        let _ = sign().failure(1, &["ours.key", "others may read or write"]);
    }
    allow(&private, 0o600);
    let _ = sign().success();
    let _ = verify().success();
    let openssl = |line: &[&dyn AsRef<OsStr>]| {
        let output = Command::new("openssl").args(line.iter().map(AsRef::as_ref)).output();
        let output = output.unwrap_or_else(|error| panic!("openssl: {error}; install it: apt install openssl"));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    openssl(&[&"pkey", &"-noout", &"-in", &private]);
    let [signature, manifest] = ["manifest.sig", "manifest.json"].map(|name| engine.join(name));
    let verifying: [&dyn AsRef<OsStr>; 5] = [&"pkeyutl", &"-verify", &"-rawin", &"-pubin", &"-inkey"];
    openssl(&[&verifying[..], &[&public, &"-sigfile", &signature, &"-in", &manifest]].concat());
    allow(&public, 0o666);
    let _ = verify().failure(1, &["ours.pub", "everybody may replace"]);
}
