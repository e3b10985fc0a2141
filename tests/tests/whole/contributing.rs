//! Follows CONTRIBUTING.md and the Makefile exactly.

use end_to_end::{binaries, copy_folder, repository};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// The output of a command that must succeed.
fn success(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}\n{}\n{}", text(&output.stdout), text(&output.stderr));
    output
}

/// The Rust code blocks in a section of a document, without the indentation of lists.
fn rust_blocks(section: &str) -> Vec<&str> {
    let blocks = section.split("```rust\n").skip(1);
    blocks.map(|rest| rest.split_once("```").unwrap().0).collect()
}

/// Packages of the copy that are compiled for the test.
const COMPILED: [&str; 4] = ["contract", "exporter", "files", "graph"];

/// A copy of the workspace. It has all packages, so that Cargo chooses the same features of the dependencies and
/// reuses the compiled ones.
fn copy_of_workspace(folder: &Path) {
    let root = repository("").canonicalize().unwrap();
    for part in
        ["crates", "engine-builder", "exporter", "python", "runtime", "server", "xtask", "tests/src", "tests/tests"]
    {
        copy_folder(&root.join(part), &folder.join(part));
    }
    for file in ["Cargo.lock", "Cargo.toml", "tests/Cargo.toml"] {
        fs::copy(root.join(file), folder.join(file)).unwrap();
    }
}

fn insert(path: &Path, before: &str, text: &str) {
    let content = fs::read_to_string(path).unwrap();
    let place = content.find(before).unwrap_or_else(|| panic!("{}: expected `{before}`", path.display()));
    fs::write(path, [&content[..place], text, &content[place..]].concat()).unwrap();
}

/// The recipe for a new architecture, followed exactly in a copy: it compiles without a warning, and the checkpoint of
/// each small preset is detected as that architecture.
#[test]
fn an_architecture_is_added_as_contributing_says() {
    let document = fs::read_to_string(repository("CONTRIBUTING.md")).unwrap();
    let (_, section) = document.split_once("## Adding an architecture\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let [file, module, line] = rust_blocks(section).try_into().unwrap();
    // Always the same folder, so that Cargo keeps only one build of the copy.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("contributing");
    let _ = fs::remove_dir_all(&folder);
    copy_of_workspace(&folder);
    let architectures = folder.join("exporter/src/arch");
    fs::write(architectures.join("espcn.rs"), file).unwrap();
    insert(&architectures.join("mod.rs"), "mod hat;\n", module);
    let registry = architectures.join("registry.rs");
    let end = fs::read_to_string(&registry).unwrap();
    let (_, entries) = end.split_once("static REGISTRY: &[Entry] = &[\n").unwrap();
    let last = entries.split_once("];").unwrap().0.lines().last().unwrap().to_owned();
    insert(&registry, &last, line);
    let test = "a_synthesised_checkpoint_is_detected_as_what_it_is";
    // The compiled programs run only briefly, so they need no optimisation.
    let unoptimised = |name| ["--config".into(), format!("profile.release.package.tileforge-{name}.opt-level=0")];
    let output = success(
        Command::new(env!("CARGO"))
            .args(["test", "--release", "--offline", "--workspace", "--test", "every_architecture"])
            .args(COMPILED.map(unoptimised).concat())
            .args(if cfg!(feature = "rtx") { &["--features", "rtx"][..] } else { &[] })
            .args(["--", "--exact", test])
            .current_dir(&folder)
            .env("CARGO_TARGET_DIR", binaries().parent().unwrap())
            .env("RUSTFLAGS", std::env::var("RUSTFLAGS").unwrap_or_default()),
    );
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("1 passed"), "{said}");
    let warnings = String::from_utf8(output.stderr).unwrap();
    assert!(!warnings.contains("warning"), "{warnings}");
}

/// The output of make, with another target folder or with Cargo's own.
fn said_by(make: &mut Command, target: Option<&Path>) -> String {
    // The variables of the make that runs this test are removed.
    for name in ["MAKEFLAGS", "CARGO_TARGET_DIR", "ORT_DYLIB_PATH"] {
        let _ = make.env_remove(name);
    }
    if let Some(target) = target {
        let _ = make.env("CARGO_TARGET_DIR", target);
    }
    String::from_utf8(success(make).stdout).unwrap()
}

/// If Cargo has another target folder, make finds the programs there.
#[test]
fn make_finds_the_programs_in_another_target_folder() {
    let folder = tempfile::tempdir().unwrap();
    for (target, expected) in [
        (Some(folder.path()), format!("{}/release/exporter export", folder.path().display())),
        (None, "target/release/exporter export".to_owned()),
    ] {
        let mut make = Command::new("make");
        let _ = make.args(["--dry-run", "--no-print-directory", "demo"]).current_dir(repository(""));
        let said = said_by(&mut make, target);
        assert!(said.lines().any(|line| line.starts_with(&expected)), "expected `{expected}` in:\n{said}");
    }
    // Programs outside of the repository get the path of its ONNX Runtime.
    for (target, expected) in [(Some(folder.path()), "/.onnxruntime/lib/libonnxruntime.so\n"), (None, "\n")] {
        let mut make = Command::new("make");
        let show = ["--no-print-directory", "--eval=show: ; @echo $$ORT_DYLIB_PATH", "show"];
        let said = said_by(make.args(show).current_dir(repository("")), target);
        assert!(said.ends_with(expected) && (target.is_some() || said == expected), "{said}");
    }
}
