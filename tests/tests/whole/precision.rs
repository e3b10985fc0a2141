//! Engines in fewer bits: their graphs, their gates, and refused options.

use end_to_end::{assert_verified, build_engine, manifest_in, names_in, repository, run, run_with_cache_in, words};
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use tileforge_contract::{ARCHITECTURE_KEY, CONTRACT_KEY, Padding, Precision, ReceptiveField, Upscale};
use tileforge_exporter::{Checkpoint, Noise, Shapes, arch::registry, export, synthesise};
use tileforge_graph::{ConvOptions, DataType, Model, TensorType, Trace, Value, Weight, WeightStorage, save};

/// A profile for tiles of 24 and 48 pixels, with one precision and one floor.
fn profile(folder: &Path, provider: &str, precision: &str, psnr_db: f64) -> PathBuf {
    let text = fs::read_to_string(repository("tests/profiles/small-tiles.yaml")).unwrap();
    // Speed gates are off, because no test may depend on time.
    let text = text
        .replace("cosine: 0.999999", "cosine: 0.99\n  speed: 0")
        .replace("name: small-tiles", "name: few-bits")
        .replace("96x96", "48x48")
        .replace("psnr_db: 100", &format!("psnr_db: {psnr_db}"));
    let text = text
        .replace("provider: cpu", &format!("provider: {provider}"))
        .replace("precision: fp32", &format!("precision: {precision}"));
    let gpu = "gpu: A GPU\ndriver_names: [A GPU]\narchitecture: Ada Lovelace\ncompute_capability: 8.9\nmemory: 24 \
        GB\nbandwidth: 1008 GB/s\n";
    let text = if provider == "cpu" { text } else { text + gpu };
    let path = folder.join("few-bits.yaml");
    fs::write(&path, text).unwrap();
    path
}

fn gate(manifest: &Json, name: &str) -> f64 {
    let of_name = |gate: &&Json| gate["name"] == name;
    manifest["gates"]
        .as_array()
        .unwrap()
        .iter()
        .filter(of_name)
        .map(|gate| gate["value"].as_f64().unwrap())
        .fold(f64::INFINITY, f64::min)
}

fn graph_of(work: &Path, size: usize) -> Model {
    tileforge_graph::load(work.join(format!("engine/model-1x3x{size}x{size}.onnx"))).unwrap()
}

fn count(model: &Model, operator: &str) -> usize {
    model.nodes.iter().filter(|node| node.operator == operator).count()
}

fn compact() -> PathBuf {
    repository("models/compact-x4.safetensors")
}

#[test]
fn fp16_has_typed_tensors_and_casts_at_its_ends_alone() {
    let work = tempfile::tempdir().unwrap();
    let profile = profile(work.path(), "cpu", "fp16", 60.0);
    let _ = build_engine(work.path(), &compact(), &profile, &[]).success();
    let (manifest, graph) = (manifest_in(work.path()), graph_of(work.path(), 24));
    assert_eq!((manifest["precision"].as_str(), manifest.get("islands")), (Some("fp16"), None));
    assert_eq!((manifest["calibration"]["tiles"].as_u64(), manifest["calibration"]["range"].as_str()), (Some(4), None));
    assert!(gate(&manifest, "psnr_db") >= 60.0);
    assert_eq!(count(&graph, "Cast"), 2);
    assert!(graph.weights.values().all(|weight| !matches!(weight.data_type(), DataType::F32)), "{:?}", graph.weights);
    assert_eq!(graph.inputs[0].ty.data_type, DataType::F32);
    let bytes = fs::metadata(work.path().join("engine/model.weights")).unwrap().len();
    assert!(bytes < 340_000, "{bytes} bytes of weights in 16 bits");
    assert_verified(work.path());
    let (picture, output) = (repository("tests/images/coffee.png"), work.path().join("large.png"));
    let engine = work.path().join("engine");
    let _ =
        run("runtime", words(&[&"infer", &"--engine", &engine, &"--input", &picture, &"--output", &output])).success();
}

