//! A graph contains the contract of its architecture, and an engine's manifest accepts it.
#![allow(clippy::unwrap_used, clippy::panic)] // a test's way to fail

use std::collections::{BTreeMap, BTreeSet};

use tileforge_contract::{Contract, Extent, Meaning, Normalisation, Shapes, Sizes, Task, TensorSpec, Upscale};
use tileforge_exporter::arch::registry;
use tileforge_exporter::{Checkpoint, export_task, synthesise};
use tileforge_graph::{DataType, Port, WeightStorage};

#[test]
fn every_contract_survives_its_graph_and_holds_for_its_shapes() {
    let folder = tempfile::tempdir().unwrap();
    let mut tasks = BTreeSet::new();
    for entry in registry() {
        for (preset, network) in entry.presets().into_iter().filter(|(name, _)| name.starts_with("tiny")) {
            let contract = network.contract();
            assert_eq!(contract.task, entry.task, "{} {preset}", entry.name);
            let checkpoint = folder.path().join("checkpoint.safetensors");
            synthesise(network.as_ref(), DataType::F32, 1, &checkpoint).unwrap();
            let checkpoint = Checkpoint::open(&checkpoint).unwrap();
            let shapes = network.example_shapes();
            let model = export_task(&checkpoint, Some(entry.task), &shapes, &BTreeMap::new()).unwrap().model;
            let file = folder.path().join("model.onnx");
            tileforge_graph::save(&model, &file, WeightStorage::Copy).unwrap();
            let read = Contract::from_metadata(&tileforge_graph::load(&file).unwrap().metadata).unwrap();
            assert_eq!(read, contract, "{} {preset}", entry.name);
            // With every open size fixed, the graph has the shapes that the contract predicts.
            // A text encoder's graph has the number of its positions.
            let tokens = contract.inputs.iter().find_map(|input| input.most_tokens()).unwrap_or(5);
            let least = |extent: fn(&TensorSpec) -> Option<Extent>| {
                contract.inputs.iter().find_map(extent).map_or(1, |extent| extent.minimum)
            };
            let (height, width) = (least(TensorSpec::height) + 3, least(TensorSpec::width) + 2);
            let sizes = Sizes { batch: 2, height, width, frames: 2, tokens };
            let open = model.inputs.iter().any(|port| port.ty.fixed_dims().is_none());
            let model = if open { model.specialised(&contract.input_shapes(&sizes).unwrap()).unwrap() } else { model };
            let shapes = |ports: &[Port]| -> Shapes {
                ports.iter().map(|port| (port.name.clone(), port.ty.fixed_dims().unwrap())).collect()
            };
            let found = contract.check(&shapes(&model.inputs), &shapes(&model.outputs));
            let found = found.unwrap_or_else(|error| panic!("{} {preset}: {error}", entry.name));
            assert!(!open || (found.height, found.width) == (height, width) || contract.task == Task::TextEncoder);
            tasks.insert(contract.task);
        }
    }
    // This task is for files of other programs only: no architecture has it.
    tasks.insert(Task::Tensors);
    assert_eq!(tasks, Task::ALL.iter().copied().collect());
}

#[test]
fn every_published_network_has_a_contract_that_keeps_the_rules() {
    for entry in registry() {
        for (preset, network) in entry.presets() {
            let contract = network.contract();
            let text = contract.to_json().unwrap_or_else(|error| panic!("{} {preset}: {error}", entry.name));
            assert_eq!(Contract::from_json(&text).unwrap(), contract);
            assert_eq!(Upscale::of(&contract).is_ok(), contract.task == Task::Upscale, "{} {preset}", entry.name);
        }
    }
}

#[test]
fn depth_networks_take_pixels_as_imagenet_has_them() {
    let of = |architecture: &str| {
        let entry = registry().iter().find(|entry| entry.name == architecture).unwrap();
        entry.presets().into_iter().find(|(name, _)| *name == "tiny").unwrap().1.contract()
    };
    for architecture in ["DepthAnything", "RGBDDepth"] {
        let contract = of(architecture);
        let pixels = &contract.input("pixel_values").unwrap().meaning;
        assert!(
            matches!(pixels, Meaning::Pixels { normalisation: Some(Normalisation::IMAGENET), range: [0.0, 1.0], .. }),
            "{architecture}: {pixels:?}"
        );
    }
}
