//! Engines whose graphs take tiles of any size.

use end_to_end::{THREADS, build_engine, manifest_in, names_in, repository, run, words};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use tempfile::TempDir;
use tileforge_contract::DataType;
use tileforge_runtime::tensor_file::{Stored, write};

/// The demo model with tiles of any size of up to 128² pixels, in runs of 1 and 2.
static ENGINE: LazyLock<(TempDir, PathBuf)> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let (model, profile) = (repository("models/compact-x4.safetensors"), repository("tests/profiles/any-size.yaml"));
    let _ = build_engine(folder.path(), &model, &profile, &[]).success();
    let engine = folder.path().join("engine");
    (folder, engine)
});

fn infer(input: &Path, output: &Path, more: &[&str]) -> serde_json::Value {
    infer_with(&ENGINE.1, input, output, more)
}

fn infer_with(engine: &Path, input: &Path, output: &Path, more: &[&str]) -> serde_json::Value {
    let arguments = words(&[&"infer", &"--json", &"--engine", &engine, &"--input", &input, &"--output", &output]);
    run("runtime", arguments.into_iter().chain(more.iter().map(OsString::from))).success().json()
}

/// Writes a part of the photo to a file.
fn photo(path: &Path, [x, y, width, height]: [u32; 4]) {
    image::open(repository("tests/images/coffee.png")).unwrap().crop_imm(x, y, width, height).save(path).unwrap();
}

fn pixels(path: &Path) -> Vec<u8> {
    image::open(path).unwrap().into_rgb8().into_raw()
}

#[test]
fn one_graph_takes_every_tile_and_each_batch_has_one() {
    let manifest = manifest_in(ENGINE.0.path());
    let graphs = manifest["graphs"].as_array().unwrap();
    let names: Vec<&str> = graphs.iter().map(|graph| graph["file"].as_str().unwrap()).collect();
    assert_eq!(names, ["model-1x3xanyxany.onnx", "model-2x3xanyxany.onnx"]);
    for (graph, batch) in graphs.iter().zip([1, 2]) {
        assert_eq!(graph["any_size"], true);
        assert_eq!(graph["inputs"]["image"], serde_json::json!([batch, 3, 128, 128]));
        assert_eq!(graph["outputs"]["upscaled"], serde_json::json!([batch, 3, 512, 512]));
    }
    let gates: Vec<&str> =
        manifest["gates"].as_array().unwrap().iter().map(|gate| gate["name"].as_str().unwrap()).collect();
    assert_eq!(gates, ["finite", "psnr_db", "cosine"].repeat(2));
    assert_eq!(manifest["selftest"]["graph"], names[0]);

    let shown = run("runtime", words(&[&"inspect", &"--engine", &ENGINE.1])).success().stdout;
    assert!(shown.contains("tiles of any size, with at most as many pixels as 128×128, 2 in a run"), "{shown}");
    let _ = run("runtime", words(&[&"verify", &"--engine", &ENGINE.1])).success();
    let _ = run("runtime", words(&[&"doctor", &"--engine", &ENGINE.1])).success();
}

#[test]
fn memory_limits_the_largest_tile() {
    let work = tempfile::tempdir().unwrap();
    let profile = work.path().join("less.yaml");
    let text = fs::read_to_string(repository("tests/profiles/any-size.yaml")).unwrap();
    let limited = text.replace("name: any-size", "name: less").replace("batch: [1, 2]", "largest_step: 4 MB");
    fs::write(&profile, limited).unwrap();
    let _ = build_engine(work.path(), &repository("models/compact-x4.safetensors"), &profile, &[]).success();
    let manifest = manifest_in(work.path());
    let side = manifest["graphs"][0]["inputs"]["image"][2].as_u64().unwrap();
    // Two tensors of 32 channels, or more at the end of the graph.
    assert!((64..128).contains(&side) && 2 * 32 * 4 * side * side <= 4_000_000, "{side}");
}

