//! Many pictures in one run: batches and streams change nothing, and a failed picture does not affect the others.

use end_to_end::{
    Outcome, THREADS, build_engine, command, copy_of, edit_manifest, engine_of, names_in, repository, run,
    run_with_cache_in, words,
};
use image::DynamicImage;
use serde_json::json;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};
use tileforge_engine::digest::sha256_file;
use tileforge_graph::{Attribute, DataType, Model, Node, Weight, WeightStorage};

/// compact-x4 with tiles of 48 × 48, one and four in a run.
fn batched() -> &'static Path {
    static ENGINE: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    &ENGINE.get_or_init(|| engine_of(&repository("models/compact-x4.safetensors"), "tests/profiles/batched.yaml")).1
}

fn infer(engine: &Path, input: &Path, output: &Path, more: &[&str]) -> Outcome {
    let arguments = words(&[&"infer", &"--engine", &engine, &"--input", &input, &"--output", &output]);
    run("runtime", arguments.into_iter().chain(more.iter().map(OsString::from)))
}

fn photo(x: u32, y: u32, width: u32, height: u32) -> DynamicImage {
    image::open(repository("tests/images/coffee.png")).unwrap().crop_imm(x, y, width, height)
}

/// Every file of a folder by name, except hidden files, which a killed run may leave.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let shown = names_in(folder).into_iter().filter(|name| !name.starts_with('.'));
    shown.map(|name| (name.clone(), fs::read(folder.join(&name)).unwrap())).collect()
}

#[test]
fn batches_streams_threads_and_folders_change_no_byte() {
    let work = tempfile::tempdir().unwrap();
    let input = work.path().join("in");
    fs::create_dir(&input).unwrap();
    let pictures = [
        ("a.png", photo(0, 0, 101, 67)),
        ("b.png", photo(100, 50, 30, 20)),
        ("c.png", photo(50, 80, 90, 50).into_luma8().into()),
        ("d.png", photo(10, 90, 60, 120).into_rgba8().into()),
        ("e.png", photo(200, 10, 49, 48).into_rgb16().into()),
    ];
    for (name, picture) in &pictures {
        picture.save(input.join(name)).unwrap();
    }
    let folder = |name: &str, more: &[&str]| {
        let output = work.path().join(name);
        let report = infer(batched(), &input, &output, &[&["--json"], more].concat()).success().json();
        (contents(&output), report)
    };
    let (plain, report) = folder("plain", &[]);
    assert_eq!(plain.keys().collect::<Vec<_>>(), pictures.iter().map(|(name, _)| name).collect::<Vec<_>>());
    assert_eq!(report["used"], json!({ "streams": 1, "batch": 4 }));
    let alternatives: [&[&str]; 4] =
        [&["--batch", "1"], &["--streams", "2"], &["--streams", "3", "--batch", "1"], &["--batch", "4"]];
    let mut differing = Vec::new();
    for threads in THREADS.map(|threads| threads.to_string()) {
        for (number, more) in alternatives.into_iter().enumerate() {
            let more = [more, &["--threads", &threads]].concat();
            if folder(&format!("{threads}-{number}"), &more).0 != plain {
                differing.push(more.join(" "));
            }
        }
    }
    assert_eq!(differing, [""; 0]);
    // If the engine lacks the requested batch, no other batch is used silently.
    let _ = infer(batched(), &input, &work.path().join("none"), &["--batch", "3"])
        .failure(2, &["the engine has no graph for 3 images in one run, only for 1, 4", "--batch"]);
    for (name, _) in &pictures {
        let alone = work.path().join(format!("alone-{name}"));
        let _ = infer(batched(), &input.join(name), &alone, &[]).success();
        assert!(fs::read(&alone).unwrap() == plain[*name], "{name}");
    }
}

/// A folder of many small, different pictures.
fn folder_of(work: &Path, count: u32) -> PathBuf {
    let input = work.join("in");
    fs::create_dir(&input).unwrap();
    for number in 0..count {
        photo(number * 7, number * 5, 60 + number, 50).save(input.join(format!("{number:02}.png"))).unwrap();
    }
    input
}

