//! `runtime setup`: libraries from a folder and from wheels. Only the pinned ones are accepted.

use end_to_end::{Outcome, command, names_in, repository, run, words};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

const RECORD: &str = "tileforge-setup.json";
const LOCK: &str = ".tileforge-setup.lock";

/// A folder with ONNX Runtime alone, under the names that a build of it has.
fn libraries(work: &Path) -> PathBuf {
    let (from, folder) = (repository(".onnxruntime/lib"), work.join("libraries"));
    fs::create_dir(&folder).unwrap();
    let numbered = |name: &String| name.starts_with("libonnxruntime.so.");
    let main = names_in(&from).into_iter().find(numbered).unwrap();
    for name in [&main, "libonnxruntime_providers_shared.so"] {
        fs::copy(from.join(name), folder.join(name)).unwrap();
    }
    symlink(&main, folder.join("libonnxruntime.so")).unwrap();
    fs::write(folder.join("notes.txt"), "not a library").unwrap();
    folder
}

fn setup(from: &Path, destination: &Path) -> Command {
    let mut command = command("runtime", words(&[&"setup", &"--from", &from, &"--destination", &destination]));
    // If this variable names a library, the output ends with a remark about it.
    command.env_remove("ORT_DYLIB_PATH");
    command
}

fn doctor(libraries: &Path) -> Outcome {
    run("runtime", words(&[&"doctor", &"--ort-lib", &libraries]))
}

#[test]
fn libraries_of_a_folder_are_installed_and_found() {
    let work = tempfile::tempdir().unwrap();
    let (from, there) = (libraries(work.path()), work.path().join("a place/with Größe"));
    fs::create_dir_all(&there).unwrap();
    fs::write(there.join("theirs.txt"), "theirs").unwrap();
    let said = Outcome::of(&mut setup(&from, &there)).success();
    assert!(said.stdout.contains("is now in") && said.stdout.contains("not usable: "), "{}", said.stdout);
    assert!(said.stderr.contains("set ORT_DYLIB_PATH="), "{}", said.stderr);
    let names = names_in(&there);
    assert!(names.iter().all(|name| !name.ends_with(".partial") && name != "notes.txt"), "{names:?}");
    for name in ["libonnxruntime.so", "libonnxruntime_providers_shared.so", "theirs.txt", RECORD] {
        assert!(there.join(name).is_file(), "{name} in {names:?}");
    }
    let _ = doctor(&there).success();

    // A folder with one more library gives the same result otherwise.
    let more = work.path().join("more");
    fs::create_dir(&more).unwrap();
    fs::copy(repository(".onnxruntime/lib/libonnxruntime_providers_shared.so"), more.join("libtbb.so.12")).unwrap();
    let _ = Outcome::of(&mut setup(&more, &there)).success();
    assert!(["libonnxruntime.so", "libtbb.so.12"].iter().all(|name| there.join(name).is_file()));
}

#[test]
fn what_does_not_load_or_is_for_another_machine_changes_nothing() {
    let work = tempfile::tempdir().unwrap();
    let (from, there) = (libraries(work.path()), work.path().join("there"));
    let _ = Outcome::of(&mut setup(&from, &there)).success();
    let before = names_in(&there);
    let content = fs::read(there.join("libonnxruntime.so")).unwrap();
    let refused = |name: &str, bytes: &[u8], words: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(name), bytes).unwrap();
        let _ = Outcome::of(&mut setup(folder.path(), &there)).failure(1, words);
        assert_eq!(names_in(&there), before);
        assert!(fs::read(there.join("libonnxruntime.so")).unwrap() == content);
    };
    let mut cut = content.clone();
    cut.truncate(content.len() / 2);
    refused("libonnxruntime.so", &cut, &["cannot be loaded on this machine, and nothing was changed"]);
    let mut other = content[..4096].to_vec();
    other[18] = if std::env::consts::ARCH == "x86_64" { 183 } else { 62 };
    refused("libonnxruntime.so", &other, &["expected a library for linux on", "found one for linux on"]);
    refused("libonnxruntime.so", b"MZ is no library", &["a file that is no library"]);
    // Leftovers that an earlier run could not remove are removed anyway.
    fs::create_dir(there.join(".tileforge-AbCdEf123456.partial")).unwrap();
    refused("README", b"", &["expected wheels or libonnxruntime.so in this folder, found neither"]);
}

