//! Pipelines through the exporter's program: the layout of its output, and bad input.

use end_to_end::{Graph, names_in, repository, run, words};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use tileforge_contract::{Contract, Meaning};
use tileforge_session::SessionOptions;

/// A pipeline's folder with golden components: `(component, class, golden case)`.
fn pipeline(folder: &Path, components: &[(&str, &str, &str)]) -> PathBuf {
    let root = folder.join("pipeline");
    fs::create_dir(&root).unwrap();
    let mut index = json!({
        "_class_name": "StableDiffusionXLPipeline",
        "force_zeros_for_empty_prompt": true,
        "image_encoder": [null, null],
    });
    for (name, class, case) in components {
        let (from, to) = (repository(&format!("tests/golden-diffusers/{case}")), root.join(name));
        fs::create_dir(&to).unwrap();
        for file in names_in(&from).into_iter().filter(|file| !file.contains("golden")) {
            fs::copy(from.join(&file), to.join(&file)).unwrap();
        }
        index[name] = json!(["library", class]);
    }
    fs::create_dir(root.join("scheduler")).unwrap();
    fs::write(root.join("scheduler/scheduler_config.json"), "{}").unwrap();
    index["scheduler"] = json!(["diffusers", "EulerDiscreteScheduler"]);
    fs::write(root.join("model_index.json"), index.to_string()).unwrap();
    root
}

const XL: [(&str, &str, &str); 4] = [
    ("unet", "UNet2DConditionModel", "unet-xl"),
    ("vae", "AutoencoderKL", "vae-no-quant"),
    ("text_encoder", "CLIPTextModel", "text-quick-gelu"),
    ("text_encoder_2", "CLIPTextModelWithProjection", "text-projection"),
];

fn change(path: &Path, change: impl FnOnce(&mut Value)) {
    let mut value: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    change(&mut value);
    fs::write(path, value.to_string()).unwrap();
}

fn export(from: &Path, to: &Path, more: &[&str]) -> end_to_end::Outcome {
    run("exporter", words(&[&"export", &from, &"-o", &to]).into_iter().chain(more.iter().map(OsString::from)))
}

#[test]
fn a_pipeline_is_exported_in_the_layout_of_its_clients() {
    let work = tempfile::tempdir().unwrap();
    let (from, to) = (pipeline(work.path(), &XL), work.path().join("onnx"));
    for storage in ["link", "copy", "inline"] {
        let outcome = export(&from, &to, &["--weights", storage]).success();
        assert_eq!(outcome.stdout.lines().count(), 5, "{}", outcome.stdout);
        let graphs = ["text_encoder", "text_encoder_2", "unet", "vae_decoder", "vae_encoder"];
        assert_eq!(names_in(&to), [&["model_index.json", "scheduler"], &graphs[..]].concat());
        for graph in graphs {
            assert!(to.join(graph).join("config.json").is_file());
            let session = Graph::open(&to.join(graph).join("model.onnx"), &SessionOptions::default()).unwrap();
            let names: Vec<&str> = session.inputs().iter().map(|input| input.name.as_str()).collect();
            let expected: &[&str] = match graph {
                "unet" => &["sample", "timestep", "encoder_hidden_states", "text_embeds", "time_ids"],
                "vae_encoder" => &["sample"],
                "vae_decoder" => &["latent_sample"],
                _ => &["input_ids"],
            };
            assert_eq!(names, expected, "{graph}");
        }
        assert_eq!(fs::read(to.join("model_index.json")).unwrap(), fs::read(from.join("model_index.json")).unwrap());
        fs::remove_dir_all(&to).unwrap();
    }
    assert_eq!(names_in(work.path()), ["pipeline"]);
}

#[test]
fn a_component_is_exported_alone() {
    let work = tempfile::tempdir().unwrap();
    let (from, to) = (pipeline(work.path(), &XL), work.path().join("onnx"));
    let _ = export(&from, &to, &["--component", "vae_decoder", "--shapes", "latent_sample:1x16x4x6"]).success();
    assert_eq!(names_in(&to), ["vae_decoder"]);
    let session = Graph::open(&to.join("vae_decoder/model.onnx"), &SessionOptions::default()).unwrap();
    assert_eq!(session.outputs()[0].shape, [1, 3, 8, 12].map(Some));
    let graph = work.path().join("encoder.onnx");
    let _ = export(&from.join("vae"), &graph, &["--component", "vae_encoder"]).success();
    let _ = export(&from.join("vae"), &graph, &[]).failure(2, &["vae_encoder and vae_decoder", "--component"]);
    let _ = export(&from, &work.path().join("other"), &["--component", "vae"])
        .failure(2, &["no such component", "vae_decoder"]);
    let _ =
        export(&from, &work.path().join("other"), &["--shapes", "sample:1x4x8x8"]).failure(2, &["--component NAME"]);
    let said = run("exporter", words(&[&"inspect", &from.join("unet"), &"--json", &"--set", &"text_embeds_width=12"]))
        .success()
        .json();
    assert_eq!((said["task"].as_str(), said["hyperparameters"]["heads"].to_string()), (Some("unet"), "[1,2,4]".into()));
}