#[test]
fn a_damaged_picture_leaves_the_others_alone() {
    let work = tempfile::tempdir().unwrap();
    let (input, output) = (folder_of(work.path(), 20), work.path().join("out"));
    let bytes = fs::read(input.join("07.png")).unwrap();
    fs::write(input.join("07.png"), &bytes[..bytes.len() / 2]).unwrap();
    fs::write(input.join("13.png"), "no picture").unwrap();
    let failed = infer(batched(), &input, &output, &["--streams", "2"])
        .failure(1, &["07.png", "13.png", "2 of 20 pictures failed"]);
    assert_eq!(failed.stdout.lines().count(), 18);
    assert_eq!(names_in(&output).len(), 18);
    assert!(!output.join("07.png").exists() && !output.join("13.png").exists());

    let first = work.path().join("first");
    let _ = infer(batched(), &input, &first, &["--fail-fast"]).failure(1, &["07.png", "were not finished"]);
    assert!(names_in(&first).iter().all(|name| name.as_str() < "13.png"), "{:?}", names_in(&first));

    // Finished outputs stay unchanged; wrong and missing outputs are made.
    let right = fs::read(output.join("00.png")).unwrap();
    let finished = fs::metadata(output.join("01.png")).unwrap().modified().unwrap();
    fs::write(output.join("00.png"), "mine").unwrap();
    fs::remove_file(output.join("19.png")).unwrap();
    let report = infer(batched(), &input, &output, &["--resume", "--json"]);
    assert_eq!(report.code, 1);
    assert_eq!((&report.json()["skipped"], &report.json()["failed"]), (&json!(16), &json!(2)));
    let again = &report.json()["made_again"];
    assert_eq!(again[0]["reason"], "it has changed since it was made", "{again}");
    assert_eq!(again.as_array().unwrap().len(), 1);
    assert!(fs::read(output.join("00.png")).unwrap() == right);
    assert_eq!(fs::metadata(output.join("01.png")).unwrap().modified().unwrap(), finished);
    assert!(output.join("19.png").exists());
}

#[test]
fn whatever_kills_it_leaves_whole_pictures_and_resume_completes() {
    let work = tempfile::tempdir().unwrap();
    let input = folder_of(work.path(), 6);
    let expected = work.path().join("expected");
    let started = Instant::now();
    let _ = infer(batched(), &input, &expected, &[]).success();
    let (whole, expected) = (started.elapsed(), contents(&expected));
    let output = work.path().join("out");
    // Fractions of the run by the golden ratio: all different, and the same in every run of the test.
    for run in 0..50_u32 {
        let moment = whole.mul_f64(f64::from(run) * 0.618_034 % 1.0);
        let arguments =
            words(&[&"infer", &"--engine", &batched(), &"--input", &input, &"--output", &output, &"--resume"]);
        let mut child = command("runtime", arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        thread::sleep(moment);
        child.kill().unwrap();
        child.wait().unwrap();
        if !output.exists() {
            continue;
        }
        let found = contents(&output);
        assert!(
            found.iter().all(|(name, bytes)| expected.get(name) == Some(bytes)),
            "after {moment:?}: {:?}",
            found.keys()
        );
        if found.len() == expected.len() {
            fs::remove_dir_all(&output).unwrap();
        }
    }
    let _ = infer(batched(), &input, &output, &["--resume"]).success();
    assert!(contents(&output) == expected);
}

#[test]
fn shards_of_several_machines_make_each_picture_once() {
    let work = tempfile::tempdir().unwrap();
    let input = folder_of(work.path(), 6);
    let deeper = input.join("deeper");
    fs::create_dir(&deeper).unwrap();
    fs::copy(input.join("01.png"), deeper.join("01.png")).unwrap();
    let (expected, output) = (work.path().join("expected"), work.path().join("out"));
    let _ = infer(batched(), &input, &expected, &["--recursive"]).success();
    let mut all = Vec::new();
    for index in 0..3 {
        let shard = ["--recursive", "--resume", "--json", "--shard", &format!("{index}/3")];
        let report = infer(batched(), &input, &output, &shard).success().json();
        let made = report["files"].as_array().unwrap().iter().map(|file| file["output"].as_str().unwrap().to_owned());
        all.extend(made);
        // The place of the folder changes nothing, and finished pictures are skipped.
        let again = infer(batched(), &input, &output, &shard).success().json();
        assert_eq!(again["files"], json!([]));
        assert_eq!(again["skipped"], report["files"].as_array().unwrap().len());
    }
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 7);
    for made in &all {
        let expected = expected.join(Path::new(made).strip_prefix(&output).unwrap());
        assert!(fs::read(made).unwrap() == fs::read(expected).unwrap(), "{made}");
    }
    // A machine that gets no picture has nothing to do.
    let idle = infer(batched(), &deeper, &work.path().join("idle"), &["--shard", "0/2", "--json"]).success().json();
    let other = infer(batched(), &deeper, &work.path().join("other"), &["--shard", "1/2", "--json"]).success().json();
    let count = |report: &serde_json::Value| report["files"].as_array().unwrap().len();
    assert_eq!(count(&idle) + count(&other), 1);
    let _ = infer(batched(), &input.join("01.png"), &work.path().join("one.png"), &["--shard", "0/2"])
        .failure(2, &["--shard divides folders and several pictures"]);
    let _ = infer(batched(), &input, &output, &["--shard", "2/2"]).failure(2, &["expected I/N"]);
}

