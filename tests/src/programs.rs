//! Runs the three programs as a user does.

use crate::{names_in, repository};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Once, OnceLock};

/// The outcome of a command.
#[derive(Debug)]
pub struct Outcome {
    /// The exit code; −1 if a signal ended it.
    pub code: i32,
    /// Standard output: results.
    pub stdout: String,
    /// Standard error: messages.
    pub stderr: String,
}

impl Outcome {
    /// Runs a command of [`command`].
    pub fn of(command: &mut Command) -> Self {
        let output = command.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Outcome { code: output.status.code().unwrap_or(-1), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// The outcome of a command that must succeed.
    #[must_use]
    pub fn success(self) -> Self {
        assert_eq!(self.code, 0, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }

    /// The outcome of a command that must fail with this exit code and an error that contains all of `words`.
    #[must_use]
    pub fn failure(self, code: i32, words: &[&str]) -> Self {
        assert_eq!(self.code, code, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        for word in words {
            assert!(self.stderr.contains(word), "expected `{word}` in: {}", self.stderr);
        }
        self
    }

    /// The one JSON object on standard output.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {}", self.stdout))
    }
}

/// The folder of the programs in the build profile of the tests: target/PROFILE.
pub fn binaries() -> PathBuf {
    // target/PROFILE/deps/test-HASH
    let folder = std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().to_owned();
    assert!(
        folder.join("runtime").exists(),
        "the binaries are not in {}; run `make test`, which builds them first",
        folder.display()
    );
    folder
}

/// A command's arguments from paths and texts: `words(&[&"inspect", &path])`.
pub fn words(words: &[&dyn AsRef<OsStr>]) -> Vec<OsString> {
    words.iter().map(|word| (**word).as_ref().to_owned()).collect()
}

/// Programs that a shell starts in the background ignore Ctrl-C, and child processes inherit this. A signal with a
/// handler in this process is not ignored by its children, so tests can stop them however the tests were started.
fn install_signal_handlers() {
    static HEARD: Once = Once::new();
    HEARD.call_once(|| ctrlc::set_handler(|| std::process::exit(130)).unwrap());
}

/// A program of the product with its arguments, an empty cache and no GPU.
pub fn command<A: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = A>) -> Command {
    static CACHE: OnceLock<tempfile::TempDir> = OnceLock::new();
    let cache = CACHE.get_or_init(|| tempfile::tempdir().unwrap());
    install_signal_handlers();
    let mut command = Command::new(binaries().join(program));
    // Tests depend neither on the user's cache nor on this machine's GPU.
    command.args(arguments).env("XDG_CACHE_HOME", cache.path()).env("CUDA_VISIBLE_DEVICES", "");
    command
}

/// The same command on a simulated machine with this many cores, for programs that have no `--threads`.
pub fn on_cores(cores: usize, command: &Command) -> Command {
    let mut pretended = Command::new(repository("scripts/with_cores.sh"));
    pretended.arg(cores.to_string()).arg(command.get_program()).args(command.get_args());
    command.get_envs().for_each(|(name, value)| {
        value.map(|value| pretended.env(name, value));
    });
    if let Some(folder) = command.get_current_dir() {
        pretended.current_dir(folder);
    }
    pretended
}

/// Runs a program of the product.
pub fn run<A: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = A>) -> Outcome {
    Outcome::of(&mut command(program, arguments))
}

/// Runs it with its own cache in `work`.
pub fn run_with_cache_in<A: AsRef<OsStr>>(
    work: &Path,
    program: &str,
    arguments: impl IntoIterator<Item = A>,
) -> Outcome {
    Outcome::of(command(program, arguments).env("XDG_CACHE_HOME", work.join("cache")))
}

/// Builds `work/engine`, calibrated with few tiles.
pub fn build_engine(work: &Path, model: &Path, profile: &Path, more: &[&str]) -> Outcome {
    let arguments =
        words(&[&"build", &model, &"--profile", &profile, &"-o", &work.join("engine"), &"--calibration-tiles", &"4"]);
    run_with_cache_in(work, "engine-builder", arguments.into_iter().chain(more.iter().map(OsString::from)))
}

/// The manifest of `work/engine`.
pub fn manifest_in(work: &Path) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(work.join("engine/manifest.json")).unwrap()).unwrap()
}

/// Changes the manifest of an engine, and nothing else of it.
pub fn edit_manifest(engine: &Path, change: impl FnOnce(&mut serde_json::Value)) {
    let path = engine.join("manifest.json");
    let mut manifest: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    change(&mut manifest);
    std::fs::write(path, serde_json::to_string_pretty(&manifest).unwrap() + "\n").unwrap();
}

/// Checks that the self-test of `work/engine` passes.
pub fn assert_verified(work: &Path) {
    let verified = run("runtime", words(&[&"verify", &"--engine", &work.join("engine"), &"--json"])).success().json();
    assert_eq!(verified["passed"], true, "{verified}");
}

/// The engine of a model for a profile, in a temporary folder that is removed when the value is dropped.
pub fn engine_of(model: &Path, profile: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let engine = folder.path().join("engine");
    let profile = repository(profile);
    let arguments = [Path::new("build"), model, Path::new("--profile"), &profile, Path::new("-o"), &engine];
    let _ = run("engine-builder", arguments).success();
    (folder, engine)
}

/// The engine of `models/compact-x4.safetensors` with small tiles, built once for all tests of a file.
pub fn demo_engine() -> &'static Path {
    static ENGINE: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let model = repository("models/compact-x4.safetensors");
    &ENGINE.get_or_init(|| engine_of(&model, "tests/profiles/small-tiles.yaml")).1
}

/// A copy of [`demo_engine`] in `folder`, for a test that changes it.
pub fn copied_engine(folder: &Path) -> PathBuf {
    copy_of(demo_engine(), folder)
}

/// A copy of an engine in `folder/engine`, for a test that changes it.
pub fn copy_of(engine: &Path, folder: &Path) -> PathBuf {
    let copy = folder.join("engine");
    std::fs::create_dir(&copy).unwrap();
    for name in names_in(engine) {
        std::fs::copy(engine.join(&name), copy.join(&name)).unwrap();
    }
    copy
}

/// A new key for signatures in `folder`: its private and its public file.
pub fn new_key(folder: &Path, name: &str) -> [PathBuf; 2] {
    let _ = run("engine-builder", words(&[&"keygen", &"-o", &folder.join(name)])).success();
    ["key", "pub"].map(|extension| folder.join(format!("{name}.{extension}")))
}
