//! What holds of every architecture and configuration in the registry.
#![allow(clippy::unwrap_used, clippy::panic)] // a test's way to fail

use exporter::arch::{detect, registry};
use exporter::{Checkpoint, export, synthesise};
use graph::{DataType, to_text};
use std::collections::BTreeMap;

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
                let detected = detect(&checkpoint, &BTreeMap::new()).unwrap_or_else(|e| panic!("{} {preset}: {e}", entry.name));
                assert_eq!(detected.architecture(), entry.name, "{preset}");
                assert_eq!(detected.hyperparameters().unwrap(), network.hyperparameters().unwrap(), "{} {preset}", entry.name);
                seen += 1;
            }
        }
    }
    assert!(seen >= 45, "only {seen} configurations");
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

/// A graph changes only on purpose: `cargo insta review` shows how.
#[test]
fn graphs_are_as_reviewed() {
    let folder = tempfile::tempdir().unwrap();
    for entry in registry() {
        let presets = entry.presets();
        for (preset, network) in presets.iter().filter(|(name, _)| ["tiny", "tiny-unshuffle-x2", "tiny-real-dysample"].contains(name)) {
            let path = folder.path().join("checkpoint.safetensors");
            synthesise(network.as_ref(), DataType::F32, 1, &path).unwrap();
            let export = export(&Checkpoint::open(&path).unwrap(), &network.example_shapes(), &BTreeMap::new()).unwrap();
            insta::assert_snapshot!(format!("{}-{preset}", entry.name), to_text(&export.model));
        }
    }
}
