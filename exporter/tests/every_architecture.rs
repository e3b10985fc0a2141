//! Tests of every architecture and configuration in the registry.
#![allow(clippy::unwrap_used, clippy::panic)] // a test's way to fail

use std::collections::{BTreeMap, BTreeSet};
use tileforge_exporter::arch::{Entry, Keys, detect, registry};
use tileforge_exporter::{Checkpoint, export, parameters, synthesise};
use tileforge_graph::{DataType, to_text};

/// Configurations small enough to write in a test; the published sizes are for benchmarks.
const SMALL: &str = "tiny";

#[test]
fn a_synthesised_checkpoint_is_detected_as_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let mut seen = 0;
    for entry in registry() {
        for (preset, network) in entry.presets().into_iter().filter(|(name, _)| name.starts_with(SMALL)) {
            for data_type in [DataType::F32, DataType::F16, DataType::Bf16] {
                let path = folder.path().join("checkpoint.safetensors");
                synthesise(network.as_ref(), data_type, 1, &path).unwrap();
                let checkpoint = Checkpoint::open(&path).unwrap();
                let detected =
                    detect(&checkpoint, &BTreeMap::new()).unwrap_or_else(|e| panic!("{} {preset}: {e}", entry.name));
                assert_eq!(detected.architecture(), entry.name, "{preset}");
                assert_eq!(
                    detected.hyperparameters().unwrap(),
                    network.hyperparameters().unwrap(),
                    "{} {preset}",
                    entry.name
                );
                seen += 1;
            }
        }
    }
    assert!(seen >= 45, "only {seen} configurations");
}

/// Relatives share most of their names. Without the order of the registry, each checkpoint still fits one architecture
/// of a task.
#[test]
fn every_checkpoint_fits_one_architecture_of_a_task() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint.safetensors");
    let mut wrong = Vec::new();
    for own in registry() {
        for (preset, network) in own.presets().into_iter().filter(|(name, _)| name.starts_with(SMALL)) {
            synthesise(network.as_ref(), DataType::F16, 1, &path).unwrap();
            let (checkpoint, hints) = (Checkpoint::open(&path).unwrap(), BTreeMap::new());
            let keys = Keys::new(&checkpoint, &hints);
            let fits = |entry: &&Entry| entry.task == own.task && entry.fits(&keys);
            let found: Vec<&str> = registry().iter().filter(fits).map(|entry| entry.name).collect();
            if found != [own.name] {
                wrong.push(format!("{} {preset} fits {}: {found:?}", own.name, own.task));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_graph_has_weights_that_nothing_uses() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint.safetensors");
    let mut wrong = Vec::new();
    for entry in registry() {
        for (preset, network) in entry.presets().into_iter().filter(|(name, _)| name.starts_with(SMALL)) {
            synthesise(network.as_ref(), DataType::F16, 1, &path).unwrap();
            let checkpoint = Checkpoint::open(&path).unwrap();
            let model = export(&checkpoint, &network.example_shapes(), &BTreeMap::new()).unwrap().model;
            let used: BTreeSet<&String> = model.nodes.iter().flat_map(|node| &node.inputs).collect();
            let unused = model.weights.keys().filter(|name| !used.contains(name));
            wrong.extend(unused.map(|name| format!("{} {preset}: {name}", entry.name)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_reference_implementation_reads_a_synthesised_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint.safetensors");
    let (_, network) = registry()[0].presets().remove(0);
    synthesise(network.as_ref(), DataType::F16, 1, &path).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let read = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(read.len(), Checkpoint::open(&path).unwrap().tensors().len());
}

/// The numbers of parameters that diffusers and transformers count in the published networks. No file is written.
#[test]
fn published_sizes_have_the_published_parameters() {
    for (architecture, preset, expected) in [
        ("UNet2DConditionModel", "sd15", 859_520_964),
        ("UNet2DConditionModel", "sd15-inpainting", 859_535_364),
        ("UNet2DConditionModel", "lcm", 859_602_884),
        ("UNet2DConditionModel", "sd21", 865_910_724),
        ("UNet2DConditionModel", "sdxl-base", 2_567_463_684),
        ("UNet2DConditionModel", "sdxl-inpainting", 2_567_478_084),
        ("UNet2DConditionModel", "sdxl-refiner", 2_259_526_660),
        ("CLIPText", "clip-l", 123_060_480),
        ("CLIPText", "sd21", 340_387_840),
        ("CLIPText", "openclip-bigg", 694_659_840),
    ] {
        assert_eq!(published(architecture, preset), expected, "{architecture} {preset}");
    }
    for (preset, expected) in [("sd15", 83_653_863), ("sdxl", 83_653_863), ("sd3", 83_819_683), ("flux", 83_819_683)] {
        let halves = ["AutoencoderKLEncoder", "AutoencoderKLDecoder"].map(|half| published(half, preset));
        assert_eq!(halves[0] + halves[1], expected, "{preset}");
    }
}

fn published(architecture: &str, preset: &str) -> u64 {
    let entry = registry().iter().find(|entry| entry.name == architecture).unwrap();
    let (_, network) = entry.presets().into_iter().find(|(name, _)| *name == preset).unwrap();
    parameters(network.as_ref()).unwrap()
}

/// A graph changes only on purpose: `cargo insta review` shows the changes.
#[test]
fn graphs_are_as_reviewed() {
    let folder = tempfile::tempdir().unwrap();
    for entry in registry() {
        let presets = entry.presets();
        for (preset, network) in presets.iter().filter(|(name, _)| {
            ["tiny", "tiny-unshuffle-x2", "tiny-real-dysample", "tiny-xl", "tiny-projection"].contains(name)
        }) {
            let path = folder.path().join("checkpoint.safetensors");
            synthesise(network.as_ref(), DataType::F32, 1, &path).unwrap();
            let export =
                export(&Checkpoint::open(&path).unwrap(), &network.example_shapes(), &BTreeMap::new()).unwrap();
            insta::assert_snapshot!(format!("{}-{preset}", entry.name), to_text(&export.model));
        }
    }
}
