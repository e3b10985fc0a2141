//! Exported components of diffusion pipelines give what diffusers and transformers give.
#![allow(clippy::unwrap_used, clippy::panic)]

use end_to_end::{GoldenComponent, golden_components, repository};
use std::collections::BTreeMap;
use tileforge_exporter::lora::{Lora, merge};
use tileforge_exporter::pipeline::Pipeline;
use tileforge_exporter::{Checkpoint, Export, Shapes, export_task};
use tileforge_graph::WeightStorage;

/// Largest absolute error over the range of the reference's output.
const TOLERANCE: f32 = 2e-5;

/// A hyperparameter that only the other components of a pipeline tell.
fn hints(golden: &GoldenComponent) -> BTreeMap<String, String> {
    let width = golden.inputs.get("text_embeds").map(|embeds| embeds.shape()[1].to_string());
    width.into_iter().map(|width| ("text_embeds_width".to_owned(), width)).collect()
}

fn check(golden: &GoldenComponent, shapes: &Shapes, storage: WeightStorage) -> f32 {
    let checkpoint = Checkpoint::open(&golden.checkpoint).unwrap();
    let export = export_task(&checkpoint, Some(golden.graph.parse().unwrap()), shapes, &hints(golden));
    check_export(golden, &export.unwrap_or_else(|e| panic!("{}: {e}", golden.name)), storage)
}

fn check_export(golden: &GoldenComponent, export: &Export, storage: WeightStorage) -> f32 {
    let error = golden.error_of(&export.model, storage, &golden.inputs);
    assert!(error <= TOLERANCE, "{}: {error}", golden.name);
    error
}

/// The golden inputs of networks as they are, without adaptations.
fn golden_networks() -> Vec<GoldenComponent> {
    golden_components().into_iter().filter(|golden| !golden.name.starts_with("lora-")).collect()
}

#[test]
fn fixed_shapes_match_the_reference() {
    let all = golden_networks();
    for golden in &all {
        println!("{:<50} {:.1e}", golden.name, check(golden, &golden.shapes(), WeightStorage::Link));
    }
    assert!(all.len() >= 19, "only {} golden inputs", all.len());
}

#[test]
fn dynamic_shapes_match_the_reference() {
    for golden in &golden_networks() {
        // A text encoder's graph is of one number of tokens: the one that its tokenizer pads to, if nothing else is
        // said.
        let tokens = golden.inputs.get("input_ids").filter(|ids| ids.shape()[1] != 11).map(|_| golden.shapes());
        let _ = check(golden, &tokens.unwrap_or_default(), WeightStorage::Copy);
    }
}

/// Single files hold the weights of other cases, whose configurations they do not hold.
#[test]
fn networks_of_single_files_match_the_reference() {
    let files = [
        (
            "single-file-xl",
            [
                ("unet", "unet-xl"),
                ("vae", "vae"),
                ("text_encoder", "text-quick-gelu"),
                ("text_encoder_2", "text-projection"),
            ]
            .as_slice(),
        ),
        ("single-file", &[("unet", "unet"), ("vae", "vae-old-names"), ("text_encoder", "text-quick-gelu")]),
    ];
    let mut seen = 0;
    for (file, cases) in files {
        let checkpoint =
            Checkpoint::open(repository(&format!("tests/golden-diffusers/{file}/checkpoint.safetensors"))).unwrap();
        let pipeline = Pipeline::of_single_file(&checkpoint, &[]).unwrap().unwrap();
        assert_eq!(pipeline.parts().len(), cases.len() + 1);
        for part in pipeline.parts() {
            let component = part.name.trim_end_matches("_encoder").trim_end_matches("_decoder");
            let (_, case) = cases.iter().find(|(name, _)| *name == component || *name == part.name).unwrap();
            for golden in golden_networks()
                .iter()
                .filter(|golden| golden.folder.ends_with(case) && golden.graph == part.task.to_string())
            {
                let config: BTreeMap<String, serde_json::Value> =
                    serde_json::from_slice(&std::fs::read(golden.folder.join("config.json")).unwrap()).unwrap();
                let asked =
                    ["norm_num_groups", "num_attention_heads", "attention_head_dim", "hidden_act", "eos_token_id"];
                let added: &[&str] =
                    if golden.inputs.contains_key("time_ids") { &["addition_time_embed_dim"] } else { &[] };
                let said = asked
                    .iter()
                    .chain(added)
                    .filter_map(|name| Some((name.to_string(), config.get(*name)?.to_string())));
                let said =
                    said.map(|(name, value)| (name, value.trim_matches('"').to_owned())).chain(hints(golden)).collect();
                let export =
                    part.export(&golden.shapes(), &said).unwrap_or_else(|e| panic!("{file} {}: {e}", part.name));
                let _ = check_export(golden, &export, WeightStorage::Link);
                seen += 1;
            }
        }
    }
    assert!(seen >= 14, "only {seen} golden inputs");
}

#[test]
fn merged_adaptations_match_the_reference() {
    let adaptations: Vec<GoldenComponent> =
        golden_components().into_iter().filter(|golden| golden.name.starts_with("lora-")).collect();
    assert_eq!(adaptations.len(), 3);
    for golden in &adaptations {
        let (case, scale) = match golden.name.split('/').next().unwrap() {
            "lora-kohya" => ("unet", 0.8),
            "lora-kohya-xl" => ("unet-xl", 1.0),
            _ => ("unet-linear", -0.5),
        };
        let network = golden_networks().into_iter().find(|network| network.folder.ends_with(case)).unwrap();
        let mut checkpoint = Checkpoint::open(&network.checkpoint).unwrap();
        let lora = Lora { path: golden.checkpoint.clone(), scale };
        assert_eq!(merge(&mut [("unet", &mut checkpoint)], &[lora]).unwrap(), [0]);
        let export = export_task(&checkpoint, None, &golden.shapes(), &hints(golden)).unwrap();
        println!("{:<50} {:.1e}", golden.name, check_export(golden, &export, WeightStorage::Link));
    }
}