#[test]
fn a_signal_stops_it_with_nothing_half_made() {
    let work = tempfile::tempdir().unwrap();
    let (input, output) = (work.path().join("large.png"), work.path().join("out.png"));
    // Without a signal, this would take hours.
    image::RgbImage::from_fn(6000, 6000, |x, y| image::Rgb([x as u8, y as u8, (x ^ y) as u8])).save(&input).unwrap();
    let arguments = words(&[&"infer", &"--engine", &batched(), &"--input", &input, &"--output", &output]);
    let mut command = command("runtime", arguments);
    command.env("RUST_LOG", "tileforge_runtime=debug").stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut talk = BufReader::new(child.stderr.take().unwrap()).lines();
    talk.find(|line| line.as_ref().is_ok_and(|line| line.contains("ran batch 0"))).unwrap().unwrap();
    let signalled = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(signalled.success());
    let asked = Instant::now();
    let rest: Vec<String> = talk.map_while(Result::ok).collect();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest:?}");
    // A tile takes milliseconds. Slow machines get seconds.
    assert!(asked.elapsed() < Duration::from_secs(20), "{:?}", asked.elapsed());
    assert!(rest.iter().any(|line| line.contains("stopped before the end")), "{rest:?}");
    assert_eq!(names_in(work.path()), ["large.png"]);
}

#[test]
fn whoever_stops_listening_stops_nothing() {
    let work = tempfile::tempdir().unwrap();
    let (input, output) = (folder_of(work.path(), 6), work.path().join("out"));
    fs::write(input.join("damaged.png"), "no picture").unwrap();
    let arguments = words(&[&"infer", &"--engine", &batched(), &"--input", &input, &"--output", &output]);
    let mut child = command("runtime", arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert_eq!(contents(&output).len(), 6);
    // Of several requested pictures, one is left to do.
    let _ = infer(batched(), &input, &output, &["--resume"])
        .failure(1, &["damaged.png", "1 of 7 pictures failed; see above"]);
}

/// Adds nodes that do not change the output, but fail.
struct Sabotage<'m> {
    model: &'m mut Model,
    number: usize,
}

impl Sabotage<'_> {
    fn node(&mut self, operator: &str, inputs: &[&str], attributes: &[(&str, Attribute)]) -> String {
        self.number += 1;
        let name = format!("sabotage{}", self.number);
        self.model.nodes.push(Node {
            name: name.clone(),
            operator: operator.into(),
            domain: String::new(),
            inputs: inputs.iter().map(|input| (*input).to_owned()).collect(),
            outputs: vec![name.clone()],
            attributes: attributes.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
        });
        name
    }

    fn number(&mut self, value: f32) -> String {
        self.number += 1;
        let name = format!("sabotage{}", self.number);
        let weight = Weight::from_bytes(DataType::F32, vec![1], value.to_le_bytes().to_vec()).unwrap();
        self.model.weights.insert(name.clone(), weight);
        name
    }

    /// The least value of the input, which is known only at run time.
    fn least(&mut self) -> String {
        let input = self.model.inputs[0].name.clone();
        self.node("ReduceMin", &[&input], &[("keepdims", Attribute::from(0))])
    }

    /// Adds 0 · `value`, a tensor of one element, to the output.
    fn into_output(mut self, value: &str) {
        let output = self.model.outputs[0].name.clone();
        let maker = self.model.nodes.iter_mut().find(|node| node.outputs.contains(&output)).unwrap();
        maker.outputs = vec!["before".into()];
        let zero = self.number(0.0);
        let nothing = self.node("Mul", &[value, &zero], &[]);
        let sum = self.node("Add", &["before", &nothing], &[]);
        self.model.nodes.last_mut().unwrap().outputs = vec![output];
        assert!(sum.starts_with("sabotage"));
    }
}

