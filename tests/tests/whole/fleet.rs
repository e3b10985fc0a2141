//! `engine-builder plan`, and the gate of an 8-bit plan's speed: the least times on cards by their rates, without any
//! card.

use end_to_end::{GoldenPipelines, Outcome, names_in, repository, run, words};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// The values of a card beside its name.
struct Card<'c> {
    capability: &'c str,
    memory: &'c str,
    bandwidth: &'c str,
    more: &'c str,
}

/// The first card is limited by its memory, the second by its tensor cores.
const SLOW_MEMORY: Card<'_> = Card { capability: "8.9", memory: "24 GB", bandwidth: "10 GB/s", more: "" };
const FAST_MEMORY: Card<'_> = Card { bandwidth: "1000 TB/s", ..SLOW_MEMORY };

impl Card<'_> {
    /// Writes the card's profile and returns the file.
    fn write(&self, folder: &Path, name: &str) -> PathBuf {
        let Card { capability, memory, bandwidth, more } = self;
        let path = folder.join(name).with_extension("yaml");
        let text = format!(
            "name: {name}\ngpu: A card\ndriver_names: [A card]\narchitecture: Ada Lovelace\n\
             compute_capability: {capability}\nmemory: {memory}\nbandwidth: {bandwidth}\n\
             chip: {{ multiprocessors: 10, boost_clock: 1 GHz, cache: 1 MB }}\n\
             provider: tensorrt-rtx\nprecision: fp16\ncuda_graphs: true\n\
             tasks:\n  upscale: {{ tiles: [24x24, 40x40] }}\n{more}"
        );
        fs::write(&path, text).unwrap();
        path
    }
}

fn demo() -> PathBuf {
    repository("models/compact-x4.safetensors")
}

fn plan(folder: &Path, cards: &[&Path], models: &[&Path], more: &[&str]) -> Outcome {
    let list = |paths: &[&Path]| paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
    let fleet = folder.join("fleet.yaml");
    fs::write(&fleet, format!("cards: [{}]\nmodels: [{}]\n", list(cards), list(models))).unwrap();
    run("engine-builder", words(&[&"plan", &fleet]).into_iter().chain(more.iter().map(Into::into)))
}

fn precisions(entry: &Value) -> Vec<&str> {
    entry["candidates"].as_array().unwrap().iter().map(|each| each["precision"].as_str().unwrap()).collect()
}

#[test]
fn each_card_gets_the_size_and_the_precision_that_suit_it() {
    let work = tempfile::tempdir().unwrap();
    let folder = work.path();
    let (slow, fast) = (SLOW_MEMORY.write(folder, "slow"), FAST_MEMORY.write(folder, "fast"));
    let ampere = Card { capability: "8.6", ..SLOW_MEMORY }.write(folder, "ampere");
    let demo = demo();
    let entries = plan(folder, &[&slow, &fast, &ampere], &[&demo], &["--json"]).success().json()["engines"].clone();
    let [slow_entry, fast_entry, ampere_entry] = entries.as_array().unwrap().as_slice() else { panic!("{entries}") };
    assert_eq!(slow_entry["card"], "slow");
    for entry in [slow_entry, fast_entry] {
        assert_eq!(precisions(entry), ["fp16", "int8", "fp8"]);
        for candidate in entry["candidates"].as_array().unwrap() {
            assert_eq!(
                (&candidate["graph"], &candidate["evidence"]),
                (&"model-1x3x40x40.onnx".into(), &"built".into())
            );
            let figures = &candidate["figures"];
            assert!(figures["least_microseconds"].as_u64() <= candidate["uncached_microseconds"].as_u64());
            assert!(candidate["plan_bytes"].as_u64() > figures["weight_bytes"].as_u64());
        }
    }
    // Its 8-bit plans move more bytes, but have fewer 16-bit operations.
    assert_eq!((&slow_entry["chosen"], &fast_entry["chosen"]), (&"fp16".into(), &"int8".into()));
    assert_eq!((precisions(ampere_entry), &ampere_entry["chosen"]), (vec!["fp16", "int8"], &"fp16".into()));
    // By hand: with memory this slow, the memory limits all kernels, except for the megabyte at each end.
    let figures = &slow_entry["candidates"][0]["figures"];
    let moved = figures["moved_bytes"].as_u64().unwrap() as f64 / 10e9 * 1e6;
    let uncached = slow_entry["candidates"][0]["uncached_microseconds"].as_u64().unwrap() as f64;
    assert!((moved - uncached).abs() <= 1.0, "{moved} {uncached}");

    // A card whose memory is between the needs of the two sizes, and a card that has memory for neither.
    let needed = slow_entry["candidates"][0]["memory_bytes"].as_u64().unwrap();
    let memory = |bytes: u64| format!("{:.6} MB", bytes as f64 / 1e6);
    let (tight, tiny) = (memory((1 << 30) + needed - 1), memory(1 << 30));
    let tight = Card { memory: &tight, ..SLOW_MEMORY }.write(folder, "tight");
    let tiny = Card { memory: &tiny, ..SLOW_MEMORY }.write(folder, "tiny");
    let entries = plan(folder, &[&tight, &tiny], &[&demo], &["--json"]).success().json()["engines"].clone();
    assert_eq!(entries[0]["candidates"][0]["graph"], "model-1x3x24x24.onnx");
    assert_eq!(entries[0]["too_large"], serde_json::json!(["model-1x3x40x40.onnx"]));
    assert_eq!((&entries[1]["chosen"], precisions(&entries[1]).len()), (&Value::Null, 0));
    let text = plan(folder, &[&tight, &tiny], &[&demo], &[]).success().stdout;
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[1].starts_with("tight") && lines[1].contains("fp16") && lines[1].contains("int8: "), "{text}");
    let none = "none: the card has no memory for model-1x3x40x40.onnx, model-1x3x24x24.onnx";
    assert!(lines[2].starts_with("tiny") && lines[2].ends_with(none), "{text}");
}