#[test]
fn a_folder_that_is_there_is_left_alone() {
    let work = tempfile::tempdir().unwrap();
    let from = pipeline(work.path(), &XL);
    let to = work.path().join("onnx");
    fs::create_dir(&to).unwrap();
    let _ = export(&from, &to, &[]).failure(1, &["onnx", "it is there already"]);
    assert!(names_in(&to).is_empty());
}

/// Exports a pipeline after a change. The export must fail with the message `expected` and leave nothing behind.
fn refused(spoil: impl FnOnce(&Path), expected: &[&str]) {
    let work = tempfile::tempdir().unwrap();
    let from = pipeline(work.path(), &XL);
    spoil(&from);
    let _ = export(&from, &work.path().join("onnx"), &[]).failure(1, expected);
    assert_eq!(names_in(work.path()), ["pipeline"]);
}

#[test]
fn a_configuration_that_contradicts_the_weights_is_refused() {
    let unet = |key: &'static str, value: Value| {
        move |root: &Path| change(&root.join("unet/config.json"), |config| config[key] = value)
    };
    let both = "they do not belong to each other";
    refused(
        unet("cross_attention_dim", json!(13)),
        &["config.json", "`cross_attention_dim` is 13", "the weights say 12", both],
    );
    refused(
        unet("block_out_channels", json!([8, 16, 32])),
        &["`block_out_channels` is [8,16,32]", "the weights say [8,16,16]", both],
    );
    refused(
        unet("transformer_layers_per_block", json!([1, 2, 4])),
        &["`transformer_layers_per_block` is [1,2,4]", "the weights have 3 layers for level 2", both],
    );
    refused(unet("down_block_types", json!(vec!["DownBlock2D"; 3])), &["`down_block_types`", both]);
    refused(unet("addition_embed_type", Value::Null), &["added conditions", "text_embeds_width"]);
    refused(unet("attention_head_dim", json!([3, 2, 4])), &["[3,2,4] heads", "do not divide"]);
    refused(unet("act_fn", json!("gelu")), &["`act_fn` is \"gelu\"", "not supported; expected \"silu\""]);
    refused(unet("norm_num_groups", json!("four")), &["`norm_num_groups` is \"four\"", "invalid type"]);
    refused(|root| fs::write(root.join("unet/config.json"), "{").unwrap(), &["unet/config.json", "not a JSON object"]);
    let vae = |key: &'static str, value: Value| {
        move |root: &Path| change(&root.join("vae/config.json"), |config| config[key] = value)
    };
    refused(vae("latent_channels", json!(4)), &["AutoencoderKL", "`latent_channels` is 4", "the weights say 16", both]);
    refused(vae("norm_num_groups", json!(5)), &["8 filters do not divide into 5 groups"]);
    let text = |key: &'static str, value: Value| {
        move |root: &Path| change(&root.join("text_encoder_2/config.json"), |config| config[key] = value)
    };
    refused(text("num_hidden_layers", json!(3)), &["`num_hidden_layers` is 3", "the weights say 2", both]);
    refused(
        text("architectures", json!(["CLIPTextModel"])),
        &["class CLIPTextModelWithProjection, as model_index.json says", "found CLIPTextModel in its config.json"],
    );
    refused(text("hidden_act", json!("relu")), &["`hidden_act` is \"relu\"", "quick_gelu"]);
    refused(text("num_attention_heads", json!(3)), &["a width of 16 does not divide into 3 heads"]);
}

