//! Engines with plans for RTX GPUs: built by NVIDIA's own builder, signed, packed and checked on a machine without a
//! GPU.

use end_to_end::{Outcome, command, names_in, new_key, repository, run, words};
use serde_json::{Value as Json, json};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tileforge_graph::{Attribute, DataType, Node, Weight, WeightStorage, load, save};

/// A profile in `folder` for plans of these compute capabilities, with small tiles.
fn profile(folder: &Path, capabilities: &str, precision: &str) -> PathBuf {
    let path = folder.join("small-rtx.yaml");
    let text = format!(
        "name: small-rtx\nprovider: tensorrt-rtx\ncompute_capabilities: [{capabilities}]\nprecision: {precision}\n\
         tasks:\n  upscale: {{ tiles: [24x24, 40x40] }}\ncuda_graphs: true\ntensorrt:\n  workspace: 2 GiB\n\
         floors: {{ psnr_db: 30, cosine: 0.9 }}\n"
    );
    fs::write(&path, text).unwrap();
    path
}

fn build_line(model: &Path, profile: &Path, engine: &Path) -> Vec<std::ffi::OsString> {
    words(&[
        &"build",
        &model,
        &"--profile",
        &profile,
        &"-o",
        &engine,
        &"--require-compiled",
        &"--calibration-tiles",
        &"2",
        &"--json",
    ])
}

fn build(model: &Path, profile: &Path, engine: &Path) -> Outcome {
    run("engine-builder", build_line(model, profile, engine))
}

fn demo() -> PathBuf {
    repository("models/compact-x4.safetensors")
}

/// Every file of an engine, with its content.
fn content(engine: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for name in names_in(engine) {
        let path = engine.join(&name);
        if path.is_dir() {
            files.extend(names_in(&path).into_iter().map(|file| {
                let bytes = fs::read(path.join(&file)).unwrap();
                (format!("{name}/{file}"), bytes)
            }));
        } else {
            files.push((name, fs::read(path).unwrap()));
        }
    }
    files
}

#[test]
fn an_engine_has_plans_and_is_the_same_in_every_build() {
    let work = tempfile::tempdir().unwrap();
    let profile = profile(work.path(), "8.6, 8.9, 12.0", "fp16");
    let engine = work.path().join("first").join("engine");
    let report = build(&demo(), &profile, &engine).success().json();

    let plans = report["plans"].as_array().unwrap();
    assert_eq!(plans.len(), 2, "{report}");
    for plan in plans {
        assert!(plan["seconds"].as_f64().unwrap() > 0.0 && plan["layers"].as_u64().unwrap() > 10, "{plan}");
        assert!(plan["peak_bytes"].as_u64().unwrap() > 100_000_000, "{plan}");
    }
    assert_eq!(report["target"]["portable"], Json::Null, "{report}");
    assert_eq!(report["target"]["tensorrt_rtx"]["enable_cuda_graph"], "1");
    for graph in report["graphs"].as_array().unwrap() {
        let plan = &graph["plan"];
        assert_eq!(plan["library"], "1.7.1.116");
        assert_eq!(plan["compute_capabilities"], serde_json::json!(["8.6", "8.9", "12.0"]));
        let bytes = fs::read(engine.join(plan["file"].as_str().unwrap())).unwrap();
        assert!(bytes.starts_with(b"vtrt"));
        let digest = &report["files"][plan["file"].as_str().unwrap()];
        assert_eq!(digest["sha256"], tileforge_engine::digest::sha256(&bytes));
        // The model around the plan has the graph's interface, and names the plan relative to its own folder.
        let context = load(engine.join(plan["context"].as_str().unwrap())).unwrap();
        let original = load(engine.join(graph["file"].as_str().unwrap())).unwrap();
        assert_eq!((&context.inputs, &context.outputs), (&original.inputs, &original.outputs));
        let named = &context.nodes[0].attributes["ep_cache_context"];
        let name = Path::new(plan["file"].as_str().unwrap()).file_name().unwrap().to_str().unwrap();
        assert_eq!(named, &Attribute::Text(name.into()));
    }

    what_its_plans_run_is_shown(&engine, &report["graphs"]);

    // Building several plans at the same time gives the same plans.
    let again = work.path().join("second").join("engine");
    let parallel = build_line(&demo(), &profile, &again).into_iter().chain(["--jobs".into(), "2".into()]);
    let _ = run("engine-builder", parallel).success();
    let (first, second) = (content(&engine), content(&again));
    let names = |files: &[(String, Vec<u8>)]| files.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&first), names(&second));
    for ((name, first), (_, second)) in first.iter().zip(&second) {
        assert!(first == second, "{name} differs between two builds");
    }
    assert_eq!(names_in(work.path()), ["first", "second", "small-rtx.yaml"]);
    assert_eq!(names_in(&work.path().join("first")), ["engine"]);
}