/// Convolutions whose activations leave FP16's range in the middle and return to it, as in SDXL's VAE; an upscaler of
/// scale 1.
fn overflowing(folder: &Path) -> PathBuf {
    let trace = Trace::new("overflowing", 9, 20);
    let mut noise = Noise::new(5);
    let mut weight = |name: &str, dims: &[usize], size: f32| {
        let bytes: Vec<u8> =
            (0..dims.iter().product()).flat_map(|_| (noise.next_signed() * size).to_le_bytes()).collect();
        trace.weight(name, Weight::from_bytes(DataType::F32, dims.to_vec(), bytes).unwrap())
    };
    let x = trace.input("image", TensorType::new(DataType::F32, [1, 3, 24, 24]));
    let mut convolution = |name: &str, x: &Value, dims: [usize; 4], size: f32| {
        x.conv(&weight(&format!("{name}.weight"), &dims, size), None, &ConvOptions::same(3))
    };
    let first = convolution("enter", &x, [16, 3, 3, 3], 0.3);
    let large = convolution("grow", &first.silu(), [16, 16, 3, 3], 60_000.0).leaky_relu(0.1);
    let small = convolution("shrink", &large, [16, 16, 3, 3], 1e-6);
    let last = convolution("leave", &small.silu(), [3, 16, 3, 3], 0.1);
    trace.output("upscaled", &last);
    upscaler(trace, folder)
}

/// Writes the graph of `trace` to a file: an upscaler of scale 1 from `image` to `upscaled`.
fn upscaler(trace: Trace, folder: &Path) -> PathBuf {
    let mut model = trace.finish().unwrap_or_else(|e| panic!("{e}"));
    let contract = Upscale {
        input: "image".into(),
        output: "upscaled".into(),
        scale: 1,
        channels: 3,
        range: [0.0, 1.0],
        size_multiple: 1,
        size_minimum: 1,
        only_size: None,
        padding: Padding::Reflect,
        receptive_field: ReceptiveField::Radius(4),
        safe_precisions: vec![Precision::Fp32],
    };
    let contract = contract.contract().to_json().unwrap();
    model.metadata = [(CONTRACT_KEY, contract.as_str()), (ARCHITECTURE_KEY, "test")]
        .map(|(key, text)| (key.into(), text.into()))
        .into();
    let path = folder.join("model.onnx");
    save(&model, &path, WeightStorage::Inline).unwrap();
    path
}

/// Writes a checkpoint with its weights in FP16.
fn in_half(checkpoint: &Path, half: &Path) {
    let bytes = fs::read(checkpoint).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let halved: Vec<_> = tensors
        .iter()
        .map(|(name, view)| {
            let weight = Weight::from_bytes(DataType::F32, view.shape().to_vec(), view.data().to_vec()).unwrap();
            (name, view.shape().to_vec(), weight.cast(DataType::F16).unwrap().to_bytes().unwrap().into_owned())
        })
        .collect();
    let views = halved.iter().map(|(name, dims, bytes)| {
        (*name, safetensors::tensor::TensorView::new(safetensors::Dtype::F16, dims.clone(), bytes).unwrap())
    });
    safetensors::serialize_to_file(views, None, half).unwrap();
}

/// The picture that an engine makes from one of 24×24 pixels.
fn enlarged(work: &Path, engine: &Path) -> PathBuf {
    let [input, output] = ["small.png", "large.png"].map(|name| work.join(name));
    if !input.exists() {
        let whole = image::open(repository("tests/images/coffee.png")).unwrap();
        whole.crop_imm(100, 100, 24, 24).save(&input).unwrap();
    }
    let line = words(&[&"infer", &"--engine", &engine, &"--input", &input, &"--output", &output, &"--strict"]);
    let _ = run("runtime", line).success();
    output
}