#[test]
fn what_is_missing_or_not_supported_is_named() {
    refused(
        |root| fs::remove_file(root.join("vae/diffusion_pytorch_model-00002-of-00002.safetensors")).unwrap(),
        &["diffusion_pytorch_model-00002-of-00002.safetensors", "is missing"],
    );
    refused(
        |root| fs::remove_file(root.join("unet/diffusion_pytorch_model.safetensors")).unwrap(),
        &["unet", "expected weights named", "none"],
    );
    let transformer = |root: &Path| {
        change(&root.join("model_index.json"), |index| {
            index["transformer"] = json!(["diffusers", "FluxTransformer2DModel"])
        });
        fs::create_dir(root.join("transformer")).unwrap();
        fs::write(root.join("transformer/diffusion_pytorch_model.safetensors"), []).unwrap();
    };
    refused(transformer, &["`transformer` is a FluxTransformer2DModel", "not supported", "--component"]);
    let work = tempfile::tempdir().unwrap();
    let from = pipeline(work.path(), &XL);
    transformer(&from);
    let _ = export(&from, &work.path().join("vae"), &["--component", "vae_decoder", "--component", "unet"]).success();
    assert_eq!(names_in(&work.path().join("vae")), ["unet", "vae_decoder"]);
    change(&from.join("vae/config.json"), |config| config["_class_name"] = json!("AutoencoderTiny"));
    let _ = export(&from.join("vae"), &work.path().join("x.onnx"), &[])
        .failure(1, &["this is a AutoencoderTiny", "not supported"]);
}

#[test]
fn the_safety_checker_is_left_out_and_said() {
    let work = tempfile::tempdir().unwrap();
    let from = pipeline(work.path(), &XL);
    change(&from.join("model_index.json"), |index| {
        index["safety_checker"] = json!(["stable_diffusion", "StableDiffusionSafetyChecker"])
    });
    fs::create_dir(from.join("safety_checker")).unwrap();
    let outcome = export(&from, &work.path().join("onnx"), &[]).success();
    assert!(outcome.stderr.contains("safety_checker: left out"), "{}", outcome.stderr);
}

#[test]
fn a_single_file_becomes_the_same_folders() {
    let work = tempfile::tempdir().unwrap();
    let file = repository("tests/golden-diffusers/single-file-xl/checkpoint.safetensors");
    let sets = ["--set", "norm_num_groups=4"];
    let alone = |component: &str, to: &Path, more: &[&str]| {
        export(&file, to, &[&["--component", component], &sets[..], more].concat())
    };
    let graph = work.path().join("decoder.onnx");
    let _ = alone("vae_decoder", &graph, &[]).success();
    let metadata = tileforge_graph::load(&graph).unwrap().metadata;
    let contract = Contract::from_metadata(&metadata).unwrap();
    assert_eq!(contract.inputs[0].meaning, Meaning::Latent { scaling: 0.13025, shift: 0.0 });
    let folder = work.path().join("folder");
    let more =
        ["--set", "attention_head_dim=[1,2,4]", "--set", "addition_time_embed_dim=8", "--set", "text_embeds_width=12"];
    let _ = alone("unet", &folder, &more).success();
    assert_eq!(
        (names_in(&folder), names_in(&folder.join("unet"))),
        (vec!["unet".into()], vec!["model.checkpoint.safetensors".into(), "model.onnx".into()])
    );
    let _ = export(&file, &graph, &[])
        .failure(2, &["one file holds one graph", "unet, vae_encoder, vae_decoder, text_encoder, text_encoder_2"]);
    let _ = alone("transformer", &graph, &[]).failure(2, &["no such component", "text_encoder_2"]);
    // Messages use the names from the file.
    let wrong =
        ["--set", "attention_head_dim=[1,2,4]", "--set", "addition_time_embed_dim=4", "--set", "text_embeds_width=12"];
    let _ = alone("unet", &work.path().join("other"), &wrong).success();
    let bytes = fs::read(&file).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header = String::from_utf8(bytes[8..8 + length].to_vec()).unwrap();
    let spoiled = |from: &str, to: &str| {
        let (header, path) = (header.replace(from, to), work.path().join("spoiled.safetensors"));
        fs::write(&path, [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &bytes[8 + length..]].concat())
            .unwrap();
        path
    };
    let renamed = spoiled("first_stage_model.decoder.mid.attn_1.q.bias", "first_stage_model.decoder.mid.attn_1.p.bias");
    let expected = [
        "missing: `decoder.mid_block.attentions.0.to_q.bias`",
        "left over: `first_stage_model.decoder.mid.attn_1.p.bias`",
    ];
    let _ = export(&renamed, &graph, &[&["--component", "vae_decoder"], &sets[..]].concat()).failure(1, &expected);
    let foreign = spoiled("\"betas\"", "\"control_model.betas\"");
    let _ = export(&foreign, &work.path().join("third"), &[])
        .failure(1, &["belong to no component", "control_model.betas", "--component"]);
}