fn what_its_plans_run_is_shown(engine: &Path, graphs: &Json) {
    let inspect = |more: &[&str]| {
        run("runtime", words(&[&"inspect", &"--engine", &engine]).into_iter().chain(more.iter().map(Into::into)))
    };
    let plans = inspect(&["--kernels", "--json"]).success().json();
    assert_eq!(plans.as_array().unwrap().len(), 2);
    for (plan, graph) in plans.as_array().unwrap().iter().zip(graphs.as_array().unwrap()) {
        assert_eq!(plan["plan"], graph["plan"]["file"]);
        let kernels = plan["program"]["operations"].as_array().unwrap();
        let of = |kind: &str| kernels.iter().filter(|kernel| kernel["kind"] == kind).collect::<Vec<_>>();
        // Every PReLU is computed with the convolution before it. The remaining passes move pixels.
        assert_eq!((of("convolution").len(), of("pass").len()), (18, 2), "{plan}");
        assert_eq!(kernels[1]["kernel"], "CorrMulMax");
        assert_eq!(kernels[1]["layers"][1], "body.1/PRelu");
        // Filters of 32 channels; the picture has four channels in memory, and the last filters make 48.
        let pixels: u64 =
            graph["inputs"]["image"].as_array().unwrap()[2..].iter().map(|side| side.as_u64().unwrap()).product();
        let products = (32 * 4 + 16 * 32 * 32 + 48 * 32) * 9 * pixels;
        let figures = &graph["plan"]["figures"];
        assert_eq!((figures["kernels"].as_u64(), figures["multiply_adds"].as_u64()), (Some(20), Some(products)));
        let moved = kernels
            .iter()
            .map(|kernel| kernel["read_bytes"].as_u64().unwrap() + kernel["written_bytes"].as_u64().unwrap());
        assert_eq!(figures["moved_bytes"].as_u64(), Some(moved.sum()));
        assert!(figures["weight_bytes"].as_u64().unwrap() > 300_000, "{figures}");
    }
    let text = inspect(&["--kernels"]).success().stdout;
    assert!(text.contains("20 kernels") && text.contains("CorrMulMax: body.0/Conv + body.1/PRelu"), "{text}");
    assert!(inspect(&[]).success().stdout.contains("20 kernels"));
}

#[test]
fn an_engine_without_plans_says_so_where_kernels_are_asked_for() {
    let work = tempfile::tempdir().unwrap();
    let engine = work.path().join("engine");
    let build = words(&[&"build", &demo(), &"--profile", &"cpu", &"-o", &engine]);
    let _ = run("engine-builder", build).success();
    let asked = run("runtime", words(&[&"inspect", &"--engine", &engine, &"--kernels"]));
    let _ = asked.failure(2, &["expected an engine with plans for RTX GPUs", "rtx4090"]);
}