#[test]
fn weights_alone_are_in_fewer_bits() {
    let work = tempfile::tempdir().unwrap();
    let half = work.path().join("half.safetensors");
    in_half(&compact(), &half);
    let mut sizes = BTreeMap::new();
    let mut pictures = BTreeMap::new();
    for (checkpoint, of) in [(compact(), "fp32"), (half, "fp16")] {
        for (precision, stored, least_db) in [
            ("fp32", DataType::F32, 100.0),
            ("fp16-weights", DataType::F16, 60.0),
            ("int8-weights", DataType::I8, 35.0),
        ] {
            let profile = profile(work.path(), "cpu", precision, least_db);
            let _ = build_engine(work.path(), &checkpoint, &profile, &[]).success();
            let (manifest, graph) = (manifest_in(work.path()), graph_of(work.path(), 24));
            assert_eq!(manifest["precision"], precision);
            assert!(gate(&manifest, "psnr_db") >= least_db, "{}", manifest["gates"]);
            // These precisions are not calibrated, and need not be faster.
            assert!(manifest.get("calibration").is_none(), "{manifest}");
            let inner = graph.weights.values().filter(|weight| weight.elements() > 5_000);
            assert!(
                inner.clone().count() > 10 && inner.clone().all(|weight| weight.data_type() == stored),
                "{precision}"
            );
            // Computed values have 32 bits.
            let convolutions = graph.nodes.iter().filter(|node| node.operator == "Conv");
            assert!(
                convolutions
                    .flat_map(|node| &node.outputs)
                    .all(|name| { graph.type_of(name).is_some_and(|ty| ty.data_type == DataType::F32) })
            );
            assert_verified(work.path());
            sizes.insert((of, precision), manifest["files"]["model.weights"]["bytes"].as_f64().unwrap());
            let picture = fs::read(enlarged(work.path(), &work.path().join("engine"))).unwrap();
            pictures.insert((of, precision), picture);
        }
    }
    for (precision, share) in [("fp16-weights", 0.51), ("int8-weights", 0.27)] {
        assert!(sizes[&("fp32", precision)] < share * sizes[&("fp32", "fp32")], "{sizes:?}");
    }
    // The engine loses nothing of the checkpoint's values.
    assert!(pictures[&("fp16", "fp16-weights")] == pictures[&("fp16", "fp32")]);
    assert!(pictures[&("fp32", "fp16-weights")] != pictures[&("fp32", "fp32")]);
}

#[test]
fn an_overflow_becomes_an_island() {
    let work = tempfile::tempdir().unwrap();
    let model = overflowing(work.path());
    let profile = profile(work.path(), "tensorrt", "fp16", 50.0);
    let _ = build_engine(work.path(), &model, &profile, &[]).success();
    let manifest = manifest_in(work.path());
    assert!(gate(&manifest, "psnr_db_emulated").is_finite());
    assert_eq!(manifest["islands"], serde_json::json!(["grow/Conv", "grow/LeakyRelu", "shrink/Conv"]));
    assert_eq!(gate(&manifest, "finite"), 1.0);
    let graph = graph_of(work.path(), 24);
    let type_of = |name: &str| graph.types[name].data_type;
    assert_eq!(type_of("grow/LeakyRelu"), DataType::F32);
    assert_eq!(type_of("enter/Conv"), DataType::F16);
    // Casts at the input, around the island, and at the output.
    assert_eq!(count(&graph, "Cast"), 4);
    assert_verified(work.path());
    // In 8 bits, the island's values are quantised from FP32 and dequantised to FP32.
    for precision in ["int8", "fp8"] {
        let profile = self::profile(work.path(), "tensorrt", precision, 25.0);
        let _ = build_engine(work.path(), &model, &profile, &[]).success();
        let graph = graph_of(work.path(), 24);
        let quantise = graph
            .nodes
            .iter()
            .find(|node| node.operator == "QuantizeLinear" && node.inputs[0] == "grow/LeakyRelu")
            .unwrap();
        let dequantise = graph.nodes.iter().find(|node| node.inputs[0] == quantise.outputs[0]).unwrap();
        let types = ["grow/LeakyRelu", &quantise.inputs[1], &dequantise.outputs[0]]
            .map(|name| graph.type_of(name).unwrap().data_type);
        assert_eq!(types, [DataType::F32; 3]);
    }
}

