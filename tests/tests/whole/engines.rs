//! Engine directories: built from every kind of source; complete, or refused.

use end_to_end::{
    Outcome, command, copied_engine, copy_of, demo_engine, edit_manifest, names_in, repository, run, words,
};
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn checkpoint_graph_and_model_file_give_the_same_engine() {
    let work = tempfile::tempdir().unwrap();
    let profile = repository("tests/profiles/small-tiles.yaml");
    let (checkpoint, graph) = (repository("models/compact-x4.safetensors"), work.path().join("compact-x4.onnx"));
    let _ = run("exporter", words(&[&"export", &checkpoint, &"-o", &graph])).success();
    let mut weights = Vec::new();
    for (number, source) in [repository("models/compact-x4.yaml"), checkpoint, graph].iter().enumerate() {
        let engine = work.path().join(format!("engine-{number}"));
        // The model file states another precision.
        let line = words(&[&"build", source, &"--profile", &profile, &"--precision", &"fp32", &"-o", &engine]);
        let _ = run("engine-builder", line).success();
        let verified = run("runtime", words(&[&"verify", &"--engine", &engine, &"--json"])).success().json();
        assert_eq!(verified["passed"], true, "{verified}");
        weights.push(
            ["model-1x3x24x24.onnx", "model-1x3x96x96.onnx", "model.weights"]
                .map(|name| fs::read(engine.join(name)).unwrap()),
        );
    }
    assert!(weights[0] == weights[1] && weights[1] == weights[2]);
}

#[test]
fn an_engine_replaces_an_older_one_and_nothing_else() {
    let work = tempfile::tempdir().unwrap();
    let engine = work.path().join("engine");
    let (model, profile) = (repository("models/compact-x4.safetensors"), repository("tests/profiles/small-tiles.yaml"));
    let build = || run("engine-builder", words(&[&"build", &model, &"--profile", &profile, &"-o", &engine]));
    let _ = build().success();
    let _ = build().success();
    assert_eq!(names_in(work.path()), ["engine"]);
    fs::remove_dir_all(&engine).unwrap();
    fs::create_dir(&engine).unwrap();
    fs::write(engine.join("precious"), "x").unwrap();
    let _ = build().failure(1, &["is not empty and holds no engine"]);
    assert_eq!(names_in(&engine), ["precious"]);
}

#[test]
fn several_profiles_give_an_engine_each_and_one_that_fails_stops_no_other() {
    let work = tempfile::tempdir().unwrap();
    let path = |name: &str| work.path().join(name);
    let text = fs::read_to_string(repository("tests/profiles/small-tiles.yaml")).unwrap();
    for (name, floor) in [("first", "psnr_db: 100"), ("strict", "psnr_db: 199"), ("last", "psnr_db: 100")] {
        let profile = text.replace("name: small-tiles", &format!("name: {name}")).replace("psnr_db: 100", floor);
        fs::write(path(&format!("{name}.yaml")), profile).unwrap();
    }
    let profiles =
        ["first", "strict", "last"].map(|name| path(&format!("{name}.yaml")).display().to_string()).join(",");
    let build = |output: &Path| {
        let model = repository("models/compact-x4.safetensors");
        let line = words(&[&"build", &model, &"--profile", &profiles, &"--jobs", &"2", &"-o", &output]);
        run("engine-builder", line)
    };
    let _ = build(&path("engines/x4")).failure(2, &["several profiles need `{profile}`"]);
    assert!(!path("engines").exists());
    let _ = build(&path("engines/{profile}/x4")).failure(4, &["strict: not built: ", "1 of 3 engines were not built"]);
    for name in ["first", "last"] {
        let engine = path("engines").join(name).join("x4");
        let manifest = run("runtime", words(&[&"inspect", &"--engine", &engine, &"--json"])).success().json();
        assert_eq!(manifest["target"]["profile"], name);
    }
    assert!(!path("engines/strict/x4").exists());
}

#[test]
fn a_killed_build_leaves_no_half_engine() {
    let (model, profile) = (repository("models/compact-x4.safetensors"), repository("profiles/cpu.yaml"));
    for milliseconds in [0, 5, 20, 60, 150, 300, 600] {
        let work = tempfile::tempdir().unwrap();
        let engine = work.path().join("engine");
        let mut child = command("engine-builder", words(&[&"build", &model, &"--profile", &profile, &"-o", &engine]))
            .spawn()
            .unwrap();
        std::thread::sleep(std::time::Duration::from_millis(milliseconds));
        child.kill().unwrap();
        child.wait().unwrap();
        if engine.exists() {
            let _ = run("runtime", words(&[&"verify", &"--engine", &engine])).success();
        }
        let foreign =
            names_in(work.path()).into_iter().find(|name| name != "engine" && !name.starts_with(".tileforge-"));
        assert_eq!(foreign, None, "after {milliseconds} ms");
    }
}