/// A copy of [`batched`] with its graph for `batch` images changed.
fn sabotaged(folder: &Path, batch: usize, change: impl Fn(&mut Model)) -> PathBuf {
    sabotaged_copy(batched(), folder, &format!("model-{batch}x3x48x48.onnx"), change)
}

/// A copy of an engine with one of its graphs changed.
fn sabotaged_copy(original: &Path, folder: &Path, name: &str, change: impl Fn(&mut Model)) -> PathBuf {
    let engine = copy_of(original, folder);
    let mut model = tileforge_graph::load(original.join(name)).unwrap();
    change(&mut model);
    tileforge_graph::save(&model, &engine.join(name), WeightStorage::Inline).unwrap();
    let digest = serde_json::to_value(sha256_file(&engine.join(name)).unwrap()).unwrap();
    edit_manifest(&engine, |manifest| manifest["files"][name] = digest);
    engine
}

#[test]
fn a_run_that_fails_takes_the_pictures_of_its_batch_and_no_others() {
    let work = tempfile::tempdir().unwrap();
    // A row that the table lacks, for a tile whose darkest value is at least one half.
    let engine = sabotaged(work.path(), 4, |model| {
        let mut sabotage = Sabotage { model, number: 0 };
        let (least, two, table) = (sabotage.least(), sabotage.number(2.0), sabotage.number(1.0));
        let doubled = sabotage.node("Mul", &[&least, &two], &[]);
        let row = sabotage.node("Cast", &[&doubled], &[("to", Attribute::from(7))]);
        let found = sabotage.node("Gather", &[&table, &row], &[]);
        sabotage.into_output(&found);
    });
    let (input, output) = (work.path().join("in"), work.path().join("out"));
    fs::create_dir(&input).unwrap();
    photo(0, 0, 150, 100).save(input.join("a.png")).unwrap();
    let mut white = photo(0, 0, 300, 200).into_rgb8();
    image::imageops::replace(&mut white, &image::RgbImage::from_pixel(300, 100, image::Rgb([255; 3])), 0, 100);
    white.save(input.join("b.png")).unwrap();
    // Enough tiles that the last tiles share no batch with the second picture's tiles.
    photo(0, 0, 150, 100).save(input.join("c.png")).unwrap();
    photo(20, 0, 150, 100).save(input.join("d.png")).unwrap();
    for streams in ["1", "2"] {
        let failed =
            infer(&engine, &input, &output, &["--streams", streams]).failure(1, &["ONNX Runtime cannot run", "Gather"]);
        assert!(failed.stderr.contains("of 4 pictures failed; see above"), "{}", failed.stderr);
        let made = names_in(&output);
        assert!(made.contains(&"a.png".into()) && made.contains(&"d.png".into()), "{made:?}");
        assert!(!made.contains(&"b.png".into()), "{made:?}");
        fs::remove_dir_all(&output).unwrap();
    }
}

/// Needs far more memory than is available. This is known only at run time.
fn greedy(model: &mut Model) {
    let mut sabotage = Sabotage { model, number: 0 };
    let (least, tiny, huge, one) =
        (sabotage.least(), sabotage.number(1e-30), sabotage.number((1_u64 << 44) as f32), sabotage.number(1.0));
    let almost_nothing = sabotage.node("Mul", &[&least, &tiny], &[]);
    let length = sabotage.node("Add", &[&almost_nothing, &huge], &[]);
    let shape = sabotage.node("Cast", &[&length], &[("to", Attribute::from(7))]);
    let all = sabotage.node("Expand", &[&one, &shape], &[]);
    let one_of_them = sabotage.node("ReduceMax", &[&all], &[("keepdims", Attribute::from(0))]);
    sabotage.into_output(&one_of_them);
}