/// Convolutions with PReLU between them, an upscaler of scale 1.
fn with_slopes(folder: &Path, slopes: [f32; 16]) -> PathBuf {
    let trace = Trace::new("slopes", 9, 20);
    let mut noise = Noise::new(7);
    let mut weight = |name: &str, dims: &[usize]| {
        let bytes: Vec<u8> =
            (0..dims.iter().product()).flat_map(|_| (noise.next_signed() * 0.2).to_le_bytes()).collect();
        trace.weight(name, Weight::from_bytes(DataType::F32, dims.to_vec(), bytes).unwrap())
    };
    let x = trace.input("image", TensorType::new(DataType::F32, [1, 3, 24, 24]));
    let bytes: Vec<u8> = slopes.iter().flat_map(|slope| slope.to_le_bytes()).collect();
    let slope = trace.weight("slope", Weight::from_bytes(DataType::F32, vec![16, 1, 1], bytes).unwrap());
    let x = x.conv(&weight("enter.weight", &[16, 3, 3, 3]), None, &ConvOptions::same(3)).prelu(&slope);
    let x = x.conv(&weight("inner.weight", &[16, 16, 3, 3]), None, &ConvOptions::same(3)).prelu(&slope);
    trace.output("upscaled", &x.conv(&weight("leave.weight", &[3, 16, 3, 3]), None, &ConvOptions::same(3)));
    upscaler(trace, folder)
}

#[test]
fn prelu_of_any_slopes_stays_in_the_convolutions_form() {
    let work = tempfile::tempdir().unwrap();
    let [mut below, mut mixed] = [[0.2_f32; 16]; 2];
    (below[3], mixed[3], mixed[5]) = (-0.4, 1.75, -0.4);
    for (slopes, stages) in [(below, (2, 0)), ([1.5; 16], (0, 2)), (mixed, (2, 2))] {
        let model = with_slopes(work.path(), slopes);
        let fp32 = profile(work.path(), "cpu", "fp32", 120.0);
        let _ = build_engine(work.path(), &model, &fp32, &[]).success();
        let graph = graph_of(work.path(), 24);
        assert_eq!((count(&graph, "PRelu"), count(&graph, "Relu"), count(&graph, "Mul")), (0, 2, 4));
        let int8 = profile(work.path(), "cpu", "int8", 35.0);
        let _ = build_engine(work.path(), &model, &int8, &[]).success();
        let graph = graph_of(work.path(), 24);
        assert_eq!((count(&graph, "PRelu"), (count(&graph, "Max"), count(&graph, "Min"))), (0, stages), "{slopes:?}");
        assert_eq!(manifest_in(work.path())["islands"], serde_json::json!(["leave/Conv"]));
        assert_verified(work.path());
    }
}

#[test]
fn fp32_of_a_cpu_has_no_operator_that_leaves_the_convolutions_layout() {
    let work = tempfile::tempdir().unwrap();
    let profile = profile(work.path(), "cpu", "fp32", 120.0);
    let _ = build_engine(work.path(), &compact(), &profile, &[]).success();
    let graph = graph_of(work.path(), 48);
    assert_eq!((count(&graph, "PRelu"), count(&graph, "Gather")), (0, 0));
    // Each of the 48 residual channels uses one of the picture's three channels.
    let filters: Vec<&Weight> = graph.weights.values().filter(|weight| weight.dims() == [48, 3, 1, 1]).collect();
    let expected: Vec<f32> = (0..48 * 3).map(|at| if at % 3 == at / 3 / 16 { 1.0 } else { 0.0 }).collect();
    assert_eq!(filters.iter().map(|filters| filters.to_f32s().unwrap()).collect::<Vec<_>>(), [expected]);
    assert_verified(work.path());
}

