//! Exported components of diffusion pipelines give the same outputs as diffusers and transformers.

use end_to_end::{GoldenComponent, Graph, error_over_range, golden_components, repository};
use ndarray::{ArrayD, Axis, Slice, concatenate};
use safetensors::tensor::{Dtype, TensorView};
use std::collections::BTreeMap;
use std::path::Path;
use tileforge_exporter::lora::{Lora, merge};
use tileforge_exporter::pipeline::Pipeline;
use tileforge_exporter::{Checkpoint, Export, Shapes, Task, export_task};
use tileforge_graph::{WeightStorage, save};
use tileforge_session::SessionOptions;

type Inputs = BTreeMap<String, ArrayD<f32>>;

/// Largest absolute error over the range of the reference's output.
const TOLERANCE: f32 = 2e-5;

/// A hyperparameter that only the pipeline's other components determine.
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

/// The golden inputs of networks without LoRA.
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
        // A text encoder's graph has one number of tokens; the default is the number that its tokenizer pads to.
        let tokens = golden.inputs.get("input_ids").filter(|ids| ids.shape()[1] != 11).map(|_| golden.shapes());
        let _ = check(golden, &tokens.unwrap_or_default(), WeightStorage::Copy);
    }
}

/// A UNet with a timestep for each sample: a batch at different steps gives the same outputs as its samples one by
/// one. A batch at one step gives the same outputs as the UNet with one timestep for all samples.
#[test]
fn every_image_of_a_batch_can_have_its_own_timestep() {
    let mut seen = 0;
    for golden in golden_networks().iter().filter(|golden| golden.graph == "unet") {
        let checkpoint = Checkpoint::open(&golden.checkpoint).unwrap();
        let session_of = |form: &str| {
            let mut hints = hints(golden);
            hints.insert("timestep".into(), form.into());
            let export = export_task(&checkpoint, Some(Task::Unet), &Shapes::default(), &hints).unwrap();
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("model.onnx");
            save(&export.model, &path, WeightStorage::Inline).unwrap();
            Graph::open(&path, &SessionOptions::default()).unwrap_or_else(|e| panic!("{}: {e}", golden.name))
        };
        let (mut shared, mut each) = (session_of("shared"), session_of("per-sample"));
        let run = |inputs: &Inputs, session: &mut Graph| {
            let inputs: Vec<_> = inputs.iter().map(|(name, array)| (name.as_str(), array.view())).collect();
            session.run(&inputs).unwrap().remove(0).1
        };
        let step = golden.inputs["timestep"].first().copied().unwrap();
        let batch = golden.inputs["sample"].shape()[0];
        // The same step for all samples, as one value for each.
        let mut inputs = golden.inputs.clone();
        inputs.insert("timestep".into(), ArrayD::from_elem(vec![batch], step));
        let error = error_over_range(&run(&inputs, &mut each), &golden.outputs["out_sample"]);
        assert!(error <= TOLERANCE, "{}: {error}", golden.name);
        // The same pictures twice, all at different steps.
        let steps: Vec<f32> = (0..2 * batch).map(|i| step / 2.0 + 37.5 * i as f32).collect();
        let of_image = |i: usize| -> Inputs {
            let one = |array: &ArrayD<f32>| array.slice_axis(Axis(0), Slice::from(i % batch..i % batch + 1)).to_owned();
            golden.inputs.iter().filter(|(name, _)| *name != "timestep").map(|(n, a)| (n.clone(), one(a))).collect()
        };
        let images: Vec<Inputs> = (0..2 * batch).map(of_image).collect();
        let mut inputs: Inputs = images[0]
            .keys()
            .map(|name| {
                let parts: Vec<_> = images.iter().map(|image| image[name].view()).collect();
                (name.clone(), concatenate(Axis(0), &parts).unwrap())
            })
            .collect();
        inputs.insert("timestep".into(), ArrayD::from_shape_vec(vec![2 * batch], steps.clone()).unwrap());
        let together = run(&inputs, &mut each);
        let alone: Vec<ArrayD<f32>> = images
            .into_iter()
            .zip(&steps)
            .map(|(mut image, step)| {
                image.insert("timestep".into(), ArrayD::from_elem(vec![], *step));
                run(&image, &mut shared)
            })
            .collect();
        let alone = concatenate(Axis(0), &alone.iter().map(|one| one.view()).collect::<Vec<_>>()).unwrap();
        let error = error_over_range(&together, &alone);
        println!("{:<50} {} steps {error:.1e}", golden.name, steps.len());
        assert!(error <= TOLERANCE, "{}: {error}", golden.name);
        seen += 1;
    }
    assert!(seen >= 5, "only {seen} golden inputs");
}