#[test]
fn networks_of_windows_keep_the_tiles_of_the_profile() {
    let work = tempfile::tempdir().unwrap();
    let checkpoint = work.path().join("swinir.safetensors");
    let _ = run("xtask", words(&[&"synth", &"SwinIR", &"-o", &checkpoint])).success();
    let _ = build_engine(work.path(), &checkpoint, &repository("tests/profiles/any-size.yaml"), &[]).success();
    let manifest = manifest_in(work.path());
    let graphs = manifest["graphs"].as_array().unwrap();
    assert!(graphs.len() == 4 && graphs.iter().all(|graph| graph.get("any_size").is_none()), "{graphs:?}");
}

#[test]
fn a_picture_gets_tiles_that_suit_it() {
    let work = tempfile::tempdir().unwrap();
    let (input, output) = (work.path().join("in.png"), work.path().join("out.png"));
    let report = |[width, height]: [u32; 2], more: &[&str]| {
        photo(&input, [0, 0, width, height]);
        let file = infer(&input, &output, more)["files"][0].take();
        let side = |name: &str| file["tile"][name].as_u64().unwrap();
        assert_eq!(file["exact"], true, "{file}");
        (file["tiles"].as_u64().unwrap(), [side("width"), side("height")])
    };
    assert_eq!(report([1, 1], &[]), (1, [1, 1]));
    assert_eq!(report([100, 60], &[]), (1, [100, 60]));
    assert_eq!(report([256, 64], &[]), (1, [256, 64]));
    // Two tiles overlap by twice the receptive field of 18 pixels, and one of the sides is divided.
    assert_eq!(report([180, 110], &["--overlap", "36"]), (2, [108, 110]));
    let whole = pixels(&output);
    assert_eq!(report([180, 110], &["--tile", "100x100", "--overlap", "36"]).0, 3);
    assert!(whole.iter().zip(pixels(&output)).all(|(one, other)| one.abs_diff(other) <= 1));
    let line = words(&[&"infer", &"--engine", &ENGINE.1, &"--input", &input, &"--output", &output, &"--tile=129x128"]);
    let expected = "at most as many pixels as 128×128, and 129×128 has more";
    let _ = run("runtime", line).failure(2, &[expected, "choose a smaller --tile"]);
}

/// Compares single pictures in runs of one on one thread with all pictures in every batch, on several streams and
/// threads.
fn assert_same_bytes(engine: &Path) {
    let work = tempfile::tempdir().unwrap();
    let input = work.path().join("in");
    fs::create_dir(&input).unwrap();
    let sizes = [[200, 150], [64, 64], [300, 90], [64, 64], [31, 250], [64, 65], [180, 180]];
    let mut alone = BTreeMap::new();
    for (number, [width, height]) in (0..).zip(sizes) {
        let name = format!("{number}.png");
        photo(&input.join(&name), [number * 20, number * 10, width, height]);
        let output = work.path().join(&name);
        let _ = infer_with(engine, &input.join(&name), &output, &["--batch", "1", "--threads", "1"]);
        alone.insert(name, fs::read(&output).unwrap());
    }
    let mut differing = Vec::new();
    for threads in THREADS.map(|threads| threads.to_string()) {
        for more in [&["--batch", "1", "--streams", "3"][..], &["--batch", "2"], &["--streams", "2"]] {
            let output = work.path().join("out");
            let more = [more, &["--threads", &threads]].concat();
            let _ = infer_with(engine, &input, &output, &more);
            assert_eq!(names_in(&output).len(), sizes.len());
            let differs = |(name, expected): &(&String, &Vec<u8>)| fs::read(output.join(name)).unwrap() != **expected;
            differing.extend(alone.iter().filter(differs).map(|(name, _)| format!("{name} with {more:?}")));
            fs::remove_dir_all(&output).unwrap();
        }
    }
    assert_eq!(differing, [""; 0]);
}

