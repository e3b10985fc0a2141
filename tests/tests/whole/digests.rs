//! Digests of large files: computed once, remembered, and taken from the hub's cache where a later step compares them.

use end_to_end::{Outcome, command, repository, words};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tileforge_exporter::arch::registry;
use tileforge_exporter::synthesise;
use tileforge_graph::DataType;

const COMPUTED: &str = "computing its SHA-256";
const KNOWN: &str = "its SHA-256 is known from before";

/// A program with verbose output, with its cache in `work`.
fn told(program: &str, work: &Path, arguments: &[&dyn AsRef<OsStr>]) -> Outcome {
    let mut command = command(program, words(arguments));
    command.env("XDG_CACHE_HOME", work.join("cache")).env("HF_HUB_CACHE", work.join("none")).arg("-v");
    Outcome::of(&mut command).success()
}

/// The number of lines with this text about files of this name.
fn lines(outcome: &Outcome, name: &str, what: &str) -> usize {
    let about = |line: &&str| line.contains(name) && line.contains(what);
    outcome.stderr.lines().filter(about).count()
}

/// A checkpoint that is large enough for its digest to be remembered, and whose last change is not recent.
fn large(folder: &Path) -> PathBuf {
    let entry = registry().iter().find(|entry| entry.name == "RRDBNet").unwrap();
    let presets = entry.presets();
    let (_, network) = presets.iter().find(|(name, _)| !name.starts_with("tiny")).unwrap();
    let path = folder.join("large.safetensors");
    synthesise(network.as_ref(), DataType::F32, 1, &path).unwrap();
    assert!(fs::metadata(&path).unwrap().len() > 16 << 20);
    age(&path);
    path
}

fn age(path: &Path) {
    let before = SystemTime::now() - Duration::from_secs(100);
    File::options().write(true).open(path).unwrap().set_modified(before).unwrap();
}

#[test]
fn a_checkpoint_is_digested_once_in_a_build() {
    let work = tempfile::tempdir().unwrap();
    let profile = repository("tests/profiles/small-tiles.yaml");
    let at = |name: &str| work.path().join(name);
    fs::copy(repository("models/compact-x4.safetensors"), at("x4.safetensors")).unwrap();
    let model = fs::read_to_string(repository("models/compact-x4.yaml")).unwrap();
    let plain: Vec<&str> =
        model.lines().filter(|line| !line.starts_with("precision") && !line.starts_with("cali")).collect();
    fs::write(at("compact-x4.yaml"), plain.join("\n")).unwrap();
    fs::copy(repository("models/compact-x4.safetensors"), at("compact-x4.safetensors")).unwrap();
    let graph = at("x4.onnx");
    let exported = told("exporter", work.path(), &[&"export", &at("x4.safetensors"), &"-o", &graph]);
    assert_eq!(lines(&exported, "/x4.safetensors", COMPUTED), 1, "{}", exported.stderr);
    for (model, name) in [
        (at("x4.safetensors"), "/x4.safetensors"),
        (at("compact-x4.yaml"), "compact-x4.safetensors"),
        // The checkpoint is beside the graph, so it needs no second name.
        (graph, "/x4.safetensors"),
    ] {
        let line = [&"build" as &dyn AsRef<OsStr>, &model, &"--profile", &profile, &"-o", &at("engine")];
        let built = told("engine-builder", work.path(), &line);
        assert_eq!(lines(&built, name, COMPUTED), 1, "{}: {}", model.display(), built.stderr);
    }
}

#[test]
fn a_digest_is_remembered_until_the_checkpoint_changes() {
    let work = tempfile::tempdir().unwrap();
    let checkpoint = large(work.path());
    let export = |name: &str| {
        let out = work.path().join(name);
        fs::create_dir_all(&out).unwrap();
        told("exporter", work.path(), &[&"export", &checkpoint, &"-o", &out.join("x.onnx")])
    };
    let counts = |outcome: &Outcome| (lines(outcome, "large", COMPUTED), lines(outcome, "large", KNOWN));
    assert_eq!(counts(&export("first")), (1, 0));
    // The export has linked the file, which changed a time of it.
    assert_eq!(counts(&export("second")), (0, 1));
    let verified =
        |name: &str| told("engine-builder", work.path(), &[&"verify", &work.path().join(name).join("x.onnx")]);
    assert_eq!(lines(&verified("first"), "large", KNOWN), 1);
    // One changed bit, with the old modification time.
    let mut bytes = fs::read(&checkpoint).unwrap();
    let time = fs::metadata(&checkpoint).unwrap().modified().unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&checkpoint, bytes).unwrap();
    File::options().write(true).open(&checkpoint).unwrap().set_modified(time).unwrap();
    assert_eq!(counts(&export("third")), (1, 0));
    let mut command = command("engine-builder", words(&[&"verify", &work.path().join("first/x.onnx")]));
    let outcome = Outcome::of(command.env("XDG_CACHE_HOME", work.path().join("cache")));
    let _ = outcome.failure(1, &["exported with another file of this name"]);
}

