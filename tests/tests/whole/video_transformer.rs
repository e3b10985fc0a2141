//! Exported diffusion transformers for videos give the same outputs as the reference.

use end_to_end::{GoldenComponent, golden_video_transformers, names_in, repository, run, words};
use std::collections::BTreeMap;
use tileforge_exporter::arch::{detect, registry};
use tileforge_exporter::{Checkpoint, Shapes, export, parameters, synthesise};
use tileforge_graph::{DataType, WeightStorage};

/// Largest absolute error over the range of the reference's output.
const TOLERANCE: f32 = 2e-5;

fn golden() -> Vec<GoldenComponent> {
    let all = golden_video_transformers();
    assert!(all.len() >= 10, "only {} golden inputs", all.len());
    all
}

#[test]
fn transformers_match_the_reference() {
    for golden in &golden() {
        let checkpoint = Checkpoint::open(&golden.checkpoint).unwrap();
        let export = export(&checkpoint, &golden.shapes(), &BTreeMap::new());
        let model = export.unwrap_or_else(|error| panic!("{}: {error}", golden.name)).model;
        for storage in [WeightStorage::Link, WeightStorage::Copy] {
            let error = golden.error_of(&model, storage, &golden.inputs);
            let attentions = model.nodes.iter().filter(|node| node.operator == "Attention").count();
            println!("{:<45} {} nodes, {attentions} attentions {error:.1e}", golden.name, model.nodes.len());
            assert!(error <= TOLERANCE, "{}: {error}", golden.name);
        }
    }
}

/// Windows of equal sizes share one attention. 22 × 20 patches have 4 windows in a frame, each with another size.
#[test]
fn windows_of_equal_sizes_are_one_attention() {
    let attentions = |sizes: &str| {
        let golden = golden();
        let golden = golden.iter().find(|golden| golden.name.starts_with("seedvr2-3b/")).unwrap();
        let shapes: Shapes = format!("sample:{sizes},encoder_hidden_states:1x5x20").parse().unwrap();
        let model = export(&Checkpoint::open(&golden.checkpoint).unwrap(), &shapes, &BTreeMap::new()).unwrap().model;
        model.nodes.iter().filter(|node| node.operator == "Attention").count()
    };
    // 4 layers.
    assert_eq!(["1x7x1x8x8", "1x7x4x8x8", "1x7x3x44x40"].map(attentions), [4, 4, 16]);
    // Plain: 2 + 2 + 1 frames. Shifted: 1 + 2 + 2.
    assert_eq!(attentions("1x7x5x8x8"), 8);
}

/// The reference counts the same number of elements, without the frequencies of the rotations and, for 7B, without
/// 84,965,376 elements that only change the text after the last attention.
#[test]
fn published_sizes_have_the_published_parameters() {
    let entry = registry().iter().find(|entry| entry.name == "NaDiT").unwrap();
    for (preset, expected) in [("3b", 3_391_475_776), ("7b", 8_239_607_872 - 84_965_376)] {
        let (_, network) = entry.presets().into_iter().find(|(name, _)| *name == preset).unwrap();
        assert_eq!(parameters(network.as_ref()).unwrap(), expected, "{preset}");
    }
}

#[test]
fn forms_are_told_apart_with_all_their_hyperparameters() {
    let found = |case: &str| {
        let path = repository(&format!("tests/golden-video-transformer/{case}/transformer.safetensors"));
        let network = detect(&Checkpoint::open(path).unwrap(), &BTreeMap::new()).unwrap();
        let hyperparameters = network.hyperparameters().unwrap();
        ["form", "heads", "head_dim", "layers", "mm_layers", "hidden"].map(|name| hyperparameters[name].to_string())
    };
    assert_eq!(found("seedvr2-3b"), ["\"dit_3b\"", "2", "128", "4", "2", "256"]);
    assert_eq!(found("separate"), ["\"dit_3b\"", "3", "24", "2", "2", "256"]);
    assert_eq!(found("seedvr2-7b"), ["\"dit_7b\"", "2", "128", "2", "2", "64"]);
}

#[test]
fn wrong_requests_say_what_is_right() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out/model.onnx");
    let golden = repository("tests/golden-video-transformer/seedvr2-3b/transformer.safetensors");
    let odd = folder.path().join("odd.safetensors");
    let entry = registry().iter().find(|entry| entry.name == "NaDiT").unwrap();
    let (_, network) = entry.presets().into_iter().find(|(name, _)| *name == "tiny").unwrap();
    synthesise(network.as_ref(), DataType::F32, 1, &odd).unwrap();
    let text = "encoder_hidden_states:1x5x20";
    let cases: &[(&str, &[&str])] = &[
        (text, &["`sample` has no fixed shape", "give one, as in `--shapes sample:1x7x2x90x160`"]),
        ("sample:1x7x2x8x8", &["`encoder_hidden_states`", "--shapes encoder_hidden_states:1x58x20"]),
        (&format!("sample:1x7x2x7x8,{text}"), &["7 is no multiple of 2"]),
        (&format!("sample:1x9x2x8x8,{text}"), &["BATCHx7xFRAMESx2*HEIGHTx2*WIDTH"]),
        (&format!("sample:2x7x2x8x8,{text}"), &["contradicts the shape of `sample`"]),
    ];
    for (shapes, said) in cases {
        let arguments = words(&[&"export", &golden, &"--shapes", shapes, &"-o", &out]);
        let _ = run("exporter", arguments).failure(2, said);
        assert_eq!(names_in(folder.path()), ["odd.safetensors"], "{shapes}");
    }
    let arguments = words(&[&"export", &odd, &"--shapes", &"sample:1x7x1x4x4", &"-o", &out]);
    let _ = run("exporter", arguments).failure(2, &["expected BATCHx9x"]);
}
