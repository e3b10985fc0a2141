//! `cargo xtask dist`: the test unpacks a release, inspects it, and runs its programs from there.
#![allow(clippy::unwrap_used, clippy::panic)] // a test's way to fail

use flate2::read::GzDecoder;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

const XTASK: &str = env!("CARGO_BIN_EXE_xtask");
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// 2026-01-02, 03:04:05 UTC.
const DATE: u64 = 1_767_323_045;
const PROGRAMS: [&str; 4] = ["engine-builder", "exporter", "runtime", "tileforge-server"];

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

fn output_of(command: &mut Command) -> Output {
    let output = command.output();
    output.unwrap_or_else(|error| panic!("{}: {error}; install it", command.get_program().display()))
}

fn success(command: &mut Command) -> String {
    let output = output_of(command);
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The folder of the tested programs.
fn programs() -> PathBuf {
    let folder = Path::new(XTASK).parent().unwrap();
    assert!(folder.join("runtime").exists(), "runtime is not in {}; run `make test`", folder.display());
    folder.to_owned()
}

fn dist(output: &Path) -> Command {
    let mut dist = Command::new(XTASK);
    dist.arg("dist").arg("--programs").arg(programs()).arg("--onnxruntime").arg(repository(".onnxruntime"));
    dist.arg("--output").arg(output).env("SOURCE_DATE_EPOCH", DATE.to_string());
    dist
}

/// Makes a release, signs it with a new key, and returns its folder.
fn make(folder: &Path) -> PathBuf {
    let (output, key) = (folder.join("dist"), folder.join("release.key"));
    if !key.exists() {
        success(Command::new(programs().join("engine-builder")).arg("keygen").arg("-o").arg(folder.join("release")));
    }
    success(dist(&output).arg("--key").arg(&key));
    output
}

/// A release, made once for all tests.
fn release() -> &'static Path {
    static RELEASE: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    &RELEASE
        .get_or_init(|| {
            let folder = tempfile::tempdir().unwrap();
            let made = make(folder.path());
            (folder, made)
        })
        .1
}

fn target() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

fn debian() -> &'static str {
    if std::env::consts::ARCH == "aarch64" { "arm64" } else { "amd64" }
}

/// The names and contents of the files in a folder.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = folder.read_dir().unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())).collect()
}

/// An entry of a tar archive: its mode, and its content or its link target.
struct Entry {
    mode: u32,
    content: Vec<u8>,
}

/// The entries of a compressed archive, all of which belong to root and have one date.
fn entries(archive: &[u8]) -> Vec<(String, Entry)> {
    let mut archive = tar::Archive::new(GzDecoder::new(archive));
    let read = |entry: std::io::Result<tar::Entry<'_, _>>| {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().to_str().unwrap().to_owned();
        let header = entry.header();
        let owner = (header.uid().unwrap(), header.gid().unwrap(), header.mtime().unwrap());
        assert_eq!(owner, (0, 0, DATE), "{path}");
        let mode = header.mode().unwrap();
        let mut content = Vec::new();
        match entry.link_name().unwrap() {
            Some(place) => content.extend_from_slice(place.to_str().unwrap().as_bytes()),
            None => drop(entry.read_to_end(&mut content).unwrap()),
        }
        (path, Entry { mode, content })
    };
    archive.entries().unwrap().map(read).collect()
}

#[test]
fn two_runs_give_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let key = release().parent().unwrap().join("release.key");
    fs::copy(key, folder.path().join("release.key")).unwrap();
    let (one, two) = (files(release()), files(&make(folder.path())));
    assert_eq!(one.keys().collect::<Vec<_>>(), two.keys().collect::<Vec<_>>());
    for (name, bytes) in &one {
        assert!(two[name] == *bytes, "{name} differs");
    }
    // A release without a key removes an earlier release's signature.
    let output = folder.path().join("dist");
    success(&mut dist(&output));
    assert!(
        !output.join("SHA256SUMS.sig").exists() && fs::read(output.join("SHA256SUMS")).unwrap() == one["SHA256SUMS"]
    );
}

