//! Engines on OpenVINO. `parity`, `components` and `systems` compare every network on it with the reference.

use end_to_end::{command, copy_folder, demo_engine, environment, names_in, repository, run, run_with_cache_in, words};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The demo model in a precision, for the profile `openvino`.
fn engine(work: &Path, precision: &str) -> PathBuf {
    let (engine, profile) = (work.join(precision), work.join("openvino.yaml"));
    let model = repository("models/compact-x4.yaml");
    // No test depends on time: INT8 may be slower than FP32 on a busy machine.
    let text = fs::read_to_string(repository("profiles/openvino.yaml")).unwrap();
    let untimed = text.replace("cosine: 0.999999", "cosine: 0.999999\n  speed: 0");
    assert_ne!(untimed, text);
    fs::write(&profile, untimed).unwrap();
    copy_folder(&repository("profiles/families"), &work.join("families"));
    let line = words(&[&"build", &model, &"--profile", &profile, &"--precision", &precision, &"--output", &engine]);
    let _ = run("engine-builder", line).success();
    let manifest: serde_json::Value = serde_json::from_slice(&fs::read(engine.join("manifest.json")).unwrap()).unwrap();
    assert_eq!((&manifest["target"]["provider"], &manifest["precision"]), (&"openvino".into(), &precision.into()));
    engine
}

/// Enlarges the test's picture. Returns the report about it, and the file.
fn enlarged(engine: &Path, work: &Path, name: &str, more: &[&str]) -> (serde_json::Value, PathBuf) {
    let (input, output) = (repository("tests/images/coffee.png"), work.join(name).with_extension("png"));
    let line = words(&[&"infer", &"--engine", &engine, &"--input", &input, &"--output", &output, &"--json"]);
    let more = more.iter().map(std::ffi::OsString::from);
    (run("runtime", line.into_iter().chain(more)).success().json(), output)
}

fn psnr_db(one: &Path, other: &Path) -> f64 {
    let compared = run("runtime", words(&[&"compare", &one, &other, &"--json"])).success().json();
    compared["psnr_db"].as_f64().unwrap_or(f64::INFINITY)
}

#[test]
fn engines_for_openvino_give_the_pixels_of_onnx_runtime() {
    let work = tempfile::tempdir().unwrap();
    let (_, expected) = enlarged(demo_engine(), work.path(), "onnxruntime", &["--provider", "cpu"]);
    let computes_bf16 = environment().library().computes_bf16().unwrap();
    // An engine for ONNX Runtime's kernels, run with OpenVINO on request.
    let asked = ["--provider", "openvino", "--strict"];
    let mut tried = vec![(demo_engine().to_owned(), &asked[..], 80.0), (engine(work.path(), "fp32"), &[], 80.0)];
    if computes_bf16 {
        tried.push((engine(work.path(), "bf16"), &[], 55.0));
    }
    for (precision, least_db) in [("int8", 40.0), ("fp16-weights", 60.0), ("int8-weights", 35.0)] {
        tried.push((engine(work.path(), precision), &[], least_db));
    }
    for (engine, options, least_db) in &tried {
        let (report, found) = enlarged(engine, work.path(), "openvino", options);
        assert_eq!(report["provider"], "openvino", "{report}");
        assert_eq!(report["files"][0]["assigned"][0]["provider"], "OpenVINOExecutionProvider", "{report}");
        let db = psnr_db(&found, &expected);
        assert!(db >= *least_db, "{}: {db} dB", engine.display());
        let _ = run("runtime", words(&[&"verify", &"--engine", engine])).success();
        // Two streams share the compiled model. Each has half of the threads.
        let small: &[&str] = if options.is_empty() { &["--tile", "256x256"] } else { options };
        let (_, one) = enlarged(engine, work.path(), "one", small);
        let (report, two) = enlarged(engine, work.path(), "two", &[small, &["--streams", "2"]].concat());
        assert_eq!(report["used"]["streams"], 2, "{report}");
        let db = psnr_db(&two, &one);
        assert!(db >= *least_db, "{}: {db} dB", engine.display());
    }
    // On ONNX Runtime's kernels, an engine for OpenVINO computes the same; but these kernels do not compute in BF16.
    let (report, found) = enlarged(&work.path().join("fp32"), work.path(), "back", &["--provider", "cpu"]);
    assert_eq!(report["provider"], "cpu");
    assert!(psnr_db(&found, &expected) >= 80.0);
    if computes_bf16 {
        let line = words(&[&"verify", &"--engine", &work.path().join("bf16"), &"--provider", &"cpu"]);
        let _ = run("runtime", line).failure(3, &["bf16", "cpu"]);
    }
}