#[test]
fn a_failed_gate_writes_nothing_and_exits_with_4() {
    let work = tempfile::tempdir().unwrap();
    let profile = work.path().join("strict.yaml");
    let text = fs::read_to_string(repository("tests/profiles/small-tiles.yaml")).unwrap();
    // FP32 cannot reach this floor: the arithmetic is the same, but in another order.
    fs::write(&profile, text.replace("small-tiles", "strict").replace("psnr_db: 100", "psnr_db: 199")).unwrap();
    let engine = work.path().join("engine");
    let outcome = run(
        "engine-builder",
        words(&[&"build", &repository("models/compact-x4.safetensors"), &"--profile", &profile, &"-o", &engine]),
    );
    let _ = outcome.failure(4, &["gates were not passed", "psnr_db", "expected at least 199.00"]);
    assert_eq!(names_in(work.path()), ["strict.yaml"]);
}

#[test]
fn what_cannot_become_an_engine_is_refused_before_anything_is_made() {
    let work = tempfile::tempdir().unwrap();
    let (graph, profile) = (work.path().join("x4.onnx"), work.path().join("depth.yaml"));
    let _ = run(
        "exporter",
        words(&[&"export", &repository("models/compact-x4.safetensors"), &"-o", &graph, &"--weights", &"inline"]),
    )
    .success();
    let text = fs::read_to_string(repository("tests/profiles/small-tiles.yaml")).unwrap();
    fs::write(
        &profile,
        text.replace("name: small-tiles", "name: depth").replace("upscale:", "depth:").replace("24x24, 96x96", "14x14"),
    )
    .unwrap();
    let build = |model: &Path, profile: &Path| {
        let engine = work.path().join("engines").join("x4");
        run("engine-builder", words(&[&"build", &model, &"--profile", &profile, &"-o", &engine]))
    };
    for model in [&repository("models/compact-x4.yaml"), &graph] {
        let _ = build(model, &profile).failure(1, &["the profile depth has no shapes for task upscale"]);
    }
    let mut model = tileforge_graph::load(&graph).unwrap();
    model.opsets[0].version = 8;
    tileforge_graph::save(&model, &graph, tileforge_graph::WeightStorage::Inline).unwrap();
    let refused = build(&graph, &repository("profiles/t4.yaml"))
        .failure(4, &["tensorrt-10 would not take this graph", "error: expected an opset of 9 to 23, found 8"]);
    assert!(!refused.stderr.contains("gate"), "{refused:?}");
    assert_eq!(names_in(work.path()), ["depth.yaml", "x4.onnx"]);
}

#[test]
fn a_wrong_profile_or_model_file_is_refused_with_its_line() {
    let work = tempfile::tempdir().unwrap();
    let engine = work.path().join("engine");
    let model = repository("models/compact-x4.yaml");
    let build = |model: &Path, profile: &Path| {
        run("engine-builder", words(&[&"build", &model, &"--profile", &profile, &"-o", &engine]))
    };
    let good = fs::read_to_string(repository("tests/profiles/small-tiles.yaml")).unwrap();
    for (from, to, expected) in [
        ("psnr_db: 100", "psnr_db: loud", "psnr_db"),
        ("cosine: 0.999999", "cosine: 2", "expected a number from -1 to 1, found 2"),
        ("24x24", "24 pixels", "as in 256x256, found `24 pixels`"),
        ("24x24", "0x24", "as in 256x256, found `0x24`"),
        ("floors:", "flors:", "flors"),
        ("provider: cpu", "provider: tpu", "tpu"),
        ("[24x24, 96x96]", "[]", "at least one tile shape"),
        ("name: small-tiles", "name: other", "expected the profile to have its file's name"),
    ] {
        let profile = work.path().join("small-tiles.yaml");
        fs::write(&profile, good.replace(from, to)).unwrap();
        let _ = build(&model, &profile).failure(1, &["small-tiles.yaml", expected]);
    }
    let _ = run("engine-builder", words(&[&"build", &model, &"--profile", &"rtx9999", &"-o", &engine]))
        .failure(2, &["no such profile", "known are a100, a10g"]);
    let text = fs::read_to_string(&model).unwrap();
    let other = work.path().join("compact-x4.yaml");
    fs::copy(repository("models/compact-x4.safetensors"), work.path().join("compact-x4.safetensors")).unwrap();
    let profile = repository("profiles/cpu.yaml");
    for (from, to, expected) in [
        ("sha256: bf89", "sha256: 0000", "it is another file"),
        ("SRVGGNetCompact", "RRDBNet", "expected RRDBNet for upscale, found SRVGG"),
    ] {
        fs::write(&other, text.replace(from, to)).unwrap();
        let _ = build(&other, &profile).failure(1, &[expected]);
    }
    assert!(!engine.exists());
}