#[test]
fn checksums_are_those_of_all_files_and_openssl_reads_their_signature() {
    let release = release();
    let mut files = files(release);
    let sums = String::from_utf8(files.remove("SHA256SUMS").unwrap()).unwrap();
    assert_eq!(files.remove("SHA256SUMS.sig").unwrap().len(), 64);
    let expected = files.iter().map(|(name, bytes)| {
        let digest: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{digest}  {name}\n")
    });
    assert_eq!(sums, expected.collect::<String>());
    let archive = format!("tileforge-{VERSION}-{}", target());
    let package = format!("tileforge_{VERSION}_{}.deb", debian());
    let names = ["Containerfile", &format!("{archive}.cdx.json"), &format!("{archive}.tar.gz"), &package];
    assert_eq!(files.keys().collect::<Vec<_>>(), names);
    let verify = |file: &str| {
        let mut openssl = Command::new("openssl");
        openssl.args(["pkeyutl", "-verify", "-pubin", "-inkey"]).arg(release.parent().unwrap().join("release.pub"));
        openssl.args(["-rawin", "-sigfile"]).arg(release.join("SHA256SUMS.sig")).arg("-in").arg(release.join(file));
        output_of(&mut openssl).status.success()
    };
    assert_eq!((verify("SHA256SUMS"), verify("Containerfile")), (true, false));
}

#[test]
fn the_archive_has_what_a_user_needs() {
    let root = format!("tileforge-{VERSION}-{}", target());
    let found = entries(&files(release())[&format!("{root}.tar.gz")]);
    let mut names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    assert!(names.iter().all(|name| name.starts_with(&format!("{root}/"))), "{names:?}");
    let listed = names.clone();
    names.sort_by_key(|name| name.trim_end_matches('/'));
    assert_eq!(listed, names);
    let found: BTreeMap<&str, &Entry> =
        found.iter().map(|(name, entry)| (name.strip_prefix(&format!("{root}/")).unwrap(), entry)).collect();
    for (name, entry) in &found {
        let mode = if *name == "lib/tileforge/libonnxruntime.so" {
            0o777
        } else if name.is_empty() || name.ends_with('/') || name.starts_with("bin/") {
            0o755
        } else {
            0o644
        };
        assert_eq!(entry.mode, mode, "{name}");
    }
    let text = |name: &str| String::from_utf8_lossy(&found.get(name).unwrap_or_else(|| panic!("no {name}")).content);
    for program in PROGRAMS {
        assert!(found.contains_key(format!("bin/{program}").as_str()));
        assert!(text(&format!("share/bash-completion/completions/{program}")).contains(program));
        assert!(text(&format!("share/fish/vendor_completions.d/{program}.fish")).contains(program));
        assert!(text(&format!("share/zsh/site-functions/_{program}")).starts_with(&format!("#compdef {program}")));
        // Each command in the help has a page.
        let help = success(Command::new(programs().join(program)).arg("--help"));
        let (_, commands) = help.split_once("Commands:\n").unwrap();
        let commands = commands.split("\n\n").next().unwrap().lines();
        let commands = commands.filter_map(|line| line.strip_prefix("  ")?.split(' ').next().filter(|s| !s.is_empty()));
        for command in commands.filter(|command| *command != "help") {
            let page = text(&format!("share/man/man1/{program}-{command}.1"));
            assert!(page.contains(".SH SYNOPSIS"), "{program} {command}: {page}");
        }
        assert!(text(&format!("share/man/man1/{program}.1")).contains(VERSION));
    }
    assert!(text("lib/tileforge/libonnxruntime.so").starts_with("libonnxruntime.so.1."));
    // The record that `runtime setup` reads, so that it downloads nothing again.
    let record: Value = serde_json::from_str(&text("lib/tileforge/tileforge-setup.json")).unwrap();
    let (wheel, origin) = record["origins"].as_object().unwrap().iter().next().unwrap();
    assert!(wheel.starts_with("onnxruntime-1.") && origin["files"]["libonnxruntime.so"].is_string(), "{record}");
    assert!(found.keys().all(|name| !name.contains("tensorrt_rtx")), "NVIDIA's library is not to be passed on");
    for name in ["LICENSE-MIT", "LICENSE-APACHE", "onnxruntime/LICENSE", "onnxruntime/ThirdPartyNotices.txt"] {
        assert!(!text(&format!("share/doc/tileforge/{name}")).is_empty());
    }
    let licences = text("share/doc/tileforge/THIRD-PARTY-LICENCES.txt");
    for part in ["\nclap 4.", "\nort 2.0.0-rc.15: MIT OR Apache-2.0\n", "\nrust-std 1.", "Permission is hereby granted"]
    {
        assert!(licences.contains(part), "{part}");
    }
    let readme = text("README.md");
    assert!(readme.contains(VERSION) && readme.contains(&target()) && !readme.contains('{'), "{readme}");
    let list: Value = serde_json::from_str(&text("share/doc/tileforge/tileforge.cdx.json")).unwrap();
    assert_eq!(list["metadata"]["timestamp"], "2026-01-02T03:04:05Z");
    let parts = list["components"].as_array().unwrap();
    let part = |name: &str| parts.iter().find(|part| part["name"] == name).unwrap_or_else(|| panic!("no {name}"));
    assert_eq!(part("serde")["hashes"][0]["content"].as_str().unwrap().len(), 64);
    assert_eq!(part("tileforge-runtime")["version"], VERSION);
    assert_eq!(part("onnxruntime")["components"][0]["type"], "file");
    assert!(!parts.iter().any(|part| part["name"] == "proptest" || part["name"] == "xtask"));
    // Everything that a dependency refers to is in the list.
    let product = &list["metadata"]["component"]["bom-ref"];
    let known: Vec<&Value> = parts.iter().map(|part| &part["bom-ref"]).chain([product]).collect();
    for dependency in list["dependencies"].as_array().unwrap() {
        let all = dependency["dependsOn"].as_array().unwrap().iter().chain([&dependency["ref"]]);
        all.for_each(|reference| assert!(known.contains(&reference), "{reference}"));
    }
}