#[test]
fn tiles_that_memory_does_not_hold_run_in_smaller_ones() {
    let work = tempfile::tempdir().unwrap();
    let profile = work.path().join("small-tiles.yaml");
    let text = fs::read_to_string(repository("tests/profiles/small-tiles.yaml")).unwrap();
    fs::write(&profile, text.replace("24x24, 96x96", "64x64, 192x192")).unwrap();
    let original = work.path().join("original");
    fs::create_dir(&original).unwrap();
    let _ = build_engine(&original, &repository("models/compact-x4.safetensors"), &profile, &[]).success();
    let original = original.join("engine");
    let engine = sabotaged_copy(&original, work.path(), "model-1x3x192x192.onnx", greedy);
    let input = work.path().join("in");
    fs::create_dir(&input).unwrap();
    for (number, name) in (0..).zip(["a.png", "b.png", "c.png"]) {
        photo(number * 20, number * 30, 300, 200 - 2 * number).save(input.join(name)).unwrap();
    }
    let run = |engine: &Path, name: &str, more: &[&str]| {
        let output = work.path().join(name);
        let ran = infer(engine, &input, &output, &[&["--json"], more].concat()).success();
        (contents(&output), ran.json(), ran.stderr)
    };
    let told = |report: &serde_json::Value| {
        let files = report["files"].as_array().unwrap().iter();
        files.map(|file| (file["tile"]["width"].as_u64().unwrap(), file["exact"] == true)).collect::<Vec<_>>()
    };
    let pixels = |bytes: &[u8]| image::load_from_memory(bytes).unwrap().into_rgb8().into_raw();

    // Tiles that overlap by the receptive field give the same picture, whatever their size.
    let (whole, report, _) = run(&original, "whole", &["--overlap", "36"]);
    assert_eq!(told(&report), [(192, true); 3]);
    for streams in ["1", "3"] {
        let (parts, report, talk) =
            run(&engine, &format!("parts-{streams}"), &["--overlap", "36", "--streams", streams]);
        assert_eq!(talk.matches("out of memory: goes on with tiles of 64×64").count(), 1, "{talk}");
        assert!(told(&report).iter().all(|(_, exact)| *exact), "{report}");
        // They grow again after a while, since memory holds the parts.
        assert_eq!(talk.contains("out of memory: goes on with 1 of 3 streams"), streams == "3", "{talk}");
        for (name, whole) in &whole {
            let (whole, parts) = (pixels(whole), pixels(&parts[name]));
            assert!(whole.iter().zip(&parts).all(|(a, b)| a.abs_diff(*b) <= 1), "{name} with {streams} streams");
        }
    }

    // With less overlap, the report states that the result is not exact.
    let one_tile = work.path().join("one-tile.png");
    photo(0, 0, 192, 192).save(&one_tile).unwrap();
    let output = work.path().join("approximated.png");
    let ran = infer(&engine, &one_tile, &output, &["--json", "--overlap", "8"]).success();
    assert_eq!(told(&ran.json()), [(192, false)], "8 pixels are less than the receptive field");
    let exact = infer(&original, &one_tile, &output, &["--json", "--overlap", "8"]).success();
    assert_eq!(told(&exact.json()), [(192, true)]);

    // A tile that the user set is kept.
    let asked = work.path().join("asked.png");
    let _ = infer(&engine, &one_tile, &asked, &["--tile", "192x192"]).failure(1, &["allocate memory"]);
    assert!(!asked.exists());
}

/// Needs far more memory than is available if a tile has nearly as many values as 3·128².
fn greedy_for_large_tiles(model: &mut Model) {
    let input = model.inputs[0].name.clone();
    let mut sabotage = Sabotage { model, number: 0 };
    let [large, steep, huge, one] = [49152.0, 24.0, (1_u64 << 44) as f32, 1.0].map(|value| sabotage.number(value));
    let shape = sabotage.node("Shape", &[&input], &[]);
    let lengths = sabotage.node("Cast", &[&shape], &[("to", Attribute::from(1))]);
    let values = sabotage.node("ReduceProd", &[&lengths], &[("keepdims", Attribute::from(1))]);
    let share = sabotage.node("Div", &[&values, &large], &[]);
    let power = sabotage.node("Pow", &[&share, &steep], &[]);
    let length = sabotage.node("Mul", &[&power, &huge], &[]);
    let shape = sabotage.node("Cast", &[&length], &[("to", Attribute::from(7))]);
    let all = sabotage.node("Expand", &[&one, &shape], &[]);
    let one_of_them = sabotage.node("ReduceMax", &[&all], &[("keepdims", Attribute::from(0))]);
    sabotage.into_output(&one_of_them);
}