#[test]
fn the_parts_of_a_pipeline_are_added_up() {
    let work = tempfile::tempdir().unwrap();
    let more = "  unet: { tiles: [8x8] }\n  vae_encoder: { tiles: [64x64] }\n  vae_decoder: { tiles: [8x8] }\n";
    let card = Card { more, ..SLOW_MEMORY }.write(work.path(), "card");
    let pipeline = GoldenPipelines::read().write_folder(work.path(), "sd");
    let found = plan(work.path(), &[&card], &[&pipeline], &["--json"]).success().json();
    let chosen = |part: &str| {
        let entry = found["engines"].as_array().unwrap().iter().find(|entry| entry["part"] == part).unwrap();
        let all = entry["candidates"].as_array().unwrap();
        all.iter().find(|each| each["precision"] == entry["chosen"]).unwrap().clone()
    };
    let parts = ["text_encoder", "unet", "vae_decoder", "vae_encoder"].map(chosen);
    let bytes = |name: &str| parts.each_ref().map(|part| part[name].as_u64().unwrap());
    let [all] = found["pipelines"].as_array().unwrap().as_slice() else { panic!("{found}") };
    assert_eq!(all["memory_bytes"], bytes("memory_bytes").iter().sum::<u64>());
    assert_eq!(all["low_memory_bytes"], *bytes("memory_bytes").iter().max().unwrap());
    assert_eq!(all["plan_bytes"], bytes("plan_bytes").iter().sum::<u64>());
    // Guidance needs two samples in a run.
    assert!(parts[1]["graph"].as_str().unwrap().starts_with("model-2x4x8x8"), "{}", parts[1]);
    let text = plan(work.path(), &[&card], &[&pipeline], &[]).success().stdout;
    let last = text.lines().last().unwrap();
    assert!(last.contains(" all ") && last.contains("all parts at once; with --low-memory "), "{text}");
}

#[test]
fn what_the_builder_refuses_is_said_for_each_card_and_ends_nothing() {
    let work = tempfile::tempdir().unwrap();
    let folder = work.path();
    let ampere = Card { capability: "8.6", ..SLOW_MEMORY };
    let (one, other) = (ampere.write(folder, "one"), ampere.write(folder, "other"));
    let ada = SLOW_MEMORY.write(folder, "ada");
    let graph = crate::rtx_engines::graph_in_fp8(folder);
    let entries = plan(folder, &[&one, &other, &ada], &[&graph], &["--json"]).success().json()["engines"].clone();
    for entry in &entries.as_array().unwrap()[..2] {
        assert!(precisions(entry).is_empty() && entry["chosen"].is_null(), "{entry}");
        let reason = entry["refused"][0].as_str().unwrap();
        assert!(reason.starts_with("fp16: ") && reason.contains("8.6 has no fp8_e4m3"), "{reason}");
    }
    assert_eq!(precisions(&entries[2])[0], "fp16");
    let told = plan(folder, &[&one], &[&graph], &[]).success();
    assert!(told.stderr.contains("one: ") && told.stderr.contains("fp8_e4m3"), "{}", told.stderr);
    assert!(told.stdout.contains("none: refused by the builder"), "{}", told.stdout);
}