#[test]
fn swinir_keeps_its_quality_in_fp16() {
    let work = tempfile::tempdir().unwrap();
    let path = work.path().join("swinir.safetensors");
    let swin = registry().iter().find(|entry| entry.name == "SwinIR").unwrap();
    let (_, tiny) = swin.presets().into_iter().find(|(name, _)| *name == "tiny").unwrap();
    // Stored in 16 bits, so that the engine's weights are the checkpoint's bytes.
    synthesise(tiny.as_ref(), DataType::F16, 1, &path).unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    let profile = profile(work.path(), "cpu", "fp16", 50.0);
    let _ = build_engine(work.path(), &path, &profile, &[]).success();
    assert_eq!(gate(&manifest_in(work.path()), "finite"), 1.0);
    let exported = export(&checkpoint, &Shapes::of("image", &[1, 3, 24, 24]), &BTreeMap::new()).unwrap().model;
    let casts_of_weights =
        exported.nodes.iter().filter(|node| node.operator == "Cast" && exported.weights.contains_key(&node.inputs[0]));
    assert!(casts_of_weights.count() > 10);
    // The smallest multiple of the window that contains the tile.
    let file = names_in(&work.path().join("engine")).into_iter().find(|name| name.ends_with(".onnx")).unwrap();
    let graph = tileforge_graph::load(work.path().join("engine").join(file)).unwrap();
    assert!(graph.nodes.iter().all(|node| node.operator != "Cast" || !graph.weights.contains_key(&node.inputs[0])));
    assert_verified(work.path());
}

#[test]
fn int8_of_a_cpu_is_made_of_what_onnxruntime_fuses() {
    let work = tempfile::tempdir().unwrap();
    let profile = profile(work.path(), "cpu", "int8", 40.0);
    let photos = work.path().join("photos");
    fs::create_dir(&photos).unwrap();
    fs::copy(repository("tests/images/coffee.png"), photos.join("coffee.png")).unwrap();
    let calibrated = ["--calibration", photos.to_str().unwrap(), "--range", "percentile"];
    let report =
        build_engine(work.path(), &compact(), &profile, &[&calibrated[..], &["--json"]].concat()).success().json();
    let (manifest, graph) = (manifest_in(work.path()), graph_of(work.path(), 48));
    // The last layer is included, since its output is a residual.
    assert_eq!(manifest.get("islands"), None);
    assert_eq!(
        (&manifest["calibration"]["source"], &manifest["calibration"]["range"]),
        (&"folder".into(), &"percentile".into())
    );
    // Speed was measured. Another test, which does not depend on time, shows that an engine with a missed floor is
    // refused.
    let speed = report["speed"].as_array().unwrap();
    let floors: Vec<(&str, f64)> =
        speed.iter().map(|gate| (gate["name"].as_str().unwrap(), gate["floor"].as_f64().unwrap())).collect();
    assert_eq!(floors, [("speed_over_fp32", 0.0), ("speed_over_fp16", 0.0)]);
    assert!(speed.iter().all(|gate| gate["value"].as_f64().unwrap() > 0.0) && gate(&manifest, "cosine") > 0.99);
    assert!(
        manifest["gates"].as_array().unwrap().iter().all(|gate| !gate["name"].as_str().unwrap().contains("speed")),
        "{manifest}"
    );
    // PReLU is the larger of x and slope · x, where the product is a depthwise convolution. The picture has four
    // channels.
    assert_eq!((count(&graph, "Max"), count(&graph, "PRelu"), count(&graph, "Pad")), (17, 0, 1));
    let quantised = |dims: [usize; 4]| {
        graph.weights.values().filter(|weight| weight.data_type() == DataType::I8 && weight.dims() == dims).count()
    };
    assert_eq!([[32, 1, 1, 1], [32, 4, 3, 3], [32, 32, 3, 3], [48, 32, 3, 3]].map(quantised), [17, 1, 16, 1]);
    assert_verified(work.path());
    // A second build takes its statistics from the cache and gives the same bytes.
    let before = fs::read(work.path().join("engine/model.weights")).unwrap();
    assert_eq!(names_in(&work.path().join("cache/tileforge/calibration")).len(), 1);
    let _ = build_engine(work.path(), &compact(), &profile, &calibrated).success();
    assert!(before == fs::read(work.path().join("engine/model.weights")).unwrap());
}

