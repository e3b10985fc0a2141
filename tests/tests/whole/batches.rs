//! A graph for several pictures computes for each of them what the graph for one does, byte for byte. So a build need
//! not run every batch of every tile (`engine-builder/src/coverage.rs`).

use end_to_end::{Graph, THREADS, build_engine, manifest_in, run, words};
use ndarray::{ArrayD, Axis as Along, Slice};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use tileforge_contract::{Axis, Contract, DataType, Extent, Meaning, Sizes, TensorSpec};
use tileforge_exporter::arch::registry;
use tileforge_exporter::{Checkpoint, Noise, Shapes, export_task, synthesise};
use tileforge_graph::{WeightStorage, save};
use tileforge_session::SessionOptions;

const BATCH: usize = 3;

/// Height and width, or the next lengths that a network takes, with the threads that a batch is run on. Odd sizes end
/// in the middle of a vector register.
const TRIED: [([usize; 2], &[usize]); 2] = [([45, 47], &THREADS), ([48, 48], &[4])];

fn sizes(contract: &Contract, batch: usize, [height, width]: [usize; 2]) -> Sizes {
    let size = |of: fn(&TensorSpec) -> Option<Extent>| contract.inputs.iter().find_map(of);
    let side = |extent: Option<Extent>, side: usize| extent.map_or(1, |extent| extent.size_for(side));
    Sizes {
        batch,
        height: side(size(TensorSpec::height), height),
        width: side(size(TensorSpec::width), width),
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
fn values(contract: &Contract, spec: &TensorSpec, sizes: &Sizes, noise: &mut Noise) -> ArrayD<f32> {
    let shape = contract.input_shapes(sizes).unwrap().remove(&spec.name).unwrap();
    ArrayD::from_shape_simple_fn(shape, || match spec.meaning {
        Meaning::Tokens { vocabulary } => ((noise.next_signed() * 0.5 + 0.5) * (vocabulary - 1) as f32).floor(),
        Meaning::Timestep { range: [low, high] } => low + (noise.next_signed() * 0.5 + 0.5) * (high - low),
        _ => noise.next_signed() * 0.5 + 0.5,
    })
}

/// The graphs of one network for one sample and for a batch, and values for both.
struct Compared<'a> {
    name: &'a str,
    contract: &'a Contract,
    folder: &'a Path,
    inputs: Vec<ArrayD<f32>>,
}

type Outputs = Vec<(String, ArrayD<f32>)>;

impl Compared<'_> {
    fn export(&self, checkpoint: &Path, sides: [usize; 2]) {
        for batch in [1, BATCH] {
            let shapes = self.contract.input_shapes(&sizes(self.contract, batch, sides)).unwrap();
            let checkpoint = Checkpoint::open(checkpoint).unwrap();
            let exported = export_task(&checkpoint, Some(self.contract.task), &Shapes::from(shapes), &BTreeMap::new());
            let model = exported.unwrap_or_else(|error| panic!("{}: {error}", self.name)).model;
            save(&model, &self.folder.join(format!("{batch}.onnx")), WeightStorage::Copy).unwrap();
        }
    }

    /// The outputs of the graph for so many samples, for each of these inputs.
    fn run(&self, batch: usize, threads: usize, inputs: &[Vec<ArrayD<f32>>]) -> Vec<Outputs> {
        let options = SessionOptions { threads: Some(threads), ..SessionOptions::default() };
        let failed = |error| panic!("{}: {error}", self.name);
        let mut graph = Graph::open(&self.folder.join(format!("{batch}.onnx")), &options).unwrap_or_else(failed);
        let mut one = |inputs: &Vec<ArrayD<f32>>| {
            let pairs = self.contract.inputs.iter().zip(inputs);
            let views: Vec<_> = pairs.map(|(spec, values)| (spec.name.as_str(), values.view())).collect();
            graph.run(&views).unwrap_or_else(|error| panic!("{}: {error}", self.name))
        };
        inputs.iter().map(&mut one).collect()
    }

    /// How samples in a batch, on each of these numbers of threads, differ from one sample alone on one thread.
    fn differences(&self, threads: &[usize]) -> Vec<String> {
        let of_each = |sample: usize| {
            let pairs = self.contract.inputs.iter().zip(&self.inputs);
            pairs.map(|(spec, values)| of_sample(spec, values, sample)).collect::<Vec<_>>()
        };
        let samples: Vec<_> = (0..BATCH).map(of_each).collect();
        let alone = self.run(1, 1, &samples);
        let compare = |text: String, sample: usize, found: &Outputs| {
            let differing = found.iter().zip(&alone[sample]).filter_map(|((output, found), (_, expected))| {
                assert!(expected.iter().all(|value| value.is_finite()), "{}: {output}", self.name);
                let found = of_sample(
                    self.contract.output(output).unwrap(),
                    found,
                    if found.shape() == expected.shape() { 0 } else { sample },
                );
                let pairs = found.iter().zip(expected);
                let count = pairs.filter(|(found, expected)| found.to_bits() != expected.to_bits()).count();
                (count > 0).then(|| format!("{}: {text}: {count} values of `{output}`", self.name))
            });
            differing.collect::<Vec<_>>()
        };
        let mut differences = Vec::new();
        for threads in threads {
            let together = self.run(BATCH, *threads, std::slice::from_ref(&self.inputs));
            for sample in 0..BATCH {
                let text = format!("sample {sample} of a batch on {threads} threads");
                differences.extend(compare(text, sample, &together[0]));
            }
        }
        differences
    }
}

#[test]
fn a_sample_of_a_batch_is_computed_as_one_alone_on_any_number_of_threads() {
    let work = tempfile::tempdir().unwrap();
    let checkpoint = work.path().join("checkpoint.safetensors");
    let (mut checked, mut differences) = (BTreeSet::new(), Vec::new());
    for entry in registry() {
        for (preset, network) in entry.presets() {
            let contract = network.contract();
            // Convolutions of clips are rounded otherwise in a batch and on other numbers of threads (docs/runtime.md). All
            // of their graphs are run.
            let of_clips = contract.inputs.iter().any(|input| input.frames().is_some());
            if of_clips || !preset.starts_with("tiny") {
                continue;
            }
            synthesise(network.as_ref(), DataType::F32, 1, &checkpoint).unwrap();
            let mut tried = BTreeSet::new();
            for (sides, threads) in TRIED {
                let sizes = sizes(&contract, BATCH, sides);
                if !tried.insert([sizes.height, sizes.width]) {
                    continue;
                }
                let name = format!("{} {preset} {}×{}", entry.name, sizes.height, sizes.width);
                let mut noise = Noise::new(7);
                let inputs = contract.inputs.iter().map(|spec| values(&contract, spec, &sizes, &mut noise)).collect();
                let compared = Compared { name: &name, contract: &contract, folder: work.path(), inputs };
                compared.export(&checkpoint, sides);
                differences.extend(compared.differences(threads));
            }
            checked.insert(entry.name);
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
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