#[test]
fn neither_batches_nor_streams_nor_threads_nor_other_pictures_change_a_byte() {
    assert_same_bytes(&ENGINE.1);
}

#[test]
fn engines_in_8_bits_take_any_size_too() {
    let work = tempfile::tempdir().unwrap();
    let (model, profile) = (repository("models/compact-x4.safetensors"), repository("tests/profiles/any-size.yaml"));
    let text = fs::read_to_string(&profile).unwrap();
    let slow = work.path().join("slow.yaml");
    // The speed floor is off: a shared machine may measure any speed.
    let text = text.replace("name: any-size", "name: slow").replace("psnr_db: 100", "psnr_db: 35");
    fs::write(&slow, text.replace("cosine: 0.999999", "cosine: 0.99\n  speed: 0").replace("fp32", "int8")).unwrap();
    let _ = build_engine(work.path(), &model, &slow, &[]).success();
    let engine = work.path().join("engine");
    assert_eq!(manifest_in(work.path())["graphs"][0]["any_size"], true);
    let (input, output) = (work.path().join("in.png"), work.path().join("out.png"));
    photo(&input, [0, 0, 180, 110]);
    assert_eq!(infer_with(&engine, &input, &output, &[])["files"][0]["tiles"], 2);
    assert_same_bytes(&engine);
}

#[test]
fn a_sweep_tries_smaller_tiles() {
    let work = tempfile::tempdir().unwrap();
    let line = words(&[&"bench", &"--sweep", &"--engine", &ENGINE.1, &"--size", &"96x96", &"--passes=1", &"--runs=1"]);
    let swept = end_to_end::run_with_cache_in(work.path(), "runtime", line.into_iter().chain(["--json".into()]));
    let tiles = swept.success().json().as_array().unwrap().len();
    // Two sides, two batches and three numbers of streams.
    assert_eq!(tiles, 12);
}

/// Every command keeps the promises of `inspect`: tensors and sessions of any size, too.
#[test]
fn tensors_of_any_size_run_and_the_engine_is_warmed() {
    let work = tempfile::tempdir().unwrap();
    let (input, output) = (work.path().join("in.safetensors"), work.path().join("out.safetensors"));
    let send = |shape: [usize; 4]| {
        let bytes = vec![0; 4 * shape.iter().product::<usize>()];
        let stored = Stored { data_type: DataType::F32, shape: shape.to_vec(), bytes };
        write(&input, &[("image".to_owned(), stored)], &BTreeMap::new()).unwrap();
        run("runtime", words(&[&"run", &"--engine", &ENGINE.1, &"--input", &input, &"--output", &output, &"--json"]))
    };
    for (batch, height, width) in [(1, 64, 64), (2, 64, 64), (1, 1, 1), (1, 16, 1024), (2, 128, 128), (1, 37, 111)] {
        let told = send([batch, 3, height, width]).success().json();
        assert_eq!(told["tensors"][0]["shape"], serde_json::json!([batch, 3, 4 * height, 4 * width]));
        assert_eq!(told["graph"], format!("model-{batch}x3xanyxany.onnx"));
    }
    let known = "it has some for:\n  image [1, 3, any, any] with at most 16384 pixels";
    let _ = send([1, 3, 129, 128]).failure(1, &["the engine has no graph for image [", known]);
    // If there are more samples than a graph takes, they run in several runs.
    let told = send([3, 3, 64, 64]).success().json();
    assert_eq!(told["tensors"][0]["shape"], serde_json::json!([3, 3, 256, 256]));
    let warm = run("runtime", words(&[&"warm", &"--engine", &ENGINE.1, &"--json"])).success().json();
    let graphs: Vec<_> = warm["warmed"].as_array().unwrap().iter().map(|one| one["graph"].clone()).collect();
    assert_eq!(graphs, ["model-1x3xanyxany.onnx", "model-2x3xanyxany.onnx"]);
}