#[test]
fn a_changed_engine_is_refused() {
    let work = tempfile::tempdir().unwrap();
    let engine = copied_engine(work.path());
    let (input, output) = (repository("tests/images/coffee.png"), work.path().join("out.png"));
    let infer = || run("runtime", words(&[&"infer", &"--engine", &engine, &"--input", &input, &"--output", &output]));
    let weights = fs::read(engine.join("model.weights")).unwrap();

    let mut altered = weights.clone();
    altered[weights.len() / 2] ^= 1;
    fs::write(engine.join("model.weights"), altered).unwrap();
    let _ = infer().failure(1, &["model.weights: expected SHA-256"]);
    fs::write(engine.join("model.weights"), &weights[1..]).unwrap();
    let _ = infer().failure(1, &["model.weights: expected 648", "bytes, found"]);
    fs::remove_file(engine.join("model.weights")).unwrap();
    let _ = infer().failure(1, &["model.weights: expected a file, as the manifest lists it, found none"]);
    fs::write(engine.join("model.weights"), &weights).unwrap();

    let manifest = fs::read_to_string(engine.join("manifest.json")).unwrap();
    fs::write(engine.join("manifest.json"), manifest.replace("\"schema\": 2", "\"schema\": 1")).unwrap();
    let _ = infer()
        .failure(1, &["expected a manifest of schema 2, found 1", "`engine-builder rebuild` makes the engine again"]);
    fs::write(engine.join("manifest.json"), &manifest[..manifest.len() / 2]).unwrap();
    let _ = infer().failure(1, &["manifest.json"]);
    fs::remove_file(engine.join("manifest.json")).unwrap();
    let _ = infer().failure(1, &["no manifest.json in this folder; give the folder of an engine"]);
    let engines = work.path().join("engines/cpu");
    fs::create_dir_all(&engines).unwrap();
    let one = copy_of(demo_engine(), &engines);
    for folder in ["engines", "engines/cpu"] {
        let folder = work.path().join(folder);
        let _ = run("runtime", words(&[&"inspect", &"--engine", &folder]))
            .failure(1, &["no manifest.json in this folder; give one of the engines in it", one.to_str().unwrap()]);
    }
    let nothing = work.path().join("nothing");
    let _ = run("runtime", words(&[&"infer", &"--engine", &nothing, &"--input", &input, &"--output", &output]))
        .failure(1, &["no such folder"]);
    assert!(!output.exists());
}

#[test]
fn a_failed_self_test_exits_with_4() {
    let work = tempfile::tempdir().unwrap();
    let engine = copied_engine(work.path());
    // Rounding on another machine could also miss this tolerance.
    let manifest = fs::read_to_string(engine.join("manifest.json")).unwrap();
    fs::write(engine.join("manifest.json"), manifest.replace("\"tolerance\": 0.0001", "\"tolerance\": 1e-12")).unwrap();
    let _ = run("runtime", words(&[&"verify", &"--engine", &engine])).failure(4, &[]);
}

#[test]
fn the_library_is_found_or_its_absence_explained() {
    let work = tempfile::tempdir().unwrap();
    let engine = demo_engine();
    let _ = run("runtime", words(&[&"verify", &"--engine", &engine, &"--ort-lib", &repository(".onnxruntime/lib")]))
        .success();
    let verify = |library: &Path| run("runtime", words(&[&"verify", &"--engine", &engine, &"--ort-lib", &library]));
    let _ = verify(&work.path().join("nowhere")).failure(1, &["ONNX Runtime", "no such library"]);
    let text = work.path().join("libonnxruntime.so");
    fs::write(&text, "not a library").unwrap();
    let _ = verify(&text).failure(1, &["ONNX Runtime", "cannot be loaded"]);
    let doctor = run("runtime", ["doctor", "--json"]).success().json();
    assert_eq!(doctor["onnxruntime"]["version"], "1.31.1", "{doctor}");
}