#[test]
fn cards_that_compile_engines_themselves_are_estimated() {
    let work = tempfile::tempdir().unwrap();
    let entries = plan(work.path(), &[Path::new("h100")], &[&demo()], &["--json"]).success().json()["engines"].clone();
    let candidate = &entries[0]["candidates"][0];
    assert_eq!((&candidate["evidence"], precisions(&entries[0])), (&"estimated".into(), vec!["fp16"]));
    // At least the picture of a tile of 1024² and its values in FP16.
    assert!(candidate["memory_bytes"].as_u64().unwrap() > 4096 * 4096 * 3 * 2, "{candidate}");
    assert!(candidate["figures"].is_null() && candidate["plan_bytes"].is_null());
}

#[test]
fn what_cannot_be_planned_is_refused() {
    let work = tempfile::tempdir().unwrap();
    let folder = work.path();
    let card = SLOW_MEMORY.write(folder, "card");
    let before = names_in(folder);
    let refused = |cards: &[&Path], models: &[&Path], more: &[&str], code: i32, says: &[&str]| {
        let _ = plan(folder, cards, models, more).failure(code, says);
        fs::remove_file(folder.join("fleet.yaml")).unwrap();
        assert_eq!(names_in(folder), before);
    };
    let demo = demo();
    refused(&[Path::new("cpu")], &[&demo], &[], 1, &["cpu: expected the profile of a GPU"]);
    refused(&[Path::new("rtx9999")], &[&demo], &[], 2, &["rtx9999: no such profile"]);
    refused(&[&card], &[Path::new("no-such-model")], &[], 2, &["no-such-model: no such model"]);
    refused(&[], &[&demo], &[], 1, &["`cards`: expected at least one"]);
    let nowhere = folder.join("nowhere").display().to_string();
    refused(&[&card], &[&demo], &["--rtx-lib", &nowhere], 1, &["nowhere", "make setup RTX=1"]);
    let unknown = run("engine-builder", words(&[&"plan", &folder.join("missing.yaml")]));
    let _ = unknown.failure(1, &["missing.yaml"]);
}

#[test]
fn an_8_bit_plan_is_faster_than_fp16_by_the_cards_rates_or_is_not_built() {
    let work = tempfile::tempdir().unwrap();
    let folder = work.path();
    let built = |card: &Path| {
        let line: [&dyn AsRef<std::ffi::OsStr>; 11] = [
            &"build",
            &demo(),
            &"--profile",
            &card,
            &"--precision",
            &"int8",
            &"--calibration-tiles",
            &"2",
            &"--json",
            &"-o",
            &folder.join("engine"),
        ];
        run("engine-builder", words(&line))
    };
    let floors = "floors: { psnr_db: 20, cosine: 0.9 }\n";
    let slow = Card { more: floors, ..SLOW_MEMORY }.write(folder, "slow");
    let _ = built(&slow).failure(4, &["model-1x3x40x40.onnx: least_time_of_fp16_over_own is 0.", "at least 1.00"]);
    assert!(!folder.join("engine").exists());
    // With a speed floor of 0, the engine passes anyway. On a card limited by its tensor cores, 8 bits are faster.
    let any = Card { more: "floors: { psnr_db: 20, cosine: 0.9, speed: 0 }\n", ..SLOW_MEMORY }.write(folder, "any");
    let fast = Card { more: floors, ..FAST_MEMORY }.write(folder, "fast");
    let ratio = |outcome: Outcome| {
        let speed = outcome.success().json()["speed"][0].clone();
        assert_eq!(speed["name"], "least_time_of_fp16_over_own");
        speed["value"].as_f64().unwrap()
    };
    let (of_any, of_fast) = (ratio(built(&any)), ratio(built(&fast)));
    assert!(of_any < 1.0 && of_fast > 1.0 && of_fast <= 2.0, "{of_any} {of_fast}");
}
