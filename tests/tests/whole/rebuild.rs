//! Engines that are rebuilt from their manifests, and engines of other releases.

use end_to_end::{
    GoldenPipelines, Outcome, THREADS, command, copy_folder, names_in, new_key, on_cores, repository, run, words,
};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// `engine-builder` in `work`, with weights and a cache of its own there.
fn builder(work: &Path, arguments: &[&dyn AsRef<OsStr>]) -> Outcome {
    let mut command = command("engine-builder", words(arguments));
    let weights = work.join("weights");
    command.current_dir(work).env("MODEL_PATH", weights).env("HF_HUB_CACHE", work.join("none"));
    Outcome::of(&mut command)
}

/// `engine-builder` on a simulated machine with this many cores, with its own cache.
fn builder_on(work: &Path, cores: usize, arguments: &[&dyn AsRef<OsStr>]) -> Outcome {
    let mut command = command("engine-builder", words(arguments));
    command.current_dir(work).env("XDG_CACHE_HOME", work.join(format!("cache-{cores}")));
    Outcome::of(&mut on_cores(cores, &command))
}

/// A profile of small tiles in a precision, without a gate on time.
fn profile(work: &Path, precision: &str) -> PathBuf {
    let path = work.join("small-tiles.yaml");
    let text = fs::read_to_string(repository("tests/profiles/small-tiles.yaml")).unwrap();
    let text = text.replace("precision: fp32", &format!("precision: {precision}"));
    let text = text.replace("psnr_db: 100", "psnr_db: 30").replace("cosine: 0.999999", "cosine: 0.9\n  speed: 0");
    fs::write(&path, text).unwrap();
    path
}

/// The demo's checkpoint in a working folder.
fn checkpoint(work: &Path) -> PathBuf {
    let path = work.join("x4.safetensors");
    fs::copy(repository("models/compact-x4.safetensors"), &path).unwrap();
    path
}

fn manifest(engine: &Path) -> Value {
    serde_json::from_slice(&fs::read(engine.join("manifest.json")).unwrap()).unwrap()
}

fn write_manifest(engine: &Path, manifest: &Value) {
    fs::write(engine.join("manifest.json"), serde_json::to_string_pretty(manifest).unwrap()).unwrap();
}

/// The content of every file of an engine and of its parts, by name.
fn contents(engine: &Path) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for name in names_in(engine) {
        let path = engine.join(&name);
        if path.is_dir() {
            all.extend(contents(&path).into_iter().map(|(inner, bytes)| (format!("{name}/{inner}"), bytes)));
        } else {
            all.push((name, fs::read(path).unwrap()));
        }
    }
    all
}

/// References are run operator by operator, and their convolutions are rounded differently on other numbers of
/// threads. So the gates' figures and the expected outputs may differ in their last digits, but the files that an
/// engine runs do not differ.
#[test]
fn what_an_engine_runs_is_the_same_whatever_machine_builds_it() {
    let work = tempfile::tempdir().unwrap();
    let (model, profile) = (checkpoint(work.path()), profile(work.path(), "fp32"));
    let engines = THREADS.map(|cores| {
        let engine = work.path().join(format!("engine-{cores}"));
        let line: [&dyn AsRef<OsStr>; 6] = [&"build", &model, &"--profile", &profile, &"-o", &engine];
        let _ = builder_on(work.path(), cores, &line).success();
        let mut files = contents(&engine);
        files.retain(|(name, _)| name != "manifest.json" && name != "selftest.safetensors");
        (cores, files)
    });
    let (_, expected) = &engines[0];
    assert!(expected.iter().any(|(name, _)| name.ends_with(".onnx")), "no graph");
    for (cores, files) in &engines {
        let differing = files.iter().zip(expected).filter(|(found, expected)| found != expected);
        let differing: Vec<&str> = differing.map(|((name, _), _)| name.as_str()).collect();
        assert!(files.len() == expected.len() && differing.is_empty(), "{cores} cores: {differing:?}");
    }
}