#[test]
fn what_took_the_nodes_is_in_every_result() {
    let (engine, photo) = (demo_engine(), repository("tests/images/coffee.png"));
    let work = tempfile::tempdir().unwrap();
    let small = work.path().join("small.png");
    image::open(photo).unwrap().crop_imm(100, 50, 96, 96).save(&small).unwrap();
    let verify = words(&[&"verify", &"--engine", &engine]);
    let evaluate = words(&[&"evaluate", &"--engine", &engine, &"--input", &small]);
    for line in [verify, evaluate] {
        let text = run("runtime", &line).success().stdout;
        assert!(text.contains(" on CPUExecutionProvider ("), "{text}");
        let json = run("runtime", line.into_iter().chain(["--json".into()])).success().json();
        assert_eq!(
            (&json["provider"], &json["assigned"][0]["provider"]),
            (&"cpu".into(), &"CPUExecutionProvider".into()),
            "{json}"
        );
        assert!(json["assigned"][0]["nodes"].as_u64().unwrap() > 10, "{json}");
    }
}

#[test]
fn doctor_counts_the_processors_that_it_may_use() {
    let runtime = command("runtime", [""; 0]).get_program().to_owned();
    let doctor = |processors: Option<&str>, more: &[&str]| {
        let mut command = match processors {
            None => command("runtime", [""; 0]),
            Some(processors) => {
                let mut command = std::process::Command::new("taskset");
                command.args(["--cpu-list", processors]).arg(&runtime).env("CUDA_VISIBLE_DEVICES", "");
                command
            }
        };
        Outcome::of(command.arg("doctor").args(more)).success()
    };
    let number = |value: &serde_json::Value| value.as_u64().unwrap();
    let cpu = doctor(None, &["--json"]).json()["cpu"].clone();
    let (processors, cores, threads) = (number(&cpu["processors"]), number(&cpu["cores"]), number(&cpu["threads"]));
    assert!((1..=processors).contains(&cores) && threads == cores, "{cpu}");
    assert_eq!(processors, std::thread::available_parallelism().unwrap().get() as u64);
    let line = |processors: u64, cores: u64, threads: u64| {
        let counted = |number: u64, noun: &str| format!("{number} {noun}{}", if number == 1 { "" } else { "s" });
        let (cores, threads) = (counted(cores, "core"), counted(threads, "thread"));
        format!("processors    {processors} on {cores} for this process; a session takes {threads}\n")
    };
    let text = doctor(None, &[]).stdout;
    assert!(text.contains(&line(processors, cores, threads)), "{text}");
    // Only the first processor that this test may use.
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
    let first = allowed.split([',', '-']).next().unwrap();
    let text = doctor(Some(first), &[]).stdout;
    assert!(text.contains(&line(1, 1, 1)), "{text}");
    let cpu = doctor(Some(first), &["--json"]).json()["cpu"].clone();
    assert_eq!(["processors", "cores", "threads"].map(|key| number(&cpu[key])), [1, 1, 1]);
}

#[test]
fn doctor_judges_before_it_opens() {
    let work = tempfile::tempdir().unwrap();
    let engine = copied_engine(work.path());
    let doctor = |more: &[&str]| {
        let line = words(&[&"doctor", &"--engine", &engine]);
        run("runtime", line.into_iter().chain(more.iter().map(Into::into)))
    };
    let told = doctor(&[]).success().stdout;
    let (verdict, nodes) = (
        told.find("engine        engine: fits cpu\n").unwrap(),
        told.find("nodes         CPUExecutionProvider (").unwrap(),
    );
    assert!(verdict < nodes, "{told}");
    // One verdict for each device. An engine for CPUs ignores the devices.
    let several = doctor(&["--devices", "0,1"]).success().stdout;
    for line in
        ["engine        GPU 0: engine: fits cpu", "engine        GPU 1: engine: fits cpu", "nodes         GPU 1: CPU"]
    {
        assert!(several.contains(line), "expected `{line}` in: {several}");
    }
    let json = doctor(&["--devices", "0,1", "--json"]).success().json();
    assert_eq!(
        (&json["engine"][1]["device"], &json["engine"][1]["verdict"]["engine"]),
        (&1.into(), &"engine".into()),
        "{json}"
    );
    assert!(json["engine"][0]["assigned"][0]["nodes"].as_u64().unwrap() > 10, "{json}");
    let _ = run("runtime", ["doctor", "--require-signature", "some.pub"]).failure(2, &["--engine"]);

    // If opening fails, the verdict has already been printed.
    let graph = engine.join("model-1x3x24x24.onnx");
    fs::write(&graph, "no graph").unwrap();
    let digest = serde_json::to_value(tileforge_engine::digest::sha256_file(&graph).unwrap()).unwrap();
    edit_manifest(&engine, |manifest| manifest["files"]["model-1x3x24x24.onnx"] = digest);
    let failed = doctor(&[]).failure(1, &["ONNX Runtime cannot load the graph"]);
    assert!(failed.stdout.contains("fits cpu") && !failed.stdout.contains("nodes"), "{}", failed.stdout);
}