#[test]
fn a_graph_of_one_batch_is_calibrated_on_a_tile_for_each_image() {
    let work = tempfile::tempdir().unwrap();
    let (graph, photos) = (work.path().join("two.onnx"), work.path().join("photos"));
    let model = repository("models/compact-x4.safetensors");
    let arguments =
        words(&[&"export", &model, &"-o", &graph, &"--weights", &"inline", &"--shapes", &"image:2x3x24x24"]);
    let _ = run("exporter", arguments).success();
    fs::create_dir(&photos).unwrap();
    fs::copy(repository("tests/images/coffee.png"), photos.join("coffee.png")).unwrap();
    let profile = profile(work.path(), "cpu", "int8", 35.0);
    let arguments = ["--calibration", photos.to_str().unwrap(), "--calibration-tiles", "5"];
    let tiled = run_with_cache_in(
        work.path(),
        "engine-builder",
        words(&[&"build", &graph, &"--profile", &profile, &"-o", &work.path().join("engine")])
            .into_iter()
            .chain(arguments.map(Into::into)),
    );
    let _ = tiled.success();
    assert_eq!(manifest_in(work.path())["calibration"]["tiles"], 6);
    assert_verified(work.path());
}

#[test]
fn quality_is_judged_on_tiles_of_the_calibration_too() {
    let work = tempfile::tempdir().unwrap();
    let trace = Trace::new("normalised", 9, 20);
    let mut noise = Noise::new(3);
    let mut weight = |name: &str, dims: &[usize]| {
        let bytes: Vec<u8> =
            (0..dims.iter().product()).flat_map(|_| (noise.next_signed() * 0.2).to_le_bytes()).collect();
        trace.weight(name, Weight::from_bytes(DataType::F32, dims.to_vec(), bytes).unwrap())
    };
    let x = trace.input("image", TensorType::new(DataType::F32, [1, 3, 24, 24]));
    let x = x.conv(&weight("enter.weight", &[16, 3, 3, 3]), None, &ConvOptions::same(3));
    // Without an epsilon, a black picture causes a division by 0.
    let x = x.instance_norm(&weight("norm.weight", &[16]), &weight("norm.bias", &[16]), 0.0);
    trace.output("upscaled", &x.conv(&weight("leave.weight", &[3, 16, 3, 3]), None, &ConvOptions::same(3)));
    let model = upscaler(trace, work.path());
    let profile = profile(work.path(), "cpu", "fp16", 40.0);
    let _ = build_engine(work.path(), &model, &profile, &[]).success();
    let photos = work.path().join("photos");
    fs::create_dir(&photos).unwrap();
    let arguments = ["--calibration", photos.to_str().unwrap()];
    for name in ["0.png", "1.png", "2.png"] {
        fs::copy(repository("tests/images/coffee.png"), photos.join(name)).unwrap();
    }
    let _ = build_engine(work.path(), &model, &profile, &arguments).success();
    image::RgbImage::new(24, 24).save(photos.join("black.png")).unwrap();
    let _ =
        build_engine(work.path(), &model, &profile, &arguments).failure(4, &["finite is 0.00, expected at least 1.00"]);
}

#[test]
fn the_worst_layers_fall_back_until_the_floor_holds() {
    let work = tempfile::tempdir().unwrap();
    // With all inner layers quantised, the graph reaches 45 dB; with the worst one alone, 51 dB.
    let floor = 48.0;
    let profile = profile(work.path(), "tensorrt", "fp8", floor);
    let manifest = build_engine(work.path(), &compact(), &profile, &["--json"]).success().json();
    let islands = manifest["islands"].as_array().unwrap().len();
    assert!((3..18).contains(&islands), "{islands} layers fell back");
    assert!(gate(&manifest, "psnr_db") >= floor);
}

#[test]
fn sensitivity_ranks_every_layer() {
    let work = tempfile::tempdir().unwrap();
    let profile = profile(work.path(), "cpu", "int8", 30.0);
    let outcome = build_engine(work.path(), &compact(), &profile, &["--sensitivity", "--all-layers"]).success();
    let figures: Vec<f64> = outcome
        .stderr
        .lines()
        .filter_map(|line| line.trim().split_once(" alone gives ")?.1.strip_suffix(" dB")?.parse().ok())
        .collect();
    assert_eq!(figures.len(), 18, "{}", outcome.stderr);
    assert!(figures.is_sorted());
    let report =
        build_engine(work.path(), &compact(), &profile, &["--sensitivity", "--all-layers", "--json"]).success().json();
    let ranking: Vec<f64> =
        report["sensitivity"].as_array().unwrap().iter().map(|layer| layer["psnr_db"].as_f64().unwrap()).collect();
    assert!(
        ranking.iter().zip(&figures).all(|(exact, printed)| (exact - printed).abs() < 0.006) && ranking.len() == 18,
        "{ranking:?}"
    );
    // Speed and sensitivity are not stored in the engine.
    assert_eq!(manifest_in(work.path()).get("sensitivity"), None);
}

