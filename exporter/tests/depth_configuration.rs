//! A transformers folder of Depth Anything: its `config.json` gives hyperparameters that no tensor determines, and is
//! compared with the tensors.
#![allow(clippy::unwrap_used, clippy::panic)] // a test's way to fail

use safetensors::SafeTensors;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use tileforge_exporter::arch::registry;
use tileforge_exporter::pipeline::weights_in;
use tileforge_exporter::{Checkpoint, Error, export, synthesise};
use tileforge_graph::{DataType, to_text};

/// Synthesises the small network with names of transformers in `folder`, without notes on hyperparameters. Returns the
/// text of the graph that the notes lead to.
fn write_checkpoint(folder: &Path) -> String {
    let entry = registry().iter().find(|entry| entry.name == "DepthAnything").unwrap();
    let (_, network) = entry.presets().into_iter().find(|(name, _)| *name == "tiny-transformers").unwrap();
    let path = folder.join("model.safetensors");
    synthesise(network.as_ref(), DataType::F32, 1, &path).unwrap();
    let noted = export(&Checkpoint::open(&path).unwrap(), &network.example_shapes(), &BTreeMap::new()).unwrap();
    let bytes = fs::read(&path).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    fs::write(&path, safetensors::serialize(tensors.tensors(), None).unwrap()).unwrap();
    to_text(&noted.model)
}

/// The configuration of that network in the form that transformers writes.
fn configuration() -> Value {
    json!({
        "architectures": ["DepthAnythingForDepthEstimation"],
        "backbone": null,
        "backbone_config": {
            "architectures": ["Dinov2Model"],
            "hidden_size": 16,
            "image_size": 56,
            "mlp_ratio": 2,
            "model_type": "dinov2",
            "num_attention_heads": 2,
            "num_hidden_layers": 4,
            "out_features": ["stage1", "stage2", "stage3", "stage4"],
            "out_indices": [1, 2, 3, 4],
            "patch_size": 14,
            "reshape_hidden_states": false
        },
        "fusion_hidden_size": 8,
        "head_hidden_size": 32,
        "head_in_index": -1,
        "model_type": "depth_anything",
        "neck_hidden_sizes": [4, 6, 8, 8],
        "patch_size": 14,
        "reassemble_factors": [4, 2, 1, 0.5],
        "reassemble_hidden_size": 16
    })
}

/// The text of the graph of the folder's network.
fn graph_of(folder: &Path, hints: &[(&str, &str)]) -> Result<String, Error> {
    let checkpoint = Checkpoint::open(weights_in(folder, None)?)?;
    let hints: BTreeMap<String, String> =
        hints.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let shapes = "pixel_values:1x3x42x56".parse()?;
    Ok(to_text(&export(&checkpoint, &shapes, &hints)?.model))
}

fn write_configuration(folder: &Path, configuration: &Value) {
    fs::write(folder.join("config.json"), configuration.to_string()).unwrap();
}

#[test]
fn the_configuration_gives_heads_and_taps() {
    let folder = tempfile::tempdir().unwrap();
    let noted = write_checkpoint(folder.path());
    let error = graph_of(folder.path(), &[]).unwrap_err();
    let Error::Hyperparameters { missing, .. } = &error else { panic!("{error}") };
    assert_eq!(missing.as_ref().map(|missing| missing.name), Some("heads"), "without a configuration: {error}");
    for (out_indices, out_features) in [
        (json!([1, 2, 3, 4]), json!(["stage1", "stage2", "stage3", "stage4"])),
        (json!([1, 2, 3, 4]), Value::Null),
        (json!([-4, -3, -2, -1]), Value::Null),
        (Value::Null, json!(["stage1", "stage2", "stage3", "stage4"])),
    ] {
        let mut configuration = configuration();
        configuration["backbone_config"]["out_indices"] = out_indices;
        configuration["backbone_config"]["out_features"] = out_features;
        write_configuration(folder.path(), &configuration);
        assert_eq!(graph_of(folder.path(), &[]).unwrap(), noted, "{configuration}");
    }
}

#[test]
fn the_user_takes_precedence_over_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let noted = write_checkpoint(folder.path());
    write_configuration(folder.path(), &configuration());
    assert!(graph_of(folder.path(), &[("heads", "4")]).unwrap().contains("\"heads\":4"));
    assert_eq!(graph_of(folder.path(), &[("taps", "0,1,2,3")]).unwrap(), noted);
}

#[test]
fn the_configuration_is_compared_with_the_tensors() {
    let folder = tempfile::tempdir().unwrap();
    let _ = write_checkpoint(folder.path());
    for (path, value, expected) in [
        ("/backbone_config/hidden_size", json!(32), "`backbone_config.hidden_size` is 32, the weights say 16"),
        ("/backbone_config/num_hidden_layers", json!(12), "the weights say 4"),
        ("/backbone_config/mlp_ratio", json!(4), "the weights say 2"),
        ("/backbone_config/image_size", json!(518), "the weights say 56"),
        ("/backbone_config/patch_size", json!(16), "`backbone_config.patch_size` is 16"),
        ("/backbone_config/model_type", json!("dinov2_with_registers"), "expected \"dinov2\""),
        ("/backbone_config/hidden_act", json!("relu"), "which is not supported"),
        ("/backbone_config/num_attention_heads", json!(3), "do not divide into 3 heads"),
        ("/backbone_config/num_attention_heads", json!("two"), "`backbone_config.num_attention_heads` is \"two\""),
        // The reference's default is 12 heads, and not those of the published width.
        ("/backbone_config/num_attention_heads", Value::Null, "do not divide into 12 heads"),
        ("/backbone_config/out_indices", json!([1, 2, 3, 3]), "different stages"),
        ("/backbone_config/out_features", json!(["stem", "stage2", "stage3", "stage4"]), "different stages"),
        ("/neck_hidden_sizes", json!([4, 6, 8, 9]), "the weights say [4,6,8,8]"),
        ("/fusion_hidden_size", json!(9), "the weights say 8"),
        ("/head_hidden_size", json!(9), "the weights say 32"),
        ("/reassemble_hidden_size", json!(9), "the weights say 16"),
        ("/reassemble_factors", json!([4, 2, 1, 1]), "which is not supported"),
        ("/depth_estimation_type", json!("metric"), "expected \"relative\""),
        ("/model_type", json!("dpt"), "expected \"depth_anything\""),
    ] {
        let mut configuration = configuration();
        let (outer, name) = path.rsplit_once('/').unwrap();
        configuration.pointer_mut(outer).unwrap()[name] = value;
        write_configuration(folder.path(), &configuration);
        let error = graph_of(folder.path(), &[]).unwrap_err().to_string();
        assert!(error.contains(expected), "{path}: expected `{expected}` in: {error}");
    }
    for stages in [json!([1, 2, 3, 5]), json!([0, 1, 2, 3]), json!([1, 2, 3]), json!([-9, 1, 2, 3])] {
        let mut configuration = configuration();
        configuration["backbone_config"]["out_indices"] = stages;
        configuration["backbone_config"]["out_features"] = Value::Null;
        write_configuration(folder.path(), &configuration);
        let error = graph_of(folder.path(), &[]).unwrap_err().to_string();
        assert!(error.contains("four ascending stages from 1 to 4"), "{error}");
    }
}