#[test]
fn a_form_of_timestep_that_does_not_exist_is_refused() {
    let unet = golden_networks().into_iter().find(|golden| golden.graph == "unet").unwrap();
    let checkpoint = Checkpoint::open(&unet.checkpoint).unwrap();
    let refusal = |form: &str, shapes: &str| {
        let hints = BTreeMap::from([("timestep".to_owned(), form.to_owned())]);
        export_task(&checkpoint, None, &shapes.parse().unwrap(), &hints).unwrap_err().to_string()
    };
    let error = refusal("both", "sample:2x4x8x8");
    assert!(error.contains("`timestep`") && error.contains("`shared` or `per-sample`"), "{error}");
    let error = refusal("shared", "timestep:2");
    assert!(error.contains("expected a scalar"), "{error}");
    let error = refusal("per-sample", "sample:2x4x8x8,timestep:3");
    assert!(error.contains("contradicts the shape of `sample`"), "{error}");
}

/// Single files have the weights of other cases, without their configurations.
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
        let pipeline = Pipeline::of_single_file(&checkpoint, &[], None).unwrap().unwrap();
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

#[test]
fn an_adaptation_without_a_finite_alpha_is_refused() {
    let work = tempfile::tempdir().unwrap();
    let (base, file) = (work.path().join("base.safetensors"), work.path().join("lora.safetensors"));
    let write = |tensors: &[(&str, &[usize], &[f32])], path: &Path| {
        let bytes: Vec<Vec<u8>> =
            tensors.iter().map(|(.., values)| values.iter().flat_map(|value| value.to_le_bytes()).collect()).collect();
        let views = tensors
            .iter()
            .zip(&bytes)
            .map(|((name, dims, _), bytes)| (*name, TensorView::new(Dtype::F32, dims.to_vec(), bytes).unwrap()));
        safetensors::serialize_to_file(views, None, path).unwrap();
    };
    write(&[("conv_in.weight", &[2, 2], &[1.0, 2.0, 3.0, 4.0])], &base);
    let merged = |alpha: &[f32], scale| {
        let up: (&str, &[usize], &[f32]) = ("lora_unet_conv_in.lora_up.weight", &[2, 1], &[1.0, 0.0]);
        let down: (&str, &[usize], &[f32]) = ("lora_unet_conv_in.lora_down.weight", &[1, 2], &[1.0, 1.0]);
        write(&[up, down, ("lora_unet_conv_in.alpha", &[alpha.len()], alpha)], &file);
        let mut checkpoint = Checkpoint::open(&base).unwrap();
        let result = merge(&mut [("unet", &mut checkpoint)], &[Lora { path: file.clone(), scale }]);
        result.map(|_| checkpoint.tensors()["conv_in.weight"].to_f32s().unwrap()).map_err(|error| error.to_string())
    };
    assert_eq!(merged(&[1.0], 1.0).unwrap(), [2.0, 3.0, 3.0, 4.0]);
    for alpha in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let error = merged(&[alpha], 1.0).unwrap_err();
        assert!(error.contains("expected a finite number for `alpha`"), "{error}");
    }
    assert!(merged(&[1.0], f64::NAN).is_err() && merged(&[1e30], 1e30).is_err());
    assert!(merged(&[1.0, 1.0], 1.0).unwrap_err().contains("expected one number for `alpha`"));
}
