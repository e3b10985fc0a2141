//! Programs that are stopped by Ctrl-C or a signal leave nothing unfinished.

use end_to_end::{LocalRegistry, Outcome, command, copy_folder, demo_engine, names_in, repository, run, words};
use serde_json::json;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tileforge_engine::digest::sha256_file;
use tileforge_exporter::arch::registry;
use tileforge_exporter::synthesise;
use tileforge_graph::DataType;

/// The size of a file that takes a while to write.
const LARGE: u64 = 256 << 20;

fn quiet(command: &mut Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn send(child: &Child, signal: &str) {
    assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
}

/// Waits until the condition holds; `false` if the process ended before.
fn wait_until(child: &mut Child, wanted: impl Fn() -> bool) -> bool {
    while !wanted() {
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

fn has_unfinished(folder: &Path) -> bool {
    names_in(folder).iter().any(|name| name.starts_with(".tileforge-"))
}

/// Stops a program while it has something unfinished in `folder`, with every signal. The folder must then be as
/// before.
fn leaves_nothing(folder: &Path, line: &[&dyn AsRef<OsStr>], program: &str) {
    let before = names_in(folder);
    for signal in ["-INT", "-TERM", "-HUP"] {
        let stopped = (0..ATTEMPTS).find_map(|_| {
            let mut child = quiet(&mut command(program, words(line)));
            let is_unfinished = wait_until(&mut child, || has_unfinished(folder));
            if is_unfinished {
                send(&child, signal);
            }
            let status = child.wait().unwrap();
            if status.success() {
                // If the signal came too late, the output is complete.
                names_in(folder)
                    .iter()
                    .filter(|name| !before.contains(name))
                    .for_each(|name| remove(&folder.join(name)));
                return None;
            }
            Some(status.code())
        });
        assert_eq!((stopped, names_in(folder)), (Some(Some(130)), before.clone()), "{program} {signal}");
    }
}

fn remove(path: &Path) {
    if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
}

/// On a busy machine, a program may end before the test sees its unfinished files, or before the signal arrives.
const ATTEMPTS: usize = 20;

/// An engine of several parts with a large file.
fn large_engine(work: &Path) -> PathBuf {
    let engine = work.join("large");
    copy_folder(demo_engine(), &engine.join("upscaler"));
    let manifest = engine.join("upscaler/manifest.json");
    let text = fs::read_to_string(&manifest).unwrap();
    let mut part: serde_json::Value = serde_json::from_str(&text).unwrap();
    part["name"] = json!("upscaler");
    fs::write(&manifest, part.to_string()).unwrap();
    fs::create_dir(engine.join("tokenizer")).unwrap();
    let vocabulary = engine.join("tokenizer/vocab.json");
    File::create(&vocabulary).unwrap().set_len(LARGE).unwrap();
    let whole = json!({
        "schema": 2, "name": "large", "producer": "a test",
        "parts": { "upscaler": sha256_file(&manifest).unwrap() },
        "files": { "tokenizer/vocab.json": sha256_file(&vocabulary).unwrap() },
    });
    fs::write(engine.join("manifest.json"), whole.to_string()).unwrap();
    engine
}

#[test]
fn a_build_that_is_stopped_leaves_nothing() {
    let work = tempfile::tempdir().unwrap();
    let (model, profile) = (repository("models/compact-x4.safetensors"), repository("profiles/cpu.yaml"));
    let engine = work.path().join("engine");
    leaves_nothing(work.path(), &[&"build", &model, &"--profile", &profile, &"-o", &engine], "engine-builder");
    // The same if an older engine is replaced.
    copy_folder(demo_engine(), &engine);
    leaves_nothing(work.path(), &[&"build", &model, &"--profile", &profile, &"-o", &engine], "engine-builder");
    let _ = run("runtime", words(&[&"verify", &"--engine", &engine])).success();
}

#[test]
fn an_archive_that_is_stopped_leaves_nothing() {
    let (work, engines) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let engine = large_engine(engines.path());
    leaves_nothing(work.path(), &[&"pack", &engine, &"-o", &work.path().join("engine.tar")], "engine-builder");
    let archive = engines.path().join("engine.tar");
    let _ = run("engine-builder", words(&[&"pack", &engine, &"-o", &archive])).success();
    leaves_nothing(work.path(), &[&"unpack", &archive, &"-o", &work.path().join("engine")], "runtime");
}

#[test]
fn an_export_that_is_stopped_leaves_nothing() {
    let (work, models) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let checkpoint = models.path().join("large.safetensors");
    let entry = registry().iter().find(|entry| entry.name == "RRDBNet").unwrap();
    let (_, network) = entry.presets().pop().unwrap();
    synthesise(network.as_ref(), DataType::F32, 1, &checkpoint).unwrap();
    let graph = work.path().join("graph.onnx");
    leaves_nothing(work.path(), &[&"export", &checkpoint, &"-o", &graph, &"--weights", &"copy"], "exporter");
}

/// Bytes of the files in a folder; 0 if it is not there.
fn bytes_in(folder: &Path) -> u64 {
    let files = folder.read_dir().into_iter().flatten().flatten();
    files.filter_map(|file| file.metadata().ok()).map(|metadata| metadata.len()).sum()
}

#[test]
fn a_pull_that_is_stopped_goes_on() {
    let work = tempfile::tempdir().unwrap();
    let engine = large_engine(work.path());
    let registry = LocalRegistry::start(false);
    let reference = registry.reference("large");
    let _ = run("engine-builder", words(&[&"push", &engine, &reference])).success();
    let (output, part) = (work.path().join("pulled"), work.path().join("pulled.part"));
    for signal in ["-INT", "-TERM"] {
        // The second run resumes with the data that the first run kept.
        let kept = bytes_in(&part);
        let mut child = quiet(&mut command("runtime", words(&[&"pull", &reference, &"-o", &output])));
        assert!(wait_until(&mut child, || bytes_in(&part) > kept));
        send(&child, signal);
        assert_eq!(child.wait().unwrap().code(), Some(130), "{signal}");
        assert_eq!(names_in(work.path()), ["large", "pulled.part"]);
    }
    let _ = run("runtime", words(&[&"pull", &reference, &"-o", &output])).success();
    assert_eq!(names_in(work.path()), ["large", "pulled"]);
}

#[test]
fn signals_that_a_program_was_started_to_ignore_end_nothing() {
    let work = tempfile::tempdir().unwrap();
    let (model, profile) = (repository("models/compact-x4.safetensors"), repository("profiles/cpu.yaml"));
    let engine = work.path().join("engine");
    let build = command("engine-builder", words(&[&"build", &model, &"--profile", &profile, &"-o", &engine]));
    // Like a program that `nohup` or a shell's `&` starts.
    let mut ignoring = Command::new("sh");
    ignoring.args(["-c", "trap '' INT HUP; exec \"$@\"", "sh"]).arg(build.get_program()).args(build.get_args());
    ignoring.envs(build.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut child = quiet(&mut ignoring);
    assert!(wait_until(&mut child, || has_unfinished(work.path())));
    send(&child, "-HUP");
    send(&child, "-INT");
    assert_eq!((child.wait().unwrap().code(), names_in(work.path())), (Some(0), vec!["engine".to_owned()]));
}

#[test]
fn a_key_that_is_not_whole_is_none() {
    let work = tempfile::tempdir().unwrap();
    // The second file cannot be renamed to its final name.
    symlink("nothing", work.path().join("ours.pub")).unwrap();
    let keygen = |name: &Path| command("engine-builder", words(&[&"keygen", &"-o", &name]));
    let _ = Outcome::of(&mut keygen(&work.path().join("ours"))).failure(1, &["ours.pub"]);
    assert_eq!(names_in(work.path()), ["ours.pub"]);

    // Files may have only this many bytes, as on a disk that becomes full: the private key has 119.
    let limited = keygen(&work.path().join("limited"));
    let mut shell = Command::new("prlimit");
    shell.arg("--fsize=115").arg(limited.get_program()).args(limited.get_args());
    let _ = Outcome::of(&mut shell).failure(1, &["limited.key", "cannot write"]);
    assert_eq!(names_in(work.path()), ["ours.pub"]);

    // A disk with room for one of the two files.
    let disk = work.path().join("disk");
    fs::create_dir(&disk).unwrap();
    let full = keygen(&disk.join("full"));
    let script = "mount -t tmpfs -o size=4k disk \"$0\" || exit 9; \"$@\"; code=$?; ls -A \"$0\"; exit $code";
    let mut shell = Command::new("unshare");
    shell.args(["--mount", "--map-root-user", "sh", "-c", script]).arg(&disk).arg(full.get_program());
    let full = Outcome::of(shell.args(full.get_args())).failure(1, &["full.pub", "No space left on device"]);
    assert_eq!(full.stdout, "");
}