#[test]
fn the_unpacked_programs_find_their_library_profiles_and_models() {
    let work = tempfile::tempdir().unwrap();
    let root = format!("tileforge-{VERSION}-{}", target());
    success(Command::new("tar").arg("-xzf").arg(release().join(format!("{root}.tar.gz"))).arg("-C").arg(work.path()));
    let root = work.path().join(root);
    let run = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(root.join("bin").join(program));
        command.args(arguments).current_dir(work.path()).env_remove("ORT_DYLIB_PATH");
        command.env("XDG_CACHE_HOME", work.path().join("cache")).env("CUDA_VISIBLE_DEVICES", "");
        success(&mut command)
    };
    let doctor: Value = serde_json::from_str(&run("runtime", &["doctor", "--json"])).unwrap();
    let library = Path::new(doctor["onnxruntime"]["path"].as_str().unwrap()).canonicalize().unwrap();
    assert_eq!(library.parent().unwrap(), root.join("lib/tileforge").canonicalize().unwrap());
    assert!(run("engine-builder", &["profiles"]).contains("rtx4090"));
    assert!(run("engine-builder", &["models", "compact-x4"]).contains("here"));
    let model = root.join("share/tileforge/models/compact-x4.yaml");
    let (model, photo) = (model.to_str().unwrap(), root.join("share/tileforge/coffee.png"));
    run("engine-builder", &["build", model, "--profile", "cpu", "-o", "engine"]);
    run("runtime", &["infer", "--engine", "engine", "--input", photo.to_str().unwrap(), "--output", "large.png"]);
    let reader = |path: &Path| {
        let file = std::io::BufReader::new(fs::File::open(path).unwrap());
        let reader = png::Decoder::new(file).read_info().unwrap();
        (reader.info().width, reader.info().height)
    };
    let (width, height) = reader(&photo);
    assert_eq!(reader(&work.path().join("large.png")), (4 * width, 4 * height));
}