#[test]
fn tiles_of_any_size_get_smaller_where_memory_does_not_hold_them() {
    let work = tempfile::tempdir().unwrap();
    let original = work.path().join("original");
    fs::create_dir(&original).unwrap();
    let (model, profile) = (repository("models/compact-x4.safetensors"), repository("tests/profiles/any-size.yaml"));
    let _ = build_engine(&original, &model, &profile, &[]).success();
    let original = original.join("engine");
    let engine = sabotaged_copy(&original, work.path(), "model-1x3xanyxany.onnx", greedy_for_large_tiles);
    let input = work.path().join("in");
    fs::create_dir(&input).unwrap();
    for (number, name) in (0..).zip(["a.png", "b.png"]) {
        photo(number * 20, number * 30, 300, 200).save(input.join(name)).unwrap();
    }
    let run = |engine: &Path, name: &str| {
        let output = work.path().join(name);
        let ran = infer(engine, &input, &output, &["--json", "--overlap", "36", "--batch", "1"]).success();
        let files = ran.json()["files"].as_array().unwrap().clone();
        assert!(files.iter().all(|file| file["exact"] == true), "{files:?}");
        let pixels = |file: &serde_json::Value| {
            ["width", "height"].map(|side| file["tile"][side].as_u64().unwrap()).iter().product::<u64>()
        };
        (contents(&output), files.iter().map(pixels).collect::<Vec<_>>(), ran.stderr)
    };
    let (whole, tiles, _) = run(&original, "whole");
    assert!(tiles.iter().all(|pixels| *pixels > 128 * 128 / 2), "{tiles:?}");
    let (smaller, _, talk) = run(&engine, "smaller");
    assert_eq!(talk.matches("out of memory: goes on with tiles of").count(), 1, "{talk}");
    for (name, whole) in &whole {
        let [whole, smaller] = [whole, &smaller[name]].map(|bytes| image::load_from_memory(bytes).unwrap().into_rgb8());
        assert!(whole.iter().zip(smaller.iter()).all(|(a, b)| a.abs_diff(*b) <= 1), "{name}");
    }
    let asked = work.path().join("asked");
    let _ = infer(&engine, &input, &asked, &["--batch", "1", "--tile", "128x128"]).failure(1, &["allocate memory"]);
}

#[test]
fn memory_that_does_not_suffice_makes_batches_and_streams_smaller() {
    let work = tempfile::tempdir().unwrap();
    let input = folder_of(work.path(), 3);
    let (expected, output) = (work.path().join("expected"), work.path().join("out"));
    let _ = infer(batched(), &input, &expected, &[]).success();
    let engine = sabotaged(work.path(), 4, greedy);
    let ran = infer(&engine, &input, &output, &["--streams", "2", "--json"]).success();
    assert!(ran.stderr.contains("out of memory: goes on with batches of 1"), "{}", ran.stderr);
    assert_eq!(ran.json()["used"], json!({ "streams": 2, "batch": 1 }));
    assert!(contents(&output) == contents(&expected));

    // If a single picture needs too much memory, the run fails.
    fs::remove_dir_all(&engine).unwrap();
    let engine = sabotaged(work.path(), 1, greedy);
    let none = work.path().join("none");
    let _ = infer(&engine, &input, &none, &["--streams", "4", "--batch", "1"])
        .failure(1, &["goes on with 2 of 4 streams", "goes on with 1 of 2 streams", "allocate memory"]);
    assert!(contents(&none).is_empty());
}

