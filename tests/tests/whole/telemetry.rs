//! Programs that load ONNX Runtime record nothing about the user, and contact no server.

use end_to_end::{command, demo_engine, names_in, repository, words};
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Runs a program with an empty home folder, and returns its system calls about networks.
fn network_calls(work: &Path, program: &str, arguments: &[OsString]) -> Vec<String> {
    let (home, calls) = (work.join("home"), work.join("calls"));
    fs::create_dir(&home).unwrap();
    let product = command(program, arguments);
    let mut traced = Command::new("strace");
    traced.args(["-f", "-e", "trace=network", "-o"]).arg(&calls).arg(product.get_program()).args(product.get_args());
    traced.env("HOME", &home).env("XDG_CACHE_HOME", home.join("cache")).env("CUDA_VISIBLE_DEVICES", "");
    traced.env_remove("ORT_DISABLE_TELEMETRY");
    let tried = traced.status();
    let status = tried.unwrap_or_else(|error| panic!("strace: {error}; install it: apt install strace"));
    assert!(status.success(), "{program} {arguments:?}");
    assert_eq!(names_in(&home), [""; 0], "{program} {arguments:?}");
    fs::remove_dir(&home).unwrap();
    let text = fs::read_to_string(&calls).unwrap();
    text.lines().filter(|line| line.contains("socket(") || line.contains("connect(")).map(str::to_owned).collect()
}

#[test]
fn onnx_runtime_leaves_no_device_id_and_sends_nothing() {
    let work = tempfile::tempdir().unwrap();
    let engine = demo_engine();
    let built = work.path().join("built");
    let (model, profile) = (repository("models/compact-x4.safetensors"), repository("tests/profiles/small-tiles.yaml"));
    let (photo, large) = (repository("tests/images/coffee.png"), work.path().join("large.png"));
    let commands = [
        ("runtime", words(&[&"doctor"])),
        ("runtime", words(&[&"verify", &"--engine", &engine])),
        ("runtime", words(&[&"infer", &"--engine", &engine, &"--input", &photo, &"--output", &large])),
        ("engine-builder", words(&[&"build", &model, &"--profile", &profile, &"-o", &built])),
    ];
    for (program, arguments) in commands {
        assert_eq!(network_calls(work.path(), program, &arguments), [""; 0], "{program} {arguments:?}");
    }
    assert!(large.exists() && built.join("manifest.json").exists());
}