/// A library that reports a version of ONNX Runtime, but has no API.
fn library_of_version(folder: &Path, version: &str) -> PathBuf {
    let (source, library) = (folder.join("old.c"), folder.join("libonnxruntime.so"));
    let code = format!(
        "struct base {{ const void *(*api)(unsigned); const char *(*version)(void); }};\n\
         static const void *api(unsigned number) {{ (void)number; return 0; }}\n\
         static const char *version(void) {{ return \"{version}\"; }}\n\
         static const struct base base = {{ api, version }};\n\
         const struct base *OrtGetApiBase(void) {{ return &base; }}\n"
    );
    fs::write(&source, code).unwrap();
    let output = std::process::Command::new("cc")
        .args(words(&[&"-shared", &"-fPIC", &"-o", &library, &source]))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    library
}

#[test]
fn a_library_that_is_too_old_is_refused_with_both_versions() {
    let work = tempfile::tempdir().unwrap();
    let library = library_of_version(work.path(), "1.18.0");
    let outcome = run("runtime", words(&[&"verify", &"--engine", &demo_engine(), &"--ort-lib", &library]));
    let _ = outcome.failure(1, &["is version 1.18.0", "1.24 or newer is needed", "make setup"]);
}

#[test]
fn an_engine_for_a_gpu_that_is_not_here_is_portable() {
    let work = tempfile::tempdir().unwrap();
    let model = repository("models/compact-x4.yaml");
    for (profile, capability) in [("t4", "7.5"), ("jetson-orin", "8.7"), ("jetson-thor", "11.0")] {
        let engine = work.path().join(profile);
        let path = repository(&format!("profiles/{profile}.yaml"));
        let build = |more: &[&str]| {
            // One small tile: the profiles' own tiles take most of a minute.
            let arguments = words(&[&"build", &model, &"--profile", &path, &"--size", &"64x64", &"-o", &engine]);
            run("engine-builder", arguments.into_iter().chain(more.iter().map(Into::into)))
        };
        let _ = build(&["--require-compiled"]).failure(3, &["cannot be compiled here: there is no NVIDIA"]);
        assert!(!engine.exists());
        let share = work.path().to_str().unwrap();
        let built = build(&["--share", share]).success();
        assert!(built.stderr.contains("portable, not compiled for its GPU"), "{}", built.stderr);
        let manifest = run("runtime", words(&[&"inspect", &"--engine", &engine, &"--json"])).success().json();
        assert_eq!(
            (&manifest["target"]["portable"], &manifest["precision"]),
            (&true.into(), &"fp16".into()),
            "{manifest}"
        );
        assert_eq!(
            (&manifest["target"]["provider"], &manifest["target"]["compute_capability"]),
            (&"tensorrt".into(), &capability.into())
        );
        // TensorRT does not know ONNX Runtime's fused operators.
        assert!(manifest["graphs"].as_array().unwrap().iter().all(|graph| graph["optimised"] == false), "{manifest}");
        let verified = run("runtime", words(&[&"verify", &"--engine", &engine])).success();
        assert!(verified.stderr.contains("steps down from tensorrt to cuda:"), "{}", verified.stderr);
        let on_cpu = run("runtime", words(&[&"verify", &"--engine", &engine, &"--provider", &"cpu"])).success();
        for (found, steps) in [(&verified.stderr, 2), (&on_cpu.stderr, 0)] {
            assert_eq!(found.matches("an fp16 engine computes in fp32 on the CPU").count(), 1, "{found}");
            assert_eq!(found.matches("steps down").count(), steps, "{found}");
        }
    }
    // The weights are the same for every GPU.
    let inode = |profile: &str| {
        std::os::unix::fs::MetadataExt::ino(&fs::metadata(work.path().join(profile).join("model.weights")).unwrap())
    };
    assert_eq!(inode("t4"), inode("jetson-orin"));
    let cpu = run(
        "engine-builder",
        words(&[
            &"build",
            &model,
            &"--profile",
            &repository("profiles/cpu.yaml"),
            &"--require-compiled",
            &"--size",
            &"64x64",
            &"-o",
            &work.path().join("cpu"),
        ]),
    );
    assert!(!cpu.success().stderr.contains("portable"));
}