#[test]
fn it_is_verified_signed_packed_and_unpacked_and_no_plan_can_be_altered() {
    let work = tempfile::tempdir().unwrap();
    let profile = profile(work.path(), "8.9", "fp16");
    let path = |name: &str| work.path().join(name);
    let engine = path("engine");
    let _ = build(&demo(), &profile, &engine).success();
    let verify = |engine: &Path| run("runtime", words(&[&"verify", &"--engine", &engine]));
    let told = verify(&engine).success();
    assert!(told.stderr.contains("steps down from tensorrt-rtx to tensorrt: "), "{}", told.stderr);
    let judged = run("runtime", words(&[&"doctor", &"--engine", &engine])).success();
    assert!(judged.stdout.contains("falls back to cpu, because tensorrt-rtx: "), "{}", judged.stdout);
    let _ = run("runtime", words(&[&"verify", &"--engine", &engine, &"--provider", &"tensorrt-rtx"]))
        .failure(3, &["refused, because tensorrt-rtx: "]);

    let [private, public] = new_key(work.path(), "ours");
    let _ = run("engine-builder", words(&[&"sign", &engine, &"--key", &private])).success();
    let _ = run("engine-builder", words(&[&"pack", &engine, &"-o", &path("engine.tar")])).success();
    let unpacked = path("unpacked");
    let archive = path("engine.tar");
    let unpack = words(&[&"unpack", &archive, &"-o", &unpacked, &"--require-signature", &public]);
    let _ = run("runtime", unpack).success();
    assert!(content(&engine) == content(&unpacked));

    let plan = unpacked.join("tensorrt-rtx/model-1x3x24x24.plan");
    let mut bytes = fs::read(&plan).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&plan, &bytes).unwrap();
    let _ = verify(&unpacked).failure(1, &["model-1x3x24x24.plan: expected SHA-256"]);
    fs::remove_file(&plan).unwrap();
    let _ = verify(&unpacked).failure(1, &["model-1x3x24x24.plan", "missing"]);
}

/// A graph of the demo network with a fixed size, after a change.
fn changed_graph(folder: &Path, name: &str, change: impl FnOnce(&mut tileforge_graph::Model)) -> PathBuf {
    let graph = folder.join(name);
    let checkpoint = repository("models/compact-x4.safetensors");
    let line =
        words(&[&"export", &checkpoint, &"--shapes", &"image:1x3x24x24", &"--weights", &"inline", &"-o", &graph]);
    let _ = run("exporter", line).success();
    let mut model = load(&graph).unwrap();
    change(&mut model);
    save(&model, &graph, WeightStorage::Inline).unwrap();
    graph
}

/// Inserts a node of this operator before the last node.
fn insert(model: &mut tileforge_graph::Model, operator: &str, attributes: &[(&str, Attribute)]) {
    let last = model.nodes.len() - 1;
    let value = model.nodes[last].inputs[0].clone();
    let node = Node {
        name: format!("broken/{operator}"),
        operator: operator.into(),
        domain: String::new(),
        inputs: vec![value],
        outputs: vec!["broken".into()],
        attributes: attributes.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
    };
    model.nodes[last].inputs[0] = "broken".into();
    model.nodes.insert(last, node);
}

/// A graph in 8-bit floating point, which compute capability 8.6 lacks.
pub(crate) fn graph_in_fp8(folder: &Path) -> PathBuf {
    changed_graph(folder, "fp8.onnx", |model| {
        let scale = Weight::from_bytes(DataType::F32, vec![], 1_f32.to_le_bytes().to_vec()).unwrap();
        let zero = Weight::from_bytes(DataType::F8E4M3, vec![], vec![0]).unwrap();
        model.weights.insert("scale".into(), scale);
        model.weights.insert("zero".into(), zero);
        insert(model, "DequantizeLinear", &[]);
        let last = model.nodes.len() - 1;
        let quantised = Node {
            name: "broken/QuantizeLinear".into(),
            operator: "QuantizeLinear".into(),
            inputs: vec![model.nodes[last - 1].inputs[0].clone(), "scale".into(), "zero".into()],
            outputs: vec!["quantised".into()],
            ..model.nodes[last - 1].clone()
        };
        model.nodes[last - 1].inputs = vec!["quantised".into(), "scale".into(), "zero".into()];
        model.nodes.insert(last - 1, quantised);
    })
}

