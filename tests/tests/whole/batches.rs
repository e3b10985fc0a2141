//! A graph for several pictures computes for each of them what the graph for one does, byte for byte. So a build need
//! not run every batch of every tile (`engine-builder/src/coverage.rs`).

use end_to_end::{Graph, build_engine, manifest_in, run, words};
use ndarray::{ArrayD, Axis as Along, Slice};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use tileforge_contract::{Axis, Contract, DataType, Extent, Meaning, Sizes, TensorSpec};
use tileforge_exporter::arch::registry;
use tileforge_exporter::{Checkpoint, Noise, Shapes, export_task, synthesise};
use tileforge_graph::{WeightStorage, save};
use tileforge_session::SessionOptions;

const BATCH: usize = 3;

/// Pixels of a side, or the next length that a network takes.
const SIDE: usize = 48;

fn sizes(contract: &Contract, batch: usize) -> Sizes {
    let size = |of: fn(&TensorSpec) -> Option<Extent>| contract.inputs.iter().find_map(of);
    let side = |extent: Option<Extent>| extent.map_or(1, |extent| extent.size_for(SIDE));
    Sizes {
        batch,
        height: side(size(TensorSpec::height)),
        width: side(size(TensorSpec::width)),
        frames: size(TensorSpec::frames).map_or(1, |extent| extent.minimum),
        tokens: contract.inputs.iter().find_map(TensorSpec::most_tokens).unwrap_or(7),
    }
}

fn batch_axis(spec: &TensorSpec) -> Option<Along> {
    spec.axes.iter().position(|axis| matches!(axis, Axis::Batch)).map(Along)
}

/// The part of a tensor that belongs to one sample; all of a tensor that the samples share.
fn of_sample(spec: &TensorSpec, values: &ArrayD<f32>, sample: usize) -> ArrayD<f32> {
    match batch_axis(spec) {
        Some(axis) => values.slice_axis(axis, Slice::from(sample..=sample)).to_owned(),
        None => values.clone(),
    }
}

/// Values of an input, another one for each sample.
fn values(contract: &Contract, spec: &TensorSpec, noise: &mut Noise) -> ArrayD<f32> {
    let shape = contract.input_shapes(&sizes(contract, BATCH)).unwrap().remove(&spec.name).unwrap();
    ArrayD::from_shape_simple_fn(shape, || match spec.meaning {
        Meaning::Tokens { vocabulary } => ((noise.next_signed() * 0.5 + 0.5) * (vocabulary - 1) as f32).floor(),
        Meaning::Timestep { range: [low, high] } => low + (noise.next_signed() * 0.5 + 0.5) * (high - low),
        _ => noise.next_signed() * 0.5 + 0.5,
    })
}

#[test]
fn a_sample_of_a_batch_is_computed_as_one_alone() {
    let work = tempfile::tempdir().unwrap();
    let checkpoint = work.path().join("checkpoint.safetensors");
    let mut checked = BTreeSet::new();
    for (entry, preset, network) in registry()
        .iter()
        .flat_map(|entry| entry.presets().into_iter().map(move |(preset, network)| (entry, preset, network)))
    {
        let contract = network.contract();
        // Convolutions of clips are rounded otherwise in a batch, and all of their graphs are run.
        let of_clips = contract.inputs.iter().any(|input| input.frames().is_some());
        if of_clips || !preset.starts_with("tiny") {
            continue;
        }
        let name = format!("{} {preset}", entry.name);
        synthesise(network.as_ref(), DataType::F32, 1, &checkpoint).unwrap();
        let [mut together, mut alone] = [BATCH, 1].map(|batch| {
            let shapes = contract.input_shapes(&sizes(&contract, batch)).unwrap_or_else(|e| panic!("{name}: {e}"));
            let checkpoint = Checkpoint::open(&checkpoint).unwrap();
            let exported = export_task(&checkpoint, Some(contract.task), &Shapes::from(shapes), &BTreeMap::new());
            let path = work.path().join(format!("{batch}.onnx"));
            save(&exported.unwrap_or_else(|e| panic!("{name}: {e}")).model, &path, WeightStorage::Copy).unwrap();
            Graph::open(&path, &SessionOptions::default()).unwrap_or_else(|e| panic!("{name}: {e}"))
        });
        let mut noise = Noise::new(7);
        let inputs: Vec<ArrayD<f32>> = contract.inputs.iter().map(|spec| values(&contract, spec, &mut noise)).collect();
        let named = |inputs: &[ArrayD<f32>]| {
            let pairs = contract.inputs.iter().zip(inputs);
            pairs.map(|(spec, values)| (spec.name.clone(), values.clone())).collect::<Vec<_>>()
        };
        let run = |graph: &mut Graph, inputs: &[(String, ArrayD<f32>)]| {
            let views: Vec<_> = inputs.iter().map(|(name, values)| (name.as_str(), values.view())).collect();
            graph.run(&views).unwrap_or_else(|e| panic!("{name}: {e}"))
        };
        let expected = run(&mut together, &named(&inputs));
        for sample in 0..BATCH {
            let pairs = contract.inputs.iter().zip(&inputs);
            let one: Vec<ArrayD<f32>> = pairs.map(|(spec, values)| of_sample(spec, values, sample)).collect();
            for ((output, found), (_, expected)) in run(&mut alone, &named(&one)).iter().zip(&expected) {
                let spec = contract.output(output).unwrap();
                let expected = of_sample(spec, expected, sample);
                assert!(found.iter().all(|value| value.is_finite()), "{name}: {output}");
                let bits = |values: &ArrayD<f32>| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
                assert!(bits(found) == bits(&expected), "{name}: `{output}` of sample {sample} differs in a batch");
            }
        }
        checked.insert(entry.name);
    }
    assert_eq!(checked.len(), registry().len() - 2, "all but the two of clips: {checked:?}");
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

    // Every tile, batch and number of streams is in one sweep, and no other batch is taken for one that is there.
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
    let _ = bench(&["--batch", "3"]).failure(1, &lacking);
    let _ = bench(&["--batch", "4", "--tile", "48x48"])
        .failure(1, &["the engine has no graph for 4 images in one run, only for 1, 2"]);
    let _ = bench(&["--sweep", "--batch", "3"]).failure(2, &["--batch"]);
}