#[test]
fn profiles_are_listed() {
    let run = |arguments: &[&str]| {
        let mut command = command("engine-builder", arguments);
        let output = command.current_dir(repository(".")).output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let listed = run(&["profiles"]);
    assert_eq!(listed.lines().count(), 19, "{listed}");
    assert!(
        listed.lines().any(|line| line.starts_with("rtx4090 ") && line.contains("8.9") && line.contains("1008 GB/s")),
        "{listed}"
    );
    assert!(listed.contains("any GPU of compute capability 8.6, 8.9, 12.0"), "{listed}");
    let one = run(&["profiles", "rtx4090"]);
    assert!(one.lines().count() == 1 && one.contains(" tensorrt-rtx "), "{one}");
    let json: serde_json::Value = serde_json::from_str(&run(&["profiles", "--json"])).unwrap();
    let thor = json.as_array().unwrap().iter().find(|profile| profile["name"] == "jetson-thor").unwrap();
    assert_eq!(thor["device"]["compute_capability"], "11.0", "{thor}");
    assert_eq!(thor["tensorrt"]["workspace"], "2 GiB", "{thor}");
    assert!(json.as_array().unwrap().iter().any(|profile| run(&["profiles", "--here"]).trim() == profile["name"]));
}

#[test]
fn warming_runs_every_graph_once() {
    let warmed = run("runtime", words(&[&"warm", &"--engine", &demo_engine(), &"--json"])).success().json();
    let graphs = warmed["warmed"].as_array().unwrap();
    let names: Vec<&str> = graphs.iter().map(|graph| graph["graph"].as_str().unwrap()).collect();
    assert_eq!(names, ["model-1x3x24x24.onnx", "model-1x3x96x96.onnx"]);
    assert!(graphs.iter().all(|graph| graph["provider"] == "cpu" && graph["seconds"].as_f64().unwrap() > 0.0));
    let _ = run("runtime", words(&[&"warm", &"--engine", &demo_engine(), &"--provider", &"tensorrt-rtx"]))
        .failure(3, &["refused, because tensorrt-rtx: "]);
    // On a CPU, `warm` adds nothing that another machine could use.
    let work = tempfile::tempdir().unwrap();
    let output = work.path().join("warm");
    let line = |output: &Path| words(&[&"warm", &"--engine", &demo_engine(), &"--output", &output]);
    let _ = run("runtime", line(&output)).failure(3, &["no GPU of this machine has added anything to it"]);
    let _ = run("runtime", line(&demo_engine().join("warm"))).failure(2, &["this output is in the input"]);
    assert!(names_in(work.path()).is_empty());
}

#[test]
fn the_memory_of_a_run_is_measured_on_the_processor() {
    let manifest: serde_json::Value =
        serde_json::from_slice(&fs::read(demo_engine().join("manifest.json")).unwrap()).unwrap();
    let bytes = |graph: &serde_json::Value| {
        let elements = |shape: &serde_json::Value| -> u64 {
            shape.as_array().unwrap().iter().map(|length| length.as_u64().unwrap()).product()
        };
        let image = elements(&graph["inputs"]["image"]);
        let measured = graph["values_bytes"].as_u64().unwrap();
        // At least two layers of 32 channels are in memory: one is made from the other.
        assert!(measured >= 4 * 2 * 32 * image / 3, "{graph}");
        measured as f64
    };
    let graphs = manifest["graphs"].as_array().unwrap();
    let ratio = bytes(&graphs[1]) / bytes(&graphs[0]);
    assert!((14.0..18.0).contains(&ratio), "16 times the pixels take {ratio} times the memory");
    // The allocator's count: the shapes alone give 228,096 bytes for the small one.
    assert!(bytes(&graphs[0]) > 228_096.0, "{}", graphs[0]);
}
