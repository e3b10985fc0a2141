//! Attention, normalisations and activations are exported in the forms that ONNX Runtime fuses.

use end_to_end::Graph;
use std::collections::BTreeMap;
use tileforge_exporter::arch::registry;
use tileforge_exporter::{Checkpoint, export, synthesise};
use tileforge_graph::rewrite::fold_weight_casts;
use tileforge_graph::{DataType, Model, WeightStorage, external_tensors, load, save, save_sharing_weights};
use tileforge_session::{OptimisationLevel, SessionOptions};

fn count(model: &Model, operator: &str) -> usize {
    model.nodes.iter().filter(|node| node.operator == operator).count()
}

/// The graph of the preset `tiny`, as exported and with ONNX Runtime's fusions.
fn tiny(architecture: &str) -> [Model; 2] {
    let folder = tempfile::tempdir().unwrap();
    let [checkpoint, path, optimised] =
        ["checkpoint.safetensors", "model.onnx", "optimised.onnx"].map(|name| folder.path().join(name));
    let entry = registry().iter().find(|entry| entry.name == architecture).unwrap();
    let (_, network) = entry.presets().into_iter().find(|(name, _)| *name == "tiny").unwrap();
    synthesise(network.as_ref(), DataType::F32, 1, &checkpoint).unwrap();
    let model =
        export(&Checkpoint::open(&checkpoint).unwrap(), &network.example_shapes(), &BTreeMap::new()).unwrap().model;
    save(&model, &path, WeightStorage::Inline).unwrap();
    let options = SessionOptions {
        optimisation: OptimisationLevel::Extended,
        optimised_model_path: Some(optimised.clone()),
        ..SessionOptions::default()
    };
    Graph::open(&path, &options).unwrap();
    let fused = load(&optimised).unwrap();
    [model, fused]
}

#[test]
fn attention_is_fused() {
    for architecture in ["SwinIR", "DRCT", "HAT"] {
        let [model, fused] = tiny(architecture);
        let attentions = count(&model, "Softmax");
        assert!(attentions > 2, "{architecture}");
        // The scale of the queries and the transposition of the keys become part of the product.
        assert_eq!(count(&fused, "FusedMatMul"), attentions, "{architecture}");
        assert_eq!(count(&fused, "MatMul"), attentions, "{architecture}");
        assert_eq!(count(&model, "Mul") - count(&fused, "Mul"), attentions, "{architecture}");
        // Operators that the exporter wrote as one node are not decomposed, and known values stay constant.
        for operator in ["LayerNormalization", "Gelu", "Gemm"] {
            let activated = if operator == "Gemm" { count(&fused, "FusedGemm") } else { 0 };
            assert_eq!(count(&fused, operator) + activated, count(&model, operator), "{architecture}: {operator}");
        }
        assert_eq!(count(&fused, "Cast") + count(&fused, "Shape"), 0, "{architecture}");
    }
}

#[test]
fn activations_are_fused_with_the_layer_before() {
    let [model, fused] = tiny("DRCT");
    // After each of the four blocks that make features for others, and before the upsampling.
    assert_eq!((count(&model, "LeakyRelu"), count(&fused, "FusedGemm"), count(&fused, "FusedConv")), (5, 4, 1));
    let [model, fused] = tiny("RRDBNet");
    assert_eq!(count(&model, "LeakyRelu"), count(&fused, "FusedConv"));
}

#[test]
fn a_fused_graph_stores_no_weights_that_were_in_32_bits_before() {
    let folder = tempfile::tempdir().unwrap();
    let [checkpoint, path, optimised, weights] =
        ["checkpoint.safetensors", "model.onnx", "optimised.onnx", "model.weights"]
            .map(|name| folder.path().join(name));
    let entry = registry().iter().find(|entry| entry.name == "UNet2DConditionModel").unwrap();
    let (_, network) = entry.presets().into_iter().find(|(name, _)| *name == "tiny").unwrap();
    synthesise(network.as_ref(), DataType::F16, 1, &checkpoint).unwrap();
    let exported =
        export(&Checkpoint::open(&checkpoint).unwrap(), &network.example_shapes(), &BTreeMap::new()).unwrap().model;
    let outside = |path: &std::path::Path| -> usize {
        let tensors = external_tensors(&std::fs::read(path).unwrap(), path).unwrap();
        tensors.iter().map(|tensor| tensor.length).sum()
    };
    // The share of the weights' bytes that stays in the weight file.
    let share = |model: &Model| {
        save_sharing_weights(&[(model, &path)], &weights).unwrap();
        let options = SessionOptions {
            optimisation: OptimisationLevel::Extended,
            optimised_model_path: Some(optimised.clone()),
            ..SessionOptions::default()
        };
        Graph::open(&path, &options).unwrap();
        outside(&optimised) as f64 / outside(&path) as f64
    };
    let (folded, stored) = (share(&fold_weight_casts(&exported).unwrap()), share(&exported));
    assert!(folded > 0.9 && stored < 0.1, "{folded} and {stored}");
}