#[test]
fn the_fastest_precision_is_built() {
    let work = tempfile::tempdir().unwrap();
    let (engine, model) = (work.path().join("fastest"), repository("models/compact-x4.yaml"));
    let line = words(&[&"build", &model, &"--profile", &"openvino", &"--precision", &"auto", &"--output", &engine]);
    let told = run("engine-builder", line).success();
    let manifest: serde_json::Value = serde_json::from_slice(&fs::read(engine.join("manifest.json")).unwrap()).unwrap();
    let chosen = manifest["precision"].as_str().unwrap();
    assert_eq!(manifest["recipe"]["precision"], chosen);
    let tried = |precision: &str| told.stderr.contains(&format!("{precision}: "));
    assert!(tried("int8"), "{}", told.stderr);
    assert_eq!(tried("bf16"), environment().library().computes_bf16().unwrap(), "{}", told.stderr);
    // Its gates were measured in the precision that it runs in.
    let _ = run("runtime", words(&[&"verify", &"--engine", &engine, &"--strict"])).success();
    let asked = words(&[&"build", &model, &"--profile", &"cpu,rtx", &"--precision", &"auto", &"-o", &"{profile}"]);
    let _ = run("engine-builder", asked).failure(2, &["rtx is a profile for GPUs", "name a precision"]);
}

#[test]
fn what_was_compiled_is_kept_and_computes_as_it_did() {
    let work = tempfile::tempdir().unwrap();
    let mut precisions = vec!["fp32", "int8"];
    if environment().library().computes_bf16().unwrap() {
        precisions.push("bf16");
    }
    let input = repository("tests/images/coffee.png");
    // The picture, and the entries of the cache.
    let enlarged = |precision: &str, more: &[&str]| {
        let (engine, output) = (work.path().join(precision), work.path().join("large.png"));
        let line = words(&[&"infer", &"--engine", &engine, &"--input", &input, &"--output", &output, &"--strict"]);
        let line = line.into_iter().chain(more.iter().map(std::ffi::OsString::from));
        let own = work.path().join(format!("{precision}-kept"));
        let told = run_with_cache_in(&own, "runtime", line).success();
        assert!(!told.stderr.contains("warning"), "{}", told.stderr);
        let kept = own.join("cache/tileforge/openvino");
        let entries: Vec<PathBuf> =
            names_in(&kept).iter().map(|name| kept.join(name)).filter(|path| path.is_dir()).collect();
        (fs::read(output).unwrap(), entries)
    };
    let mut pictures = Vec::new();
    for precision in &precisions {
        engine(work.path(), precision);
        let (new, entries) = enlarged(precision, &[]);
        let [entry] = entries.as_slice() else { panic!("{precision}: {entries:?}") };
        let blob = fs::read(entry.join("graph.blob")).unwrap();
        assert!(enlarged(precision, &[]).0 == new, "{precision}");
        // A damaged entry is compiled again.
        for damaged in [&blob[..blob.len() / 2], &[blob.as_slice(), b"x"].concat(), b""] {
            fs::write(entry.join("graph.blob"), damaged).unwrap();
            assert!(enlarged(precision, &[]).0 == new, "{precision}");
            assert!(fs::read(entry.join("graph.blob")).unwrap().len() == blob.len(), "{precision}");
        }
        // Another number of threads gives another entry.
        assert_eq!(enlarged(precision, &["--threads", "1"]).1.len(), 2, "{precision}");
        pictures.push((new, entry.clone()));
    }
    // The cached model is what runs: another graph in the cache, with a matching digest, gives other pixels.
    let [(picture, fp32), (_, other), ..] = pictures.as_slice() else { unreachable!("two precisions") };
    let record = |entry: &Path| -> serde_json::Value {
        serde_json::from_slice(&fs::read(entry.join("compiled.json")).unwrap()).unwrap()
    };
    let mut foreign = record(fp32);
    foreign["files"] = record(other)["files"].clone();
    fs::write(fp32.join("compiled.json"), foreign.to_string()).unwrap();
    fs::copy(other.join("graph.blob"), fp32.join("graph.blob")).unwrap();
    assert!(enlarged("fp32", &[]).0 != *picture);
}

/// The runtime with ONNX Runtime alone.
fn without_openvino(work: &Path, arguments: &[&dyn AsRef<std::ffi::OsStr>]) -> Command {
    let library = environment().library().path().to_owned();
    let alone = work.join("alone");
    fs::create_dir_all(&alone).unwrap();
    fs::copy(&library, alone.join("libonnxruntime.so")).unwrap();
    let mut command = command("runtime", words(arguments));
    command.env("ORT_DYLIB_PATH", &alone);
    command
}

#[test]
fn without_the_library_its_engines_run_on_onnx_runtime() {
    let work = tempfile::tempdir().unwrap();
    let engine = engine(work.path(), "fp32");
    let ran = |arguments: &[&dyn AsRef<std::ffi::OsStr>]| {
        end_to_end::Outcome::of(&mut without_openvino(work.path(), arguments))
    };
    let told = ran(&[&"verify", &"--engine", &engine]).success();
    assert!(told.stdout.contains("CPUExecutionProvider"), "{}", told.stdout);
    assert!(told.stderr.contains("steps down from openvino to cpu: libopenvino_c.so is not beside"), "{}", told.stderr);
    let _ = ran(&[&"verify", &"--engine", &engine, &"--strict"]).failure(3, &["falls back to cpu", "pip: openvino"]);
    let _ = ran(&[&"verify", &"--engine", &engine, &"--provider", &"openvino"]).failure(3, &["pip: openvino"]);
    // Other engines do not mention it.
    let told = ran(&[&"verify", &"--engine", &demo_engine()]).success();
    assert!(!told.stderr.contains("openvino"), "{}", told.stderr);
}