#[test]
fn a_failed_gate_names_the_layer_to_blame() {
    let work = tempfile::tempdir().unwrap();
    for (precision, expected) in [("fp16", "the layer that costs most: body."), ("int8", "no layer can be in int8")] {
        let profile = profile(work.path(), "cpu", precision, 150.0);
        let _ = build_engine(work.path(), &compact(), &profile, &[])
            .failure(4, &["gates were not passed", expected, "alone gives"]);
        assert!(!work.path().join("engine").exists());
    }
}

#[test]
fn graphs_for_gpus_are_typed_throughout() {
    let work = tempfile::tempdir().unwrap();
    let expected: [(&str, DataType); 4] =
        [("fp16", DataType::F16), ("bf16", DataType::Bf16), ("int8", DataType::I8), ("fp8", DataType::F8E4M3)];
    let cpu = profile(work.path(), "cpu", "fp16", 30.0);
    let _ = build_engine(work.path(), &compact(), &cpu, &[]).success();
    let unrounded = gate(&manifest_in(work.path()), "psnr_db");
    for (precision, data_type) in expected {
        let profile = profile(work.path(), "tensorrt", precision, 30.0);
        let _ = build_engine(work.path(), &compact(), &profile, &[]).success();
        let (manifest, graph) = (manifest_in(work.path()), graph_of(work.path(), 24));
        // The emulation rounds activations. An FP16 engine on the CPU does not round them, so it is closer to the
        // reference.
        let measured = gate(&manifest, "psnr_db_emulated");
        assert!((30.0..unrounded).contains(&measured), "{precision}: {measured}, {unrounded} on the CPU");
        let types: BTreeSet<DataType> = graph.weights.values().map(Weight::data_type).collect();
        assert!(types.contains(&data_type) && !types.contains(&DataType::F32), "{precision}: {types:?}");
        // TensorRT's zero points must be 0.
        let zero_points =
            graph.nodes.iter().filter(|node| node.operator == "QuantizeLinear").map(|node| &node.inputs[2]);
        assert!(zero_points.map(|name| graph.weights[name].to_bytes().unwrap()[0]).all(|zero_point| zero_point == 0));
        let outputs = graph.nodes.iter().filter(|node| node.operator == "PRelu").count();
        assert_eq!(outputs, 17, "TensorRT fuses PReLU by itself");
    }
}

#[test]
fn what_cannot_be_built_is_refused() {
    let work = tempfile::tempdir().unwrap();
    let bf16 = profile(work.path(), "cpu", "bf16", 30.0);
    let _ = build_engine(work.path(), &compact(), &bf16, &[])
        .failure(1, &["`precision: bf16`: ONNX Runtime's CPU kernels do not compute in it"]);
    let rtx3080 = repository("profiles/rtx3080.yaml");
    let _ = build_engine(work.path(), &compact(), &rtx3080, &["--precision", "fp8"]).failure(
        2,
        &[
            "profile rtx3080 does not compute in fp8: needs compute capability 8.9, found 8.6",
            "expected --precision fp32, fp16, bf16, int8",
        ],
    );
    let int8 = profile(work.path(), "cpu", "int8", 30.0);
    let empty = work.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let arguments = ["--calibration", empty.to_str().unwrap()];
    let _ = build_engine(work.path(), &compact(), &int8, &arguments)
        .failure(1, &["expected pictures", "at least 24×24", "found none"]);
    let missing = work.path().join("missing");
    let _ = build_engine(work.path(), &compact(), &int8, &["--calibration", missing.to_str().unwrap()])
        .failure(1, &["missing: cannot list"]);
    let fp32 = repository("tests/profiles/small-tiles.yaml");
    let _ = build_engine(work.path(), &compact(), &fp32, &["--calibration", missing.to_str().unwrap()])
        .failure(1, &["missing: cannot list"]);
    for (option, expected) in [
        (
            &arguments[..],
            "calibration has no effect on an engine in fp32; leave --calibration out, or build fp16, int8 or fp8",
        ),
        (&["--sensitivity"], "no effect on an engine in fp32; leave --sensitivity out"),
        (&["--precision", "fp16", "--all-layers"], "no effect on an engine in fp16; leave --all-layers out"),
    ] {
        let _ = build_engine(work.path(), &compact(), &fp32, option).failure(2, &[expected]);
    }
    let _ = build_engine(work.path(), &compact(), &int8, &["--precision", "int4"])
        .failure(2, &["expected one of fp32, fp16, bf16, int8, fp8"]);
    let _ = build_engine(work.path(), &compact(), &int8, &["--range", "best"])
        .failure(2, &["minmax, percentile, entropy, mse"]);
    assert!(!work.path().join("engine").exists());
}

