//! Engines on emulated processors (QEMU) other than the one that they were built on.

#![cfg(target_arch = "x86_64")]

use end_to_end::{Outcome, build_engine, command, repository, words};
use std::process::Command;

/// Runs the runtime on QEMU's processor of this name.
fn on_processor(name: &str, arguments: Vec<std::ffi::OsString>) -> Outcome {
    let runtime = command("runtime", arguments);
    let mut emulated = Command::new("qemu-x86_64-static");
    emulated.args(["-cpu", name]).arg(runtime.get_program()).args(runtime.get_args());
    emulated.envs(runtime.get_envs().filter_map(|(name, value)| Some((name, value?))));
    assert!(
        Command::new("qemu-x86_64-static").arg("--version").output().is_ok(),
        "qemu-x86_64-static is missing; install it: apt install qemu-user-static"
    );
    Outcome::of(&mut emulated)
}

/// Haswell has AVX2 but no VNNI: it adds products of 8 bits in 16 bits, where products of a signed and an unsigned
/// number overflow.
#[test]
fn eight_bits_overflow_on_no_processor() {
    let work = tempfile::tempdir().unwrap();
    let (model, profile) = (repository("models/compact-x4.safetensors"), repository("tests/profiles/small-tiles.yaml"));
    let text = std::fs::read_to_string(&profile).unwrap();
    let profile = work.path().join("small-tiles.yaml");
    // No test depends on time.
    std::fs::write(&profile, text + "  speed: 0\n").unwrap();
    let _ = build_engine(work.path(), &model, &profile, &["--precision", "int8"]).success();
    let engine = work.path().join("engine");
    let verified = on_processor("Haswell", words(&[&"verify", &"--engine", &engine, &"--json"])).success().json();
    assert_eq!(verified["passed"], true, "{verified}");
    let cpu = &on_processor("Haswell", words(&[&"doctor", &"--json"])).success().json()["cpu"];
    assert_eq!(cpu["multiplies_8_bits"], false, "{cpu}");
    // A value between two codes may become either. With overflows, the error was 0.15.
    assert!(verified["maximum_error"].as_f64().unwrap() < 0.01, "{verified}");
}