#[test]
fn a_model_file_gives_the_same_bytes_again() {
    let work = tempfile::tempdir().unwrap();
    let (engine, model) = (work.path().join("engine"), repository("models/compact-x4.yaml"));
    let profile = profile(work.path(), "fp32");
    let _ = builder(work.path(), &[&"build", &model, &"--profile", &profile, &"-o", &engine]).success();
    let before = contents(&engine);
    let inspected = run("runtime", words(&[&"inspect", &"--engine", &engine])).success().stdout;
    assert!(inspected.contains("\nmade of          compact-x4.yaml\n"), "{inspected}");
    // The model file is found by its name. The profile is not an installed one.
    let _ = builder(work.path(), &[&"rebuild", &engine]).failure(2, &["small-tiles: no such profile"]);
    let again = builder(work.path(), &[&"rebuild", &engine, &"--profile", &profile]).success();
    assert!(again.stderr.contains("all files are the same as before"), "{}", again.stderr);
    assert_eq!(again.stdout.trim(), engine.display().to_string());
    assert!(contents(&engine) == before);
    // In another folder, and signed before.
    let [key, _] = new_key(work.path(), "ours");
    let _ = builder(work.path(), &[&"sign", &engine, &"--key", &key]).success();
    let other = work.path().join("other");
    let line = [&"rebuild", &engine as &dyn AsRef<OsStr>, &"--profile", &profile, &"-o", &other, &"--json"];
    let again = builder(work.path(), &line).success();
    assert_eq!(again.json()["name"], "other");
    assert!(again.stderr.contains("all files are the same as before"), "{}", again.stderr);
    assert!(again.stderr.contains("the older engine was signed"), "{}", again.stderr);
    assert!(!other.join("manifest.sig").exists() && engine.join("manifest.sig").exists());
}

#[test]
fn every_option_of_a_checkpoint_is_kept() {
    let work = tempfile::tempdir().unwrap();
    let (engine, photos) = (work.path().join("engine"), work.path().join("photos"));
    let (model, profile) = (checkpoint(work.path()), profile(work.path(), "fp32"));
    fs::create_dir(&photos).unwrap();
    fs::copy(repository("tests/images/coffee.png"), photos.join("coffee.png")).unwrap();
    let line = [
        &"build" as &dyn AsRef<OsStr>,
        &model,
        &"--profile",
        &profile,
        &"-o",
        &engine,
        &"--precision",
        &"int8",
        &"--size",
        &"32x24,48x48",
        &"--calibration",
        &photos,
        &"--calibration-tiles",
        &"4",
        &"--range",
        &"entropy",
        &"--all-layers",
        &"--calibration-budget",
        &"3",
    ];
    let _ = builder(work.path(), &line).success();
    let before = contents(&engine);
    let recipe = manifest(&engine)["recipe"].clone();
    assert_eq!(
        (&recipe["model"], &recipe["sizes"], &recipe["precision"]),
        (&json!("x4.safetensors"), &json!([[32, 24], [48, 48]]), &json!("int8"))
    );
    let calibration = &recipe["calibration"];
    let kept = ["tiles", "budget_minutes", "range", "all_layers"].map(|key| calibration[key].clone());
    assert_eq!(kept, [json!(4), json!(3), json!("entropy"), json!(true)]);
    assert_eq!(calibration["folder"]["name"], "photos");
    let text = fs::read_to_string(engine.join("manifest.json")).unwrap();
    assert!(!text.contains(&work.path().display().to_string()), "an engine tells no paths");
    // Checkpoint and pictures are found in the current folder.
    let rebuild = |more: &[&dyn AsRef<OsStr>]| {
        let line = [&"rebuild" as &dyn AsRef<OsStr>, &engine, &"--profile", &profile];
        builder(work.path(), &[&line, more].concat())
    };
    let again = rebuild(&[]).success();
    assert!(again.stderr.contains("all files are the same as before"), "{}", again.stderr);
    assert!(contents(&engine) == before);

    fs::copy(repository("tests/images/progressive.jpg"), photos.join("more.jpg")).unwrap();
    let _ =
        rebuild(&[]).failure(1, &["the engine was made of other files", "the calibration folder: expected SHA-256"]);
    fs::rename(&photos, work.path().join("elsewhere")).unwrap();
    let _ = rebuild(&[]).failure(1, &["photos: the engine was made of it", "name it with --calibration"]);
    assert!(contents(&engine) == before);
}

