//! TensorRT accepts every exported graph, according to its table of operators.

use end_to_end::{repository, run, words};
use std::collections::BTreeMap;
use tileforge_contract::Upscale;
use tileforge_engine_builder::lint::{Target, lint};
use tileforge_exporter::arch::registry;
use tileforge_exporter::{Checkpoint, Shapes, export, synthesise};
use tileforge_graph::DataType;

#[test]
fn every_architecture_passes_for_both_versions() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint.safetensors");
    let mut problems = Vec::new();
    for entry in registry() {
        for (preset, network) in entry.presets().into_iter().filter(|(name, _)| name.starts_with("tiny")) {
            for data_type in [DataType::F32, DataType::F16] {
                synthesise(network.as_ref(), data_type, 1, &path).unwrap();
                let checkpoint = Checkpoint::open(&path).unwrap();
                let mut all_shapes = vec![network.example_shapes()];
                if let (Ok(contract), true) = (Upscale::of(&network.contract()), all_shapes[0].is_empty()) {
                    let least = contract.size_minimum.max(16);
                    all_shapes.push(Shapes::of("image", &[1, contract.channels, least, least + 8]));
                }
                for shapes in all_shapes {
                    let model = export(&checkpoint, &shapes, &BTreeMap::new()).unwrap().model;
                    for target in Target::TABLES {
                        let report = lint(&model, target);
                        let lines = report
                            .errors()
                            .map(|error| format!("{} {preset} {data_type} {target}: {error}", entry.name));
                        problems.extend(lines);
                    }
                }
            }
        }
    }
    assert!(problems.is_empty(), "{} errors\n{}", problems.len(), problems.join("\n"));
}

#[test]
fn the_command_says_what_it_finds_and_fails_with_4() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    let model = repository("models/compact-x4.safetensors");
    let _ = run("exporter", words(&[&"export", &model, &"-o", &path])).success();
    let lint = |more: &[&str]| {
        let arguments = words(&[&"lint", &path, &"--target"]);
        run("engine-builder", arguments.into_iter().chain(more.iter().map(Into::into)))
    };
    let said = lint(&["tensorrt-11"]).success();
    assert!(
        said.stdout.contains("dynamic sizes") && said.stdout.contains("tensorrt-11: 0 errors, 1 warning"),
        "{}",
        said.stdout
    );
    let json = lint(&["tensorrt-10", "--json"]).success().json();
    assert_eq!(json["findings"][0]["severity"], "warning", "{json}");
    let _ = lint(&["tensorrt-9"]).failure(2, &["tensorrt-10, tensorrt-11"]);

    let mut graph = tileforge_graph::load(&path).unwrap();
    graph.opsets[0].version = 8;
    tileforge_graph::save(&graph, &path, tileforge_graph::WeightStorage::Inline).unwrap();
    let refused = lint(&["tensorrt-10"]).failure(4, &["model.onnx: tensorrt-10 would not take this graph: 1 error"]);
    let found = "error: expected an opset of 9 to 23, found 8";
    assert!(
        refused.stdout.contains(found) && !refused.stderr.contains(found) && !refused.stderr.contains("gate"),
        "{refused:?}"
    );
}