/// A LoRA file with one layer of this name, for a weight of `[outputs, inputs]`. Its rank is 2 and its elements are
/// all 1, so it adds 2 to every element.
fn lora(folder: &Path, layer: &str, [outputs, inputs]: [usize; 2]) -> PathBuf {
    let tensor = |rows: usize, columns: usize| {
        (safetensors::Dtype::F32, vec![rows, columns], 1_f32.to_le_bytes().repeat(rows * columns))
    };
    let tensors = [
        (format!("{layer}.lora_down.weight"), tensor(2, inputs)),
        (format!("{layer}.lora_up.weight"), tensor(outputs, 2)),
    ];
    let views = tensors.iter().map(|(name, (kind, dims, bytes))| {
        (name.clone(), safetensors::tensor::TensorView::new(*kind, dims.clone(), bytes).unwrap())
    });
    let path = folder.join("style.safetensors");
    fs::write(&path, safetensors::serialize(views.collect::<Vec<_>>(), None).unwrap()).unwrap();
    path
}

#[test]
fn adaptations_are_merged_or_refused() {
    let work = tempfile::tempdir().unwrap();
    let (from, to) = (pipeline(work.path(), &XL), work.path().join("onnx"));
    let merged = |layer: &str, dims: [usize; 2], more: &[&str]| {
        let file = lora(work.path(), layer, dims);
        if to.exists() {
            fs::remove_dir_all(&to).unwrap();
        }
        export(&from, &to, &[&["--lora", &format!("{}:0.5", file.display())], more].concat())
    };
    // The same layer under each of its names.
    let attention = "transformer_blocks_0_attn2_to_k";
    for layer in [
        format!("lora_unet_down_blocks_1_attentions_0_{attention}"),
        format!("lora_unet_input_blocks_3_1_{attention}"),
        "unet.down_blocks.1.attentions.0.transformer_blocks.0.attn2.to_k".into(),
        "unet.down_blocks.1.attentions.0.transformer_blocks.0.attn2.processor.to_k".into(),
    ] {
        let _ = merged(&layer, [16, 12], &[]).success();
    }
    let elements = |component: &str| {
        let model = tileforge_graph::load(to.join(component).join("model.onnx")).unwrap();
        let weights = model.weights.values().filter(|weight| weight.data_type().is_float());
        weights.flat_map(|weight| weight.to_f32s().unwrap()).map(f64::from).sum::<f64>()
    };
    fs::remove_dir_all(&to).unwrap();
    let _ = export(&from, &to, &[]).success();
    let components = ["unet", "text_encoder", "text_encoder_2"];
    let plain = components.map(elements);
    for (adapted, layer) in
        ["", "lora_te1_text_model_encoder_layers_1_mlp_fc1", "lora_te2_text_model_encoder_layers_0_mlp_fc1"]
            .iter()
            .enumerate()
            .skip(1)
    {
        let _ = merged(layer, [24, 16], &[]).success();
        for (component, plain) in plain.iter().enumerate() {
            let added = if component == adapted { 0.5 * 2.0 * 24.0 * 16.0 } else { 0.0 };
            let found = elements(components[component]) - plain;
            // The encoders are stored in 16 bits (the second in BF16), so each sum is rounded: by 2e-3. The errors
            // have both signs.
            assert!((found - added).abs() < 0.2, "{layer} adds {found} to {}", components[component]);
        }
    }
    let elsewhere =
        merged("lora_te2_text_model_encoder_layers_0_mlp_fc1", [24, 16], &["--component", "unet"]).success();
    assert!(elsewhere.stderr.contains("2 tensors are of components that are not exported"), "{}", elsewhere.stderr);
    let other = "lora_unet_down_blocks_0_attentions_0_transformer_blocks_0_attn2_to_k";
    let _ = merged(other, [16, 12], &[])
        .failure(1, &["style.safetensors", "2 tensors are of no layer", &format!("{other}.lora_up.weight")]);
    let _ = merged("lora_transformer_blocks_0", [16, 12], &[])
        .failure(1, &["2 tensors are of no layer", "lora_transformer_blocks_0.lora_up"]);
    let wrong = format!("lora_unet_down_blocks_1_attentions_0_{attention}");
    let _ = merged(&wrong, [16, 768], &[]).failure(1, &["do not fit the weight", "of [16, 12]", "another model"]);
    let _ = export(&from, &to, &["--lora", "missing.safetensors"]).failure(1, &["missing.safetensors"]);
    let _ = export(&from, &to, &["--lora", ":2"]).failure(2, &["FILE:SCALE"]);
    assert_eq!(names_in(work.path()), ["pipeline", "style.safetensors"]);
}
