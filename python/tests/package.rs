//! The Python package, installed from its wheel into a fresh virtual environment: pytest runs the tests in this folder.
#![allow(clippy::unwrap_used, clippy::panic)] // a test's way to fail

use end_to_end::{
    GoldenPipelines, demo_engine, golden_retouches, golden_systems, golden_video_autoencoders, repository,
    restoration_engine, small_engine,
};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs a command that must succeed.
fn success(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}\n{}\n{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// The wheel of the programs and the module that Cargo has built beside this test.
fn wheel(folder: &Path) -> PathBuf {
    // target/PROFILE/deps/package-HASH
    let beside = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let mut pack = Command::new("python3");
    pack.arg(repository("python/build_backend.py")).arg("--binaries").arg(beside.parent().unwrap());
    pack.arg("--module").arg(beside.join("libtileforge_python.so")).arg("--output").arg(folder);
    PathBuf::from(success(&mut pack).trim())
}

/// A virtual environment with the wheel. What it needs beside the wheel is in another one, which `make test` makes.
fn environment(folder: &Path, wheel: &Path) -> PathBuf {
    success(Command::new("python3").args(["-m", "venv"]).arg(folder));
    let packages = |environment: &Path| {
        let versions = environment.join("lib").read_dir().unwrap_or_else(|_| panic!("run `make test`"));
        versions.map(|entry| entry.unwrap().path().join("site-packages")).next().unwrap()
    };
    let others = packages(&repository("target/python-venv")).canonicalize().unwrap();
    fs::write(packages(folder).join("others.pth"), format!("{}\n", others.display())).unwrap();
    let python = folder.join("bin/python");
    success(Command::new(&python).args(["-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]).arg(wheel));
    python
}

/// Small engines of every task, by name.
fn engines(folder: &Path) {
    end_to_end::copy_folder(demo_engine(), &folder.join("upscale"));
    let systems = golden_systems(folder);
    for (name, network) in
        [("depth", "DepthAnything-"), ("depth_map", "RGBDDepth-"), ("realtime", "GPUStressTestModel-")]
    {
        let golden = systems.iter().find(|golden| golden.name.starts_with(network)).unwrap();
        let _ = small_engine(folder, name, golden, &golden.shapes(), &[]);
    }
    let videos = golden_video_autoencoders();
    for (name, network) in [("encoder", "seedvr2/vae_encoder.1"), ("decoder", "seedvr2/vae_decoder.1")] {
        let golden = videos.iter().find(|golden| golden.name.starts_with(network)).unwrap();
        let _ = small_engine(folder, name, golden, &golden.shapes(), &[("chunk", "first")]);
    }
    let retouches = golden_retouches();
    let golden = retouches.iter().find(|golden| golden.name.starts_with("lama/")).unwrap();
    let _ = small_engine(folder, "inpaint", golden, &golden.shapes(), &[]);
    let _ = GoldenPipelines::read().engine(folder, "sd");
    let work = tempfile::tempdir().unwrap();
    let restore = restoration_engine(work.path(), "transformer-3b.safetensors", 2, &[[4, 6]]);
    end_to_end::copy_folder(&restore, &folder.join("restore"));
}

#[test]
fn its_tests_pass_in_a_fresh_environment() {
    let work = tempfile::tempdir().unwrap();
    let python = environment(&work.path().join("venv"), &wheel(work.path()));
    engines(&work.path().join("engines"));
    let mut tests = Command::new(python);
    tests.args(["-m", "pytest", "-q", "--durations=5", "-p", "no:cacheprovider"]).arg(repository("python/tests"));
    tests.arg("-c").arg(repository("python/pyproject.toml"));
    // Not in the folder of the source, where Python would find the package without its module.
    tests.current_dir(work.path()).env("TILEFORGE_TEST_ENGINES", work.path().join("engines"));
    tests.env("XDG_CACHE_HOME", work.path().join("cache")).env("CUDA_VISIBLE_DEVICES", "");
    // Neither the source tree's package nor its library: the wheel's, and that of the package onnxruntime.
    tests.env_remove("PYTHONPATH").env_remove("ORT_DYLIB_PATH").env("PYTHONDONTWRITEBYTECODE", "1");
    println!("{}", success(&mut tests));
}