#[test]
fn the_hub_states_a_digest_that_a_build_compares() {
    let work = tempfile::tempdir().unwrap();
    let hub = work.path().join("models--owner--name");
    let (blobs, snapshot) = (hub.join("blobs"), hub.join("snapshots/1"));
    fs::create_dir_all(&blobs).unwrap();
    fs::create_dir_all(&snapshot).unwrap();
    let source = repository("models/compact-x4.safetensors");
    let sha256 = tileforge_engine::digest::sha256_file(&source).unwrap().sha256;
    let export = |blob: &str, name: &str| {
        fs::copy(&source, blobs.join(blob)).unwrap();
        let link = snapshot.join(format!("{name}.safetensors"));
        symlink(blobs.join(blob), &link).unwrap();
        let out = work.path().join(name);
        fs::create_dir(&out).unwrap();
        let graph = out.join("x.onnx");
        let exported = told("exporter", work.path(), &[&"export", &link, &"-o", &graph]);
        assert_eq!(lines(&exported, "", COMPUTED), 0, "{}", exported.stderr);
        graph
    };
    let verify = |graph: &Path| Outcome::of(&mut command("engine-builder", words(&[&"verify", &graph])));
    let right = export(&sha256, "right");
    assert!(verify(&right).success().stdout.contains("unchanged since the export"));
    // A blob under another name, like a damaged or replaced download.
    let wrong = export(&"0".repeat(64), "wrong");
    let refusal = ["expected SHA-256 000", &format!("found {sha256}")];
    let _ = verify(&wrong).failure(1, &refusal);
    let profile = repository("tests/profiles/small-tiles.yaml");
    let build = words(&[&"build", &wrong, &"--profile", &profile, &"-o", &work.path().join("engine")]);
    let _ = Outcome::of(&mut command("engine-builder", build)).failure(1, &refusal);
}

#[test]
fn quiet_programs_print_results_and_errors_alone() {
    let work = tempfile::tempdir().unwrap();
    let (model, graph) = (repository("models/compact-x4.safetensors"), work.path().join("x4.onnx"));
    let profile = repository("tests/profiles/small-tiles.yaml");
    let (engine, picture) = (work.path().join("engine"), repository("tests/images/coffee.png"));
    for (program, arguments, result) in [
        ("exporter", words(&[&"export", &model, &"-o", &graph]), "x4.onnx\n"),
        ("engine-builder", words(&[&"build", &graph, &"--profile", &profile, &"-o", &engine]), "engine\n"),
        ("runtime", words(&[&"inspect", &"--engine", &engine]), ""),
        ("engine-builder", words(&[&"profiles", &"--here"]), ""),
    ] {
        let silent = Outcome::of(command(program, &arguments).arg("--quiet")).success();
        assert!(silent.stderr.is_empty(), "{program}: {}", silent.stderr);
        assert!(silent.stdout.ends_with(result) && !silent.stdout.is_empty(), "{program}: {}", silent.stdout);
        // The same flag in front of the command.
        let before = std::iter::once("-q".into()).chain(arguments.iter().cloned());
        assert!(Outcome::of(&mut command(program, before)).success().stderr.is_empty(), "{program}");
    }
    let _ = Outcome::of(command("exporter", words(&[&"inspect", &picture])).arg("-q")).failure(1, &["a PNG picture"]);
    for program in ["exporter", "engine-builder", "runtime"] {
        let _ = Outcome::of(&mut command(program, ["-q", "-v", "completions", "bash"]))
            .failure(2, &["cannot be used with"]);
    }
}