#[test]
fn what_the_calibration_budget_leaves_out_is_in_the_manifest() {
    let work = tempfile::tempdir().unwrap();
    // One run of the large graph takes 3.0·10¹² operations: with its reference, that exceeds a minute of the budget.
    let profile = profile(work.path(), "cpu", "fp16", 50.0);
    let text = fs::read_to_string(&profile).unwrap().replace("48x48", "3072x3072");
    fs::write(&profile, text).unwrap();
    let budget = ["--calibration-budget", "1"];
    let told =
        build_engine(work.path(), &repository("models/compact-x4.safetensors"), &profile, &budget).success().stderr;
    let line = "left out, with a calibration budget of 1 minute (--calibration-budget): the gates of \
                model-1x3x3072x3072.onnx";
    assert!(told.contains(line), "{told}");
    let manifest = manifest_in(work.path());
    let expected = serde_json::json!({
        "budget_minutes": 1, "calibration_runs": 0, "judged": 0, "graphs": ["model-1x3x3072x3072.onnx"],
    });
    assert_eq!(manifest["left_out"], expected);
    let of_gates: BTreeSet<&str> =
        manifest["gates"].as_array().unwrap().iter().map(|gate| gate["graph"].as_str().unwrap()).collect();
    assert_eq!(of_gates, BTreeSet::from(["model-1x3x24x24.onnx"]));
    for wrong in ["0", "100001", "ten"] {
        let budget = ["--calibration-budget", wrong];
        let refused = build_engine(work.path(), &repository("models/compact-x4.safetensors"), &profile, &budget);
        let _ = refused.failure(2, &["--calibration-budget", wrong]);
    }
}

#[test]
fn a_model_has_its_own_precision_where_the_gates_allow_it() {
    let work = tempfile::tempdir().unwrap();
    let model = repository("models/compact-x4.yaml");
    let profile = profile(work.path(), "cpu", "fp32", 100.0);
    let precision = || manifest_in(work.path())["precision"].clone();
    let told = build_engine(work.path(), &model, &profile, &[]).success().stderr;
    assert_eq!(precision(), "int8");
    assert!(told.contains("SRVGGNetCompact ×4, int8") && told.contains("psnr_db"), "{told}");
    let _ = build_engine(work.path(), &model, &profile, &["--precision", "fp32"]).success();
    assert_eq!(precision(), "fp32");

    // No engine is a thousand times as fast.
    let text = fs::read_to_string(&profile).unwrap();
    fs::write(&profile, text.replace("speed: 0", "speed: 1000")).unwrap();
    let told = build_engine(work.path(), &model, &profile, &[]).success().stderr;
    assert_eq!(precision(), "fp32");
    for expected in [
        "few-bits: fp32, as the profile says, instead of the model's int8: a gate is missed",
        "speed_over_fp32 is",
        "expected at least 1000.00",
    ] {
        assert!(told.contains(expected), "expected `{expected}` in: {told}");
    }
    // If the caller chooses the precision, the build gives it or an error.
    for asked in [&["--precision", "int8"][..], &["--all-layers"]] {
        let _ = build_engine(work.path(), &model, &profile, asked).failure(4, &["speed_over_fp32"]);
    }
    assert_eq!(precision(), "fp32");
}