#[test]
fn what_the_builder_refuses_is_an_error_with_the_node_and_leaves_nothing() {
    let work = tempfile::tempdir().unwrap();
    let profile = profile(work.path(), "8.6", "fp16");
    let refused = |graph: &Path, words: &[&str]| {
        let engine = work.path().join("engines").join("engine");
        let outcome = build(graph, &profile, &engine).failure(1, words);
        assert!(outcome.stderr.len() < 4000, "{}", outcome.stderr);
        assert!(!engine.exists());
        let left = work.path().join("engines");
        assert!(!left.exists() || names_in(&left).is_empty(), "{:?}", names_in(&left));
    };
    let fp8 = graph_in_fp8(work.path());
    refused(&fp8, &["compute capability 8.6 has no fp8_e4m3", "broken/QuantizeLinear"]);
    // A shape that does not fit its operator.
    let reshape = changed_graph(work.path(), "shape.onnx", |model| {
        let shape: Vec<u8> = [1_i64, 7, 11, 13].iter().flat_map(|dim| dim.to_le_bytes()).collect();
        model.weights.insert("shape".into(), Weight::from_bytes(DataType::I64, vec![4], shape).unwrap());
        insert(model, "Reshape", &[]);
        let at = model.nodes.len() - 2;
        model.nodes[at].inputs.push("shape".into());
    });
    refused(&reshape, &["broken/Reshape"]);
    // An operator that neither our code nor the builder knows.
    let operator = changed_graph(work.path(), "operator.onnx", |model| insert(model, "Unheard", &[]));
    refused(&operator, &["broken/Unheard"]);
}

#[test]
fn lint_asks_the_builder() {
    let work = tempfile::tempdir().unwrap();
    let fp16 = work.path().join("fp16.onnx");
    let graph = changed_graph(work.path(), "graph.onnx", |_| ());
    let _ = run("engine-builder", words(&[&"convert", &graph, &"--precision", &"fp16", &"-o", &fp16])).success();
    let lint = |graph: &Path, capability: &str| {
        let line = words(&[&"lint", &graph, &"--target", &"tensorrt-rtx", &"--capability", &capability]);
        run("engine-builder", line)
    };
    let good = lint(&fp16, "8.6,8.9,12.0").success().stdout;
    assert!(good.contains("tensorrt-rtx: 0 errors, 0 warnings, ") && good.contains("hint: "), "{good}");
    // Turing does not support FP32 products.
    let product = changed_graph(work.path(), "product.onnx", |model| {
        let weight = Weight::zeros(DataType::F32, vec![96, 96]).unwrap();
        model.weights.insert("square".into(), weight);
        let value = model.outputs[0].name.clone();
        let last = model.nodes.len() - 1;
        model.nodes[last].outputs[0] = "before".into();
        model.nodes.push(Node {
            name: "broken/MatMul".into(),
            operator: "MatMul".into(),
            domain: String::new(),
            inputs: vec!["before".into(), "square".into()],
            outputs: vec![value],
            attributes: Default::default(),
        });
    });
    let refused = lint(&product, "7.5").failure(4, &["tensorrt-rtx would not take this graph: 1 error"]);
    assert!(refused.stdout.contains("error: broken/MatMul (MatMul): "), "{}", refused.stdout);
    let _ = lint(&product, "8.9").success();
}

/// The processes that a process has started.
fn children(of: u32) -> Vec<u32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{of}/task")) else { return Vec::new() };
    tasks
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|text| text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>())
        .collect()
}