#[test]
fn figures_are_saved_compared_and_swept() {
    let work = tempfile::tempdir().unwrap();
    let bench_of = |size: &str, more: &[&dyn AsRef<std::ffi::OsStr>]| {
        let line = words(&[&"bench", &"--engine", &batched(), &"--size", &size, &"--runs", &"2", &"--warm-up", &"1"]);
        run_with_cache_in(work.path(), "runtime", line.into_iter().chain(words(more)))
    };
    let bench = |more: &[&dyn AsRef<std::ffi::OsStr>]| bench_of("60x50", more);
    let base = work.path().join("base.json");
    let first = bench(&[&"--save", &base, &"--json"]).success().json();
    assert_eq!((&first["tiles"], &first["batch"], &first["runs"]), (&json!(4), &json!(4), &json!(2)));
    assert!(
        first["latency"]["p50_ms"].as_f64().unwrap() > 0.0 && first["tiles_per_second"].as_f64().unwrap() > 0.0,
        "{first}"
    );
    // Time is not tested: one threshold accepts any speed, the other accepts none.
    let _ = bench(&[&"--compare", &base, &"--threshold", &"0"]).success();
    let _ = bench(&[&"--compare", &base, &"--threshold", &"100"]).failure(4, &["expected a speed of at least"]);
    assert_eq!((first["passes"].as_array().unwrap().len(), &first["provider"]), (3, &json!("cpu")));
    for other in [["--streams", "2"], ["--overlap", "20"]] {
        let _ = bench(&[&"--compare", &base, &other[0], &other[1]]).failure(2, &["of another setting"]);
    }
    let mut elsewhere = first.clone();
    elsewhere["device"] = json!("another processor");
    let moved = work.path().join("moved.json");
    fs::write(&moved, elsewhere.to_string()).unwrap();
    let _ = bench(&[&"--compare", &moved]).failure(2, &["of another setting", "another processor"]);
    let refused = bench(&[&"--compare", &work.path().join("none.json")]).failure(1, &["none.json"]);
    assert_eq!(refused.stdout, "", "it was measured");

    let profile = bench(&[&"--profile", &"--json"]).success().json();
    // Two pictures of four tiles: in one run each, or in four. The warm-up does not count.
    assert_eq!((&profile["runs"], &profile["pictures"]), (&json!(2), &json!(2)));
    assert_eq!(bench(&[&"--profile", &"--json", &"--batch", &"1"]).success().json()["runs"], 8);
    assert_eq!(bench_of("48x48", &[&"--profile", &"--json", &"--batch", &"1"]).success().json()["runs"], 2);
    let names = |key: &str| {
        profile[key].as_array().unwrap().iter().map(|sum| sum["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert!(names("operators").contains(&"Conv".to_owned()), "{profile}");
    assert!(names("layers").iter().any(|name| name.starts_with("Conv ")), "{profile}");

    let report = work.path().join("report");
    let sweep = || bench(&[&"--sweep", &"--report", &report, &"--passes", &"1"]).success();
    let swept = sweep();
    // One tile, batches of one and four, three numbers of streams, in two tables.
    assert_eq!(swept.stdout.matches("| 48×48 |").count(), 12, "{}", swept.stdout);
    assert_eq!(names_in(&report), ["sweep.json", "sweep.md", "sweep.svg"]);
    assert!(fs::read_to_string(report.join("sweep.svg")).unwrap().starts_with("<svg"));

    // Measurements of other places stay. Measurements of this place are replaced.
    let folder = work.path().join("cache/tileforge/throughput");
    let kept = folder.join(&names_in(&folder)[0]);
    let measured =
        || serde_json::from_slice::<BTreeMap<String, BTreeMap<String, f64>>>(&fs::read(&kept).unwrap()).unwrap();
    let mut edited = measured();
    assert_eq!(edited.len(), 1);
    let (here, tiles) = edited.iter_mut().next().unwrap();
    let here = here.clone();
    assert!(here.starts_with("cpu on ") && here.contains(", ONNX Runtime 1."), "{here}");
    tiles.insert("48×48".into(), 1e-9);
    edited.insert("cuda on a GPU".into(), BTreeMap::from([("48×48".into(), 1.0)]));
    fs::write(&kept, serde_json::to_vec(&edited).unwrap()).unwrap();
    let _ = sweep();
    assert_eq!(measured()["cuda on a GPU"], edited["cuda on a GPU"]);
    assert!(measured()[&here]["48×48"] > 1e-9, "{:?}", measured());
}
