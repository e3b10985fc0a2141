//! A graph for several pictures computes the same bytes for each picture as the graph for one. So a build need not run
//! every batch of every tile (`engine-builder/src/coverage.rs`).

use crate::random_networks::{BATCH, Outputs, RandomNetwork, each, of_sample};
use end_to_end::{build_engine, manifest_in, run, words};
use std::fs;
use tileforge_exporter::arch::registry;
use tileforge_session::SessionOptions;

/// The differences between samples in a batch, on each of these numbers of threads, and one sample alone on one
/// thread.
fn differences(network: &RandomNetwork<'_>, threads: &[usize]) -> Vec<String> {
    let run = |graph: &str, threads: usize, inputs: &_| {
        let options = SessionOptions { threads: Some(threads), ..SessionOptions::default() };
        network.run(graph, &options, inputs).unwrap_or_else(|error| panic!("{}: {error}", network.name))
    };
    let alone = run("1", 1, &network.samples()[..]);
    let compare = |text: String, sample: usize, found: &Outputs| {
        let differing = found.iter().zip(&alone[sample]).filter_map(|((output, found), (_, expected))| {
            assert!(expected.iter().all(|value| value.is_finite()), "{}: {output}", network.name);
            let place = if found.shape() == expected.shape() { 0 } else { sample };
            let found = of_sample(network.contract.output(output).unwrap(), found, place);
            let pairs = found.iter().zip(expected);
            let count = pairs.filter(|(found, expected)| found.to_bits() != expected.to_bits()).count();
            (count > 0).then(|| format!("{}: {text}: {count} values of `{output}`", network.name))
        });
        differing.collect::<Vec<_>>()
    };
    let mut differences = Vec::new();
    let of_batch = BATCH.to_string();
    let graphs = if network.has_any_batch() { vec![of_batch.as_str(), "any"] } else { vec![of_batch.as_str()] };
    for (graph, threads) in graphs.into_iter().flat_map(|graph| threads.iter().map(move |threads| (graph, *threads))) {
        let together = run(graph, threads, &[network.inputs.clone()][..]);
        for sample in 0..BATCH {
            let text = format!("sample {sample} of a batch of {graph} on {threads} threads");
            differences.extend(compare(text, sample, &together[0]));
        }
        if graph == "any" {
            let samples = run(graph, threads, &network.samples()[..]);
            for (sample, found) in samples.iter().enumerate() {
                let text = format!("sample {sample} alone in the graph of any batch on {threads} threads");
                differences.extend(compare(text, sample, found));
            }
        }
    }
    differences
}

#[test]
fn a_sample_of_a_batch_is_computed_as_one_alone_on_any_number_of_threads() {
    let (mut of_pictures, mut found) = (0, Vec::new());
    let shown = each(|network, threads| {
        // Convolutions of clips are rounded differently in a batch and on other numbers of threads (docs/runtime.md).
        // All of their graphs are run.
        if !network.is_of_clips() {
            of_pictures += 1;
            found.extend(differences(network, threads));
        }
    });
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert_eq!(shown.len(), registry().len());
    assert!(of_pictures > registry().len(), "{of_pictures}");
}

#[test]
fn engines_say_that_batches_change_no_byte_in_each_precision() {
    let work = tempfile::tempdir().unwrap();
    let profile = work.path().join("batched.yaml");
    for (precision, tasks) in [
        ("fp32", "tiles: [24x24, 48x48], largest_tile: 64x64, batch: [1, 4]"),
        ("fp16", "tiles: [24x24], batch: [1, 4]"),
        ("int8", "tiles: [24x24, 48x48], batch: [1, 2, 4]"),
        ("int8-weights", "tiles: [24x24], batch: [1, 4]"),
        ("fp32", "tiles: [24x24, 48x48]"),
    ] {
        let text = format!(
            "name: batched\nprovider: cpu\nprecision: {precision}\ntasks:\n  upscale: {{ {tasks} }}\nfloors: \
             {{ psnr_db: 20, cosine: 0.9, speed: 0 }}\n"
        );
        fs::write(&profile, text).unwrap();
        let checkpoint = end_to_end::repository("models/compact-x4.safetensors");
        let built = build_engine(work.path(), &checkpoint, &profile, &[]).success();
        let found = manifest_in(work.path()).get("batches_change_no_byte").cloned();
        // There is nothing to compare where each graph takes one picture.
        let expected = tasks.contains("batch").then(|| true.into());
        assert_eq!(found, expected, "{precision} {tasks}: {}", built.stderr);
        assert!(!built.stderr.contains("allows_rounding"), "{}", built.stderr);
    }
}

#[test]
fn each_tile_and_each_batch_is_gated_once() {
    let work = tempfile::tempdir().unwrap();
    let profile = work.path().join("several.yaml");
    let text = "name: several\nprovider: cpu\nprecision: fp32\ntasks:\n  upscale: { tiles: [24x24, 48x48], batch: [1, \
                2, 4, 8], largest_run: 48x96 }\nfloors: { psnr_db: 100, cosine: 0.999999 }\n";
    fs::write(&profile, text).unwrap();
    let _ =
        build_engine(work.path(), &end_to_end::repository("models/compact-x4.safetensors"), &profile, &[]).success();
    let manifest = manifest_in(work.path());
    let of = |list: &str, key: &str| {
        let names = manifest[list].as_array().unwrap().iter().map(|entry| entry[key].as_str().unwrap().to_owned());
        let mut names: Vec<String> = names.collect();
        names.dedup();
        names
    };
    let graph = |batch: u32, side: u32| format!("model-{batch}x3x{side}x{side}.onnx");
    let small = [1, 2, 4, 8].map(|batch| graph(batch, 24));
    assert_eq!(of("graphs", "file"), [&small[..], &[graph(1, 48), graph(2, 48)]].concat());
    assert_eq!(of("gates", "graph"), [&small[..], &[graph(1, 48)]].concat());
    assert_eq!(manifest["batches_change_no_byte"], true);
    let shown = run("runtime", words(&[&"inspect", &"--engine", &work.path().join("engine")])).success().stdout;
    assert!(shown.contains("batches          change no byte"), "{shown}");

    // One sweep has every tile, batch and number of streams, and no batch is reported for another one.
    let engine = work.path().join("engine");
    let bench = |more: &[&str]| {
        let line = words(&[&"bench", &"--engine", &engine, &"--size", &"48x48", &"--passes", &"1", &"--json"]);
        run("runtime", line.into_iter().chain(more.iter().map(std::ffi::OsString::from)))
    };
    let swept = bench(&["--sweep"]).success().json();
    let settings = swept.as_array().unwrap().iter().map(|measured| {
        let number = |key: &str| measured[key].as_u64().unwrap();
        (measured["tile"].as_str().unwrap().to_owned(), number("batch"), number("streams"))
    });
    let expected = [("24×24", &[1, 2, 4, 8][..]), ("48×48", &[1, 2])];
    let expected = expected.iter().flat_map(|(tile, batches)| {
        batches.iter().flat_map(move |batch| [1, 2, 4].map(|streams| (tile.to_string(), *batch, streams)))
    });
    assert_eq!(settings.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    let lacking = ["the engine has no graph for 3 images in one run, only for 1, 2, 4, 8", "--batch"];
    let _ = bench(&["--batch", "3"]).failure(2, &lacking);
    let _ = bench(&["--batch", "4", "--tile", "48x48"])
        .failure(2, &["the engine has no graph for 4 images in one run, only for 1, 2"]);
    let _ = bench(&["--sweep", "--batch", "3"]).failure(2, &["--batch"]);
}