#[test]
fn only_pinned_wheels_are_taken() {
    let work = tempfile::tempdir().unwrap();
    let (wheels, there) = (work.path().join("wheels"), work.path().join("there"));
    fs::create_dir(&wheels).unwrap();
    let table: serde_json::Value =
        serde_json::from_slice(&fs::read(repository("runtime/cli/src/setup/libraries.json")).unwrap()).unwrap();
    let known = table["wheels"].as_array().unwrap();
    let mut names = known.iter().filter(|wheel| {
        wheel["system"] == "linux" && wheel["machine"] == std::env::consts::ARCH && wheel["part"] == "cpu"
    });
    let wheel = names.next().unwrap();
    let text = |field: &str| wheel[field].as_str().unwrap();
    let (version, tags) = (text("version"), text("tags"));
    let name = |version: &str| format!("onnxruntime-{version}-{tags}.whl");
    let refused = |words: &[&str]| {
        let said = Outcome::of(&mut setup(&wheels, &there)).failure(1, words);
        assert_eq!(names_in(&there), [LOCK], "{}", said.stderr);
        // The user's pip decides the download address.
        assert!(!said.stderr.contains("://") && !said.stderr.contains(".org"), "{}", said.stderr);
    };
    fs::write(wheels.join(name("1.0.0")), "another release").unwrap();
    refused(&[&format!("expected {}, found {}", name(version), name("1.0.0"))]);
    fs::write(wheels.join(name(version)), "other bytes").unwrap();
    refused(&["these wheels are missing", "openvino-", "python3 -m pip download", "--from"]);
    let without = |command: &mut Command| Outcome::of(command.arg("--without-openvino"));
    let _ = without(&mut setup(&wheels, &there)).failure(1, &["expected SHA-256", "download it again"]);
    let _ = without(&mut setup(&wheels.join(name("1.0.0")), &there)).failure(1, &["another release"]);
    assert_eq!(names_in(&there), [LOCK]);
}

/// `runtime setup` without `--from`, with only one folder on `PATH`.
fn download(path: &Path, there: &Path) -> Outcome {
    Outcome::of(command("runtime", words(&[&"setup", &"--destination", &there])).env("PATH", path))
}

#[test]
fn pip_downloads_what_is_missing_and_where_it_is_not_its_command_is_shown() {
    let work = tempfile::tempdir().unwrap();
    let (path, there) = (work.path().join("path"), work.path().join("there"));
    fs::create_dir(&path).unwrap();
    let _ = download(&path, &there).failure(1, &["no Python with pip", "python3 -m pip download", "onnxruntime=="]);
    // A pip that prints its arguments, and then one that downloads other bytes than the pinned ones.
    let python = path.join("python3");
    let script =
        "#!/bin/sh\nfor word; do last=$word; done\n[ \"$last\" = --version ] && exit 0\necho \"$@\" >&2\nexit 1\n";
    fs::write(&python, script).unwrap();
    fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
    let _ = download(&path, &there).failure(1, &["--require-hashes", "--no-deps", "pip could not fetch onnxruntime-"]);
    let script = script.replace("exit 1", "/bin/sh -c 'echo no >\"$0\"/onnxruntime-fake.whl' \"$last\"; exit 0");
    fs::write(&python, script).unwrap();
    let _ = download(&path, &there).failure(1, &["onnxruntime-"]);
    assert_eq!(names_in(&there), [LOCK]);
}

#[test]
fn a_full_disk_and_a_killed_run_leave_the_earlier_libraries() {
    let work = tempfile::tempdir().unwrap();
    let (from, there) = (libraries(work.path()), work.path().join("there"));
    let again = setup(&from, &there);
    let mut limited = Command::new("bash");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 1000; exec \"$0\" \"$@\""]).arg(again.get_program());
    limited.args(again.get_args());
    let _ = Outcome::of(&mut limited).failure(1, &["cannot be written: File too large"]);
    assert_eq!(names_in(&there), [LOCK]);

    let _ = Outcome::of(&mut setup(&from, &there)).success();
    let _ = Outcome::of(&mut limited).failure(1, &["cannot be written: File too large"]);
    let _ = doctor(&there).success();
    for step in 0..6 {
        let mut killed = setup(&from, &there).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        thread::sleep(Duration::from_millis(40 * step));
        killed.kill().unwrap();
        killed.wait().unwrap();
        let _ = doctor(&there).success();
    }
    let _ = Outcome::of(&mut setup(&from, &there)).success();
    let names = names_in(&there);
    assert!(names.iter().all(|name| !name.ends_with(".partial")), "{names:?}");
}

#[test]
fn programs_of_a_source_tree_name_make_setup() {
    let _ = run("runtime", ["setup"]).failure(2, &["was built in", "`make setup`", "--destination"]);
    let arguments: Vec<OsString> = words(&[&"setup", &"--from", &"/nowhere", &"--destination", &"/proc/there"]);
    let _ = run("runtime", arguments).failure(1, &["/proc/there"]);
}