#[test]
fn a_killed_build_leaves_neither_an_engine_nor_a_builder() {
    for (signal, milliseconds) in [("INT", 0), ("TERM", 30), ("KILL", 100), ("KILL", 0)] {
        let work = tempfile::tempdir().unwrap();
        let (profile, engine) = (profile(work.path(), "8.9", "fp16"), work.path().join("engine"));
        let mut process = command("engine-builder", build_line(&demo(), &profile, &engine))
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let started = Instant::now();
        let builders = loop {
            let builders = children(process.id());
            if !builders.is_empty() {
                break builders;
            }
            assert!(process.try_wait().unwrap().is_none() && started.elapsed() < Duration::from_secs(300));
            std::thread::sleep(Duration::from_millis(1));
        };
        std::thread::sleep(Duration::from_millis(milliseconds));
        let kill = Command::new("kill").args([format!("-{signal}"), process.id().to_string()]).status().unwrap();
        assert!(kill.success());
        process.wait().unwrap();
        let gone = Instant::now();
        let alive = |pid: &u32| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            !status.is_empty() && !status.contains("\nState:\tZ")
        };
        while builders.iter().any(alive) {
            assert!(gone.elapsed() < Duration::from_secs(10), "{signal}: the builder goes on without its parent");
            std::thread::sleep(Duration::from_millis(5));
        }
        // The build may have finished before the signal arrived. Then the engine is complete.
        if engine.exists() {
            let _ = run("runtime", words(&[&"verify", &"--engine", &engine])).success();
        }
        let left = names_in(work.path());
        let foreign = left
            .iter()
            .filter(|name| !["engine", "small-rtx.yaml"].contains(&name.as_str()))
            .find(|name| signal != "KILL" || !name.starts_with(".tileforge-"));
        assert_eq!(foreign, None, "{signal}");
    }
}