#[test]
fn dpkg_reads_the_debian_package() {
    let package = release().join(format!("tileforge_{VERSION}_{}.deb", debian()));
    let field = |name: &str| success(Command::new("dpkg-deb").arg("--field").arg(&package).arg(name)).trim().to_owned();
    let fields = ["Package", "Version", "Architecture", "Section"].map(field);
    assert_eq!(fields, ["tileforge", VERSION, debian(), "graphics"]);
    let depends = field("Depends");
    assert!(depends.starts_with("libc6 (>= 2.") && depends.ends_with("libgcc-s1, libstdc++6"), "{depends}");
    let work = tempfile::tempdir().unwrap();
    success(Command::new("dpkg-deb").arg("--extract").arg(&package).arg(work.path()));
    let place = |path: &str| work.path().join("usr").join(path);
    for file in [
        "share/man/man1/runtime-infer.1.gz",
        "share/zsh/vendor-completions/_runtime",
        "share/doc/tileforge/copyright",
        "share/doc/tileforge/README.md",
        "share/tileforge/profiles/cpu.yaml",
    ] {
        assert!(place(file).is_file(), "{file}");
    }
    assert_eq!(fs::metadata(place("bin/runtime")).unwrap().permissions().mode() & 0o7777, 0o755);
    let doctor = success(Command::new(place("bin/runtime")).arg("doctor").env_remove("ORT_DYLIB_PATH"));
    assert!(doctor.contains("usr/lib/tileforge/libonnxruntime.so"), "{doctor}");
}

/// The container is made of files that are beside it, runs a program of the package, and is not root.
#[test]
fn the_container_file_fits_the_release() {
    let files = files(release());
    let text = String::from_utf8(files["Containerfile"].clone()).unwrap();
    let text = text.replace("\\\n", " ");
    let lines = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(' '));
    let instructions: Vec<(&str, &str)> = lines.collect();
    let known = ["FROM", "ARG", "RUN", "EXPOSE", "USER", "WORKDIR", "ENTRYPOINT", "CMD"];
    assert!(instructions.iter().all(|(name, _)| known.contains(name)), "{instructions:?}");
    let last = |name: &str| instructions.iter().rfind(|(found, _)| *found == name).unwrap().1;
    assert!(!["root", "0"].contains(&last("USER")));
    let entry: Vec<String> = serde_json::from_str(last("ENTRYPOINT")).unwrap();
    assert!(PROGRAMS.contains(&entry[0].as_str()));
    let arguments: Vec<&str> = instructions.iter().filter(|(name, _)| *name == "ARG").map(|(_, word)| *word).collect();
    assert_eq!(arguments, ["VERSION", "TARGETARCH"]);
    let run = last("RUN").replace("${VERSION}", VERSION).replace("${TARGETARCH}", debian());
    let (_, package) = run.split_once("\"/release/").unwrap();
    let package = package.split('"').next().unwrap();
    assert!(files.contains_key(package), "{package}");
    // The shell checks the syntax of its commands.
    let commands = run.split_once("/release").unwrap().1.to_owned();
    success(Command::new("sh").arg("-n").arg("-c").arg(commands));
}

#[test]
fn what_cannot_be_made_is_refused_and_leaves_nothing() {
    let work = tempfile::tempdir().unwrap();
    let output = work.path().join("dist");
    let refused = |command: &mut Command, words: &str| {
        let done = output_of(command);
        let said = String::from_utf8(done.stderr).unwrap();
        assert!(!done.status.success() && said.contains(words), "expected `{words}` in: {said}");
        assert!(!output.exists());
    };
    refused(dist(&output).args(["--target", "riscv64gc-unknown-linux-gnu"]), "expected x86_64-unknown-linux-gnu or");
    let both = ["--target", "x86_64-unknown-linux-gnu", "--target", "aarch64-unknown-linux-gnu"];
    refused(dist(&output).args(both), "are for one --target");
    let windows = ["--target", "x86_64-pc-windows-gnu"];
    refused(
        dist(&output).args(windows).arg("--printed-by").arg(programs()),
        "expected ONNX Runtime for windows on x86_64",
    );
    refused(Command::new(XTASK).arg("dist").args(windows), "expected --programs DIR; `scripts/build_windows.sh");
    refused(dist(&output).env("SOURCE_DATE_EPOCH", "today"), "found SOURCE_DATE_EPOCH=today");
    refused(dist(&output).arg("--key").arg(work.path().join("none.key")), "none.key");
    let mut nothing = Command::new(XTASK);
    nothing.arg("dist").arg("--output").arg(&output).arg("--programs").arg(programs());
    nothing.arg("--onnxruntime").arg(work.path()).env("SOURCE_DATE_EPOCH", "0");
    refused(&mut nothing, "expected what scripts/setup_onnxruntime.py installs");
}