#[test]
fn a_source_that_moved_or_changed_is_named() {
    let work = tempfile::tempdir().unwrap();
    let engine = work.path().join("engine");
    let (model, profile) = (checkpoint(work.path()), profile(work.path(), "fp32"));
    let _ = builder(work.path(), &[&"build", &model, &"--profile", &profile, &"-o", &engine]).success();
    let before = contents(&engine);
    let rebuild = |more: &[&dyn AsRef<OsStr>]| {
        let line = [&"rebuild" as &dyn AsRef<OsStr>, &engine, &"--profile", &profile];
        builder(work.path(), &[&line, more].concat())
    };
    // Another name in another folder is not a change of the weights.
    let moved = work.path().join("moved/renamed.safetensors");
    fs::create_dir(work.path().join("moved")).unwrap();
    fs::rename(&model, &moved).unwrap();
    let _ = rebuild(&[]).failure(1, &["x4.safetensors: the engine was made of it", "the current folder", "--model"]);
    let _ = rebuild(&[&"--model", &moved]).success();
    assert_eq!(manifest(&engine)["recipe"]["model"], "renamed.safetensors");
    let named: Vec<_> = before.iter().filter(|(name, _)| name != "manifest.json").cloned().collect();
    let now: Vec<_> = contents(&engine).into_iter().filter(|(name, _)| name != "manifest.json").collect();
    assert!(named == now);

    // One changed bit of one weight.
    let mut bytes = fs::read(&moved).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    let digest = tileforge_engine::digest::sha256_file(&moved).unwrap().sha256;
    fs::write(&moved, bytes).unwrap();
    let before = contents(&engine);
    let changed = format!("renamed.safetensors: expected SHA-256 {digest}, found ");
    let words = ["the engine was made of other files", &changed, "--allow-changed-source"];
    let _ = rebuild(&[&"--model", &moved]).failure(1, &words);
    assert!(contents(&engine) == before);
    let told = rebuild(&[&"--model", &moved, &"--allow-changed-source"]).success();
    assert!(told.stderr.contains(&format!("changed since it was made: {changed}")), "{}", told.stderr);
    assert!(told.stderr.contains("SHA-256 of the checkpoint: "), "{}", told.stderr);
    let left: Vec<String> = names_in(work.path()).into_iter().filter(|name| name.starts_with('.')).collect();
    assert_eq!(left, [""; 0]);
}

#[test]
fn everything_that_an_engine_is_made_of_is_compared() {
    let work = tempfile::tempdir().unwrap();
    let (engine, models) = (work.path().join("engine"), work.path().join("models"));
    fs::create_dir_all(&models).unwrap();
    for name in ["compact-x4.yaml", "compact-x4.safetensors"] {
        fs::copy(repository("models").join(name), models.join(name)).unwrap();
    }
    let (model, profile) = (models.join("compact-x4.yaml"), profile(work.path(), "fp32"));
    let _ = builder(work.path(), &[&"build", &model, &"--profile", &profile, &"-o", &engine]).success();
    let recorded = &manifest(&engine)["recipe"]["inputs"];
    assert!(recorded["compact-x4.yaml"]["sha256"].is_string(), "{recorded}");
    let rebuild = |more: &[&dyn AsRef<OsStr>]| {
        let line = [&"rebuild" as &dyn AsRef<OsStr>, &engine, &"--model", &model];
        builder(work.path(), &[&line, more].concat())
    };
    let before = contents(&engine);
    let named: [&dyn AsRef<OsStr>; 2] = [&"--profile", &profile];
    assert!(rebuild(&named).success().stderr.contains("all files are the same as before"));
    // Another precision in the model file.
    let text = fs::read_to_string(&model).unwrap();
    let of_int8 = "precision: { cpu: int8 }";
    assert!(text.contains(of_int8) && manifest(&engine)["precision"] == "int8");
    fs::write(&model, text.replace(of_int8, "precision: {}").replace("calibration:", "# calibration:")).unwrap();
    let refusal = ["the engine was made of other files", "compact-x4.yaml: expected SHA-256", "--allow-changed-source"];
    let _ = rebuild(&named).failure(1, &refusal);
    assert!(contents(&engine) == before);
    let told = rebuild(&[named[0], named[1], &"--allow-changed-source"]).success();
    assert_eq!(manifest(&engine)["precision"], "fp32");
    assert!(told.stderr.contains("changed since it was made: compact-x4.yaml: "), "{}", told.stderr);
    // A new configuration beside the weights.
    fs::write(models.join("config.json"), "{}").unwrap();
    let _ = rebuild(&named).failure(1, &["config.json: the engine was made without it"]);
    fs::remove_file(models.join("config.json")).unwrap();
    let _ = rebuild(&named).success();
    // A profile of the same name with other content, which the command line does not name.
    let mut older = manifest(&engine);
    older["recipe"]["profile"] = json!({ "name": "cpu", "sha256": "0".repeat(64) });
    write_manifest(&engine, &older);
    let _ =
        rebuild(&[]).failure(1, &["the profile cpu: expected SHA-256 000", "--profile NAME takes a changed profile"]);
}