/// The disk of the plan is full. The tests of the builder's processes cover the engine in that case.
#[test]
fn a_plan_that_cannot_be_written_is_an_error() {
    let work = tempfile::tempdir().unwrap();
    let graph = changed_graph(work.path(), "graph.onnx", |_| ());
    let job = serde_json::json!({
        "parent": std::process::id(),
        "library": repository(".onnxruntime/lib"),
        "graph": graph,
        "plan": "/dev/full",
        "capabilities": [tileforge_tensorrt::ComputeCapability::Sm89],
        "options": tileforge_tensorrt::BuildOptions::default(),
    });
    let mut process = command("engine-builder", ["build-plan"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    writeln!(process.stdin.take().unwrap(), "{job}").unwrap();
    let answers = String::from_utf8(process.wait_with_output().unwrap().stdout).unwrap();
    assert!(answers.contains(r#"{"progress":"#), "{answers}");
    let last = answers.lines().last().unwrap();
    assert!(last.starts_with(r#"{"unwritable":"#) && last.contains("No space left on device"), "{last}");
}

#[test]
fn a_full_disk_leaves_nothing() {
    let work = tempfile::tempdir().unwrap();
    let (profile, engine) = (profile(work.path(), "8.9", "fp16"), work.path().join("engine"));
    let whole = work.path().join("whole");
    let _ = build(&demo(), &profile, &whole).success();
    let before = names_in(work.path());
    let files = [&whole, &whole.join("tensorrt-rtx")].map(|folder| fs::read_dir(folder).unwrap());
    let largest = files.into_iter().flatten().map(|entry| entry.unwrap().metadata().unwrap().len()).max().unwrap();
    let largest = largest / 1024;
    // From too small for the first graph to too small for the largest file.
    for kibibytes in [4, largest / 4, largest / 2, largest - 1] {
        let program = command("engine-builder", build_line(&demo(), &profile, &engine));
        let mut limited = Command::new("bash");
        limited.args(["-c", "trap '' XFSZ; ulimit -f \"$0\"; exec \"$@\""]).arg(kibibytes.to_string());
        limited.arg(program.get_program()).args(program.get_args());
        limited.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let _ = Outcome::of(&mut limited).failure(1, &["File too large"]);
        assert_eq!(names_in(work.path()), before, "{kibibytes}");
    }
}

/// `--size` is in pixels of the picture that a latent network's autoencoder makes.
#[test]
fn a_checkpoint_becomes_plans_at_the_sizes_that_were_asked_for() {
    let work = tempfile::tempdir().unwrap();
    let profile = profile(work.path(), "8.9", "fp16");
    let build = |checkpoint: &Path, more: &[&str]| {
        let engine = work.path().join("engine");
        run("engine-builder", build_line(checkpoint, &profile, &engine).into_iter().chain(more.iter().map(Into::into)))
    };
    let shapes = |outcome: Outcome| {
        let report = outcome.success().json();
        let graphs = report["graphs"].as_array().unwrap().clone();
        graphs.iter().map(|graph| graph["file"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let upscaler = shapes(build(&repository("models/compact-x4.safetensors"), &["--size", "40x24,32x32"]));
    assert_eq!(upscaler, ["model-1x3x24x40.onnx", "model-1x3x32x32.onnx"]);
    let component = |folder: &Path, name, sizes| build(folder, &["--component", name, "--size", sizes]);
    let autoencoder = repository("tests/golden-diffusers/vae");
    // This autoencoder halves once, but the network's latents are counted with three halvings.
    let decoder = shapes(component(&autoencoder, "vae_decoder", "64x32"));
    assert_eq!(decoder, ["model-1x4x16x32.onnx"]);
    let network = shapes(component(&repository("tests/golden-diffusers/unet"), "unet", "128x64"));
    assert_eq!(network, ["model-1x4x8x16.onnx"]);
    let refused = component(&autoencoder, "vae_decoder", "65x32");
    let _ = refused.failure(1, &["no width of 65 is possible; the next one that is has 66"]);
    let variant = work.path().join("vae");
    fs::create_dir(&variant).unwrap();
    for (from, to) in
        [("config.json", "config.json"), ("diffusion_pytorch_model.safetensors", "model.fp16.safetensors")]
    {
        fs::copy(autoencoder.join(from), variant.join(to)).unwrap();
    }
    let words = [
        "expected weights named diffusion_pytorch_model.safetensors",
        "give the file itself",
        "vae/model.fp16.safetensors",
    ];
    let _ = component(&variant, "vae_decoder", "64x32").failure(1, &words);
}

/// A video's first chunk has one frame more, from which the network starts; every later chunk takes the caches of the
/// chunk before.
#[test]
fn the_chunks_of_a_video_become_plans() {
    let work = tempfile::tempdir().unwrap();
    let profile = profile(work.path(), "8.9", "fp16");
    let encoder = |chunk: &str, frames: &str| {
        let mut line = build_line(
            &repository("tests/golden-video-vae/seedvr2/ema_vae.safetensors"),
            &profile,
            &work.path().join("engine"),
        );
        line.extend(["--component", "vae_encoder", "--chunk", chunk, "--size", "32x16"].map(Into::into));
        line.extend(["--frames", frames].map(Into::into));
        run("engine-builder", line)
    };
    for (chunk, frames, caches) in [("first", "5", false), ("next", "4", true)] {
        let report = encoder(chunk, frames).success().json();
        let [graph] = report["graphs"].as_array().unwrap().as_slice() else { panic!("{report}") };
        assert_eq!(graph["inputs"]["sample"], json!([1, 3, frames.parse::<u32>().unwrap(), 16, 32]));
        assert_eq!(graph["inputs"].as_object().unwrap().len() > 1, caches, "{graph}");
        assert!(graph["plan"].is_object(), "{graph}");
    }
    let before = names_in(work.path());
    let _ = encoder("first", "4").failure(1, &["frames of `sample`: expected 4 · n − 3", "found 4"]);
    let _ = encoder("next", "5").failure(1, &["frames of `sample`: expected a multiple of 4, found 5"]);
    assert_eq!(names_in(work.path()), before);
    let mut picture = build_line(&demo(), &profile, &work.path().join("picture"));
    picture.extend(["--size", "32x32", "--frames", "5"].map(Into::into));
    let _ = run("engine-builder", picture).failure(1, &["frames are for videos, and this network has none"]);
    assert_eq!(names_in(work.path()), before);
}

/// ONNX Runtime in a folder without NVIDIA's builder. It is a copy, because programs follow links to the library's own
/// folder.
fn without_builder(folder: &Path) -> PathBuf {
    let library = folder.join("libonnxruntime.so");
    fs::copy(repository(".onnxruntime/lib/libonnxruntime.so"), &library).unwrap();
    library
}

/// Builds with another library. The errors must contain `words`; with the user's permission, the engine is portable.
fn portable_with(library: &Path, words: &[&str]) {
    let work = tempfile::tempdir().unwrap();
    let (profile, engine) = (profile(work.path(), "8.9", "fp16"), work.path().join("engine"));
    let build = |more: &[&str]| {
        let line = self::words(&[&"build", &demo(), &"--profile", &profile, &"-o", &engine, &"--ort-lib", &library]);
        run("engine-builder", line.into_iter().chain(more.iter().map(Into::into)))
    };
    for without in [&["--require-compiled"][..], &[]] {
        let _ = build(without).failure(3, words).failure(3, &["--rtx-lib", "TENSORRT_RTX_LIB_PATH", "--portable"]);
        assert!(!engine.exists());
    }
    let portable = build(&["--portable"]).success();
    for word in &words[..1] {
        assert!(portable.stderr.contains(word), "{}", portable.stderr);
    }
    let manifest = run("runtime", self::words(&[&"inspect", &"--engine", &engine, &"--json"])).success().json();
    assert_eq!(manifest["target"]["portable"], true, "{manifest}");
    let _ = run("runtime", self::words(&[&"verify", &"--engine", &engine])).success();
}

#[test]
fn without_the_library_the_build_fails_and_the_user_hears_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    portable_with(&without_builder(folder.path()), &["libtensorrt_rtx.so.1: not there", "make setup RTX=1"]);
}

/// A library is executed, so a library that was found by search must not be writable by other users.
#[test]
fn a_library_that_everybody_may_change_is_not_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("engine-builder");
    fs::copy(command("engine-builder", [""; 0]).get_program(), &program).unwrap();
    let _ = without_builder(folder.path());
    let [planted, _] = ["libtensorrt_rtx.so.1", "libtensorrt_onnxparser_rtx.so.1"].map(|name| {
        let path = folder.path().join(name);
        fs::write(&path, "not a library").unwrap();
        path
    });
    let (profile, engine) = (profile(folder.path(), "8.9", "fp16"), folder.path().join("engine"));
    let allowed = |mode, word: &str| {
        fs::set_permissions(&planted, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        let mut line = Command::new(&program);
        line.args(build_line(&demo(), &profile, &engine)).env_remove("ORT_DYLIB_PATH");
        let _ = Outcome::of(&mut line).failure(3, &["libtensorrt_rtx.so.1", word]);
    };
    allowed(0o666, "every user can write to it");
    allowed(0o644, "cannot be loaded");
}

/// The bindings are for one release, so functions of another release must not be called.
#[test]
fn a_library_of_another_release_builds_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("release.c");
    let release = [("Major", 1), ("Minor", 8), ("Patch", 2), ("Build", 33)];
    let functions = release.map(|(part, number)| format!("int getInferLib{part}Version(void){{ return {number}; }}\n"));
    fs::write(&source, functions.concat()).unwrap();
    for name in ["libtensorrt_rtx.so.1", "libtensorrt_onnxparser_rtx.so.1"] {
        let mut compiler = Command::new("cc");
        let made = compiler.args(["-shared", "-fPIC", "-o"]).arg(folder.path().join(name)).arg(&source).status();
        assert!(made.unwrap().success());
    }
    portable_with(&without_builder(folder.path()), &["1.8.2.33", "make setup RTX=1"]);
}