#[test]
fn a_pipeline_gives_the_same_bytes_again() {
    let work = tempfile::tempdir().unwrap();
    let pipeline = GoldenPipelines::read().write_folder(work.path(), "sd");
    let engine = work.path().join("engine");
    let line = [
        &"build" as &dyn AsRef<OsStr>,
        &pipeline,
        &"--profile",
        &"cpu",
        &"-o",
        &engine,
        &"--size",
        &"64x64",
        &"--batch",
        &"2",
    ];
    let _ = builder(work.path(), &line).success();
    let before = contents(&engine);
    let recipe = manifest(&engine)["recipe"].clone();
    assert_eq!(recipe["diffusion"], json!({ "batch": 2 }));
    let inputs: Vec<&str> = recipe["inputs"].as_object().unwrap().keys().map(String::as_str).collect();
    for name in ["model_index.json", "scheduler/scheduler_config.json", "unet/config.json", "tokenizer/vocab.json"] {
        assert!(inputs.contains(&name), "{inputs:?}");
    }
    // The folder is not below a searched folder; parts have no recipe of their own.
    let moved = work.path().join("moved");
    fs::create_dir(&moved).unwrap();
    let moved = moved.join(pipeline.file_name().unwrap());
    copy_folder(&pipeline, &moved);
    fs::remove_dir_all(&pipeline).unwrap();
    let again = builder(work.path(), &[&"rebuild", &engine, &"--model", &moved]).success();
    assert!(again.stderr.contains("all files are the same as before"), "{}", again.stderr);
    assert!(contents(&engine) == before);
    assert_eq!(manifest(&engine.join("unet"))["recipe"], Value::Null);

    let scheduler = moved.join("scheduler/scheduler_config.json");
    let text = fs::read_to_string(&scheduler).unwrap();
    fs::write(&scheduler, text + "\n").unwrap();
    let words = ["scheduler/scheduler_config.json: expected SHA-256"];
    let _ = builder(work.path(), &[&"rebuild", &engine, &"--model", &moved]).failure(1, &words);
    assert!(contents(&engine) == before);
}

#[test]
fn an_engine_of_an_older_schema_is_made_again_as_far_as_it_is_known() {
    let work = tempfile::tempdir().unwrap();
    let (engine, new) = (work.path().join("engine"), work.path().join("new"));
    let (model, profile) = (checkpoint(work.path()), profile(work.path(), "int8"));
    let line = [
        &"build" as &dyn AsRef<OsStr>,
        &model,
        &"--profile",
        &profile,
        &"-o",
        &engine,
        &"--range",
        &"minmax",
        &"--calibration-tiles",
        &"4",
    ];
    let _ = builder(work.path(), &line).success();
    let files = contents(&engine);
    // Manifests of schema 1 had this form.
    let mut old = manifest(&engine);
    old["schema"] = json!(1);
    let keys = old.as_object_mut().unwrap();
    keys.remove("recipe");
    keys.remove("contract");
    keys.insert("interface".into(), json!({ "input": "image", "output": "output", "scale": 4 }));
    write_manifest(&engine, &old);
    let _ = run("runtime", words(&[&"verify", &"--engine", &engine]))
        .failure(1, &["expected a manifest of schema 2, found 1", "`engine-builder rebuild` makes the engine again"]);

    let rebuild = |more: &[&dyn AsRef<OsStr>]| {
        let line = [&"rebuild" as &dyn AsRef<OsStr>, &engine, &"--profile", &profile];
        builder(work.path(), &[&line, more].concat())
    };
    let _ = rebuild(&[]).failure(2, &["the older schema 1", "--output"]);
    let _ = rebuild(&[&"-o", &new]).failure(2, &["does not record what it was made of; give that with --model"]);
    let told = rebuild(&[&"-o", &new, &"--model", &model]).success();
    for text in ["of schema 1, has no recipe", "schema: 1 → 2"] {
        assert!(told.stderr.contains(text), "{}", told.stderr);
    }
    let made = manifest(&new);
    assert_eq!((&made["precision"], &made["calibration"]["range"]), (&json!("int8"), &json!("minmax")));
    assert_eq!(made["model"]["checkpoint_sha256"], old["model"]["checkpoint_sha256"]);
    let graph = |files: &[(String, Vec<u8>)]| files.iter().filter(|(name, _)| name.ends_with(".onnx")).count();
    assert_eq!(graph(&contents(&new)), graph(&files));
    fs::remove_dir_all(&new).unwrap();

    // Its checkpoint is identified by its digest, and the manifest states that it was calibrated on a folder.
    old["calibration"]["source"] = json!("folder");
    write_manifest(&engine, &old);
    let _ = rebuild(&[&"-o", &new, &"--model", &model]).failure(2, &["measured on a folder", "--calibration"]);
    old["calibration"]["source"] = json!("built-in test image");
    old["model"]["checkpoint_sha256"] = json!("a".repeat(64));
    write_manifest(&engine, &old);
    let _ = rebuild(&[&"-o", &new, &"--model", &model]).failure(1, &["the checkpoint: expected SHA-256 aaaa"]);
    old["schema"] = json!(3);
    write_manifest(&engine, &old);
    let _ = rebuild(&[&"-o", &new, &"--model", &model])
        .failure(1, &["expected a manifest of schema 2, found 3", "use the release that built it, or a newer one"]);
    assert!(!new.exists());
}

#[test]
fn doctor_and_verify_name_what_an_engine_was_made_with() {
    let work = tempfile::tempdir().unwrap();
    let engine = end_to_end::copied_engine(work.path());
    let doctor = |more: &[&str]| {
        let line = words(&[&"doctor", &"--engine", &engine]);
        run("runtime", line.into_iter().chain(more.iter().map(Into::into))).success()
    };
    assert!(!doctor(&[]).stdout.contains("\nrelease "));
    assert_eq!(doctor(&["--json"]).json()["engine"][0]["other_releases"], json!([]));
    let mut made = manifest(&engine);
    made["producer"] = json!("engine-builder 0.0.9");
    made["built_with"]["onnxruntime"] = json!("1.99.0");
    // No machine computes as exactly as this tolerance requires.
    made["selftest"]["tolerance"] = json!(0.0);
    write_manifest(&engine, &made);
    let text = doctor(&[]).stdout;
    for expected in [
        "release       it was built by engine-builder 0.0.9, and this is release 0.1.0; it runs as it is; \
         `engine-builder rebuild` makes it again with the releases that are here",
        "release       it was built with ONNX Runtime 1.99.0, and 1.31.1 is here",
        "install that release here, or make the engine again here with `engine-builder rebuild`",
    ] {
        assert!(text.contains(expected), "expected `{expected}` in {text}");
    }
    let json = doctor(&["--json"]).json()["engine"][0]["other_releases"].clone();
    assert_eq!(
        json,
        json!([
            { "software": "engine-builder", "made_with": "0.0.9", "here": "0.1.0" },
            { "software": "onnx-runtime", "made_with": "1.99.0", "here": "1.31.1" },
        ])
    );
    // A failed self-test may have this reason.
    let _ = run("runtime", words(&[&"verify", &"--engine", &engine]))
        .failure(4, &["self-test", "it was built with ONNX Runtime 1.99.0, and 1.31.1 is here"]);
}
