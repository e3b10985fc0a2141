//! Inputs and outputs of the reference implementations (`tests/golden/README.md`).

use crate::graph::{Graph, PROCESSOR};
use crate::repository;
use ndarray::ArrayD;
use safetensors::SafeTensors;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use tileforge_contract::Provider;
use tileforge_exporter::arch::registry;
use tileforge_exporter::{Shapes, synthesise};
use tileforge_graph::{DataType, Model, WeightStorage, load, save};
use tileforge_session::SessionOptions;

/// One input, with the reference's output for it.
#[derive(Debug)]
pub struct Golden {
    /// Case and file, for messages.
    pub name: String,
    /// The checkpoint, or the index of its shards.
    pub checkpoint: PathBuf,
    /// `[batch, channels, height, width]`, 0 … 1.
    pub image: ArrayD<f32>,
    /// `[batch, channels, height · scale, width · scale]`.
    pub upscaled: ArrayD<f32>,
}

/// Every golden input, case by case.
pub fn golden_cases() -> Vec<Golden> {
    let mut cases = sorted(&repository("tests/golden"));
    cases.retain(|path| path.is_dir());
    let mut all = Vec::new();
    for case in cases {
        let checkpoint = [case.join("checkpoint.safetensors"), case.join("model.safetensors.index.json")];
        let checkpoint = checkpoint.into_iter().find(|path| path.exists());
        let Some(checkpoint) = checkpoint else { continue };
        let mut files = sorted(&case);
        files.retain(|path| path.file_name().unwrap().to_string_lossy().starts_with("golden"));
        for file in files {
            let bytes = std::fs::read(&file).unwrap();
            let tensors = SafeTensors::deserialize(&bytes).unwrap();
            let name = format!(
                "{}/{}",
                case.file_name().unwrap().to_string_lossy(),
                file.file_name().unwrap().to_string_lossy()
            );
            let (image, upscaled) = (array(&tensors, "image"), array(&tensors, "upscaled"));
            all.push(Golden { name, checkpoint: checkpoint.clone(), image, upscaled });
        }
    }
    all
}

/// One graph of a pipeline's component, with inputs and the reference's outputs (`tests/golden-diffusers/README.md`).
#[derive(Debug)]
pub struct GoldenComponent {
    /// Case and file, for messages.
    pub name: String,
    /// The folder of the component, with its configuration.
    pub folder: PathBuf,
    /// The weights: the file, or the index of its shards. For a case `lora-…`, a LoRA file.
    pub checkpoint: PathBuf,
    /// Which graph of the component.
    pub graph: String,
    /// Inputs by name.
    pub inputs: BTreeMap<String, ArrayD<f32>>,
    /// Outputs by name.
    pub outputs: BTreeMap<String, ArrayD<f32>>,
}

/// Every golden input of every component.
pub fn golden_components() -> Vec<GoldenComponent> {
    components("tests/golden-diffusers")
}

/// Every golden input of the networks for faces and for inpainting (`tests/golden-retouch/README.md`).
pub fn golden_retouches() -> Vec<GoldenComponent> {
    components("tests/golden-retouch")
}

/// Every golden input of every video autoencoder (`tests/golden-video-vae/README.md`).
pub fn golden_video_autoencoders() -> Vec<GoldenComponent> {
    components("tests/golden-video-vae")
}

/// Every golden input of every diffusion transformer of videos (`tests/golden-video-transformer/README.md`).
pub fn golden_video_transformers() -> Vec<GoldenComponent> {
    components("tests/golden-video-transformer")
}

/// Every golden input of the depth and real-time networks. Their checkpoints are synthesised in `folder`
/// (`tests/golden-systems/README.md`).
pub fn golden_systems(folder: &Path) -> Vec<GoldenComponent> {
    let mut all = Vec::new();
    for case in sorted(&repository("tests/golden-systems")).into_iter().filter(|path| path.is_dir()) {
        for file in sorted(&case) {
            let bytes = std::fs::read(&file).unwrap();
            let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
            let metadata = header.metadata().clone().unwrap();
            let [architecture, preset, seed] = ["architecture", "preset", "seed"].map(|key| metadata[key].clone());
            let checkpoint = folder.join(format!("{architecture}-{preset}-{seed}.safetensors"));
            let entry = registry().iter().find(|entry| entry.name == architecture).unwrap();
            if !checkpoint.exists() {
                let (_, network) = entry.presets().into_iter().find(|(name, _)| *name == preset).unwrap();
                synthesise(network.as_ref(), DataType::F32, seed.parse().unwrap(), &checkpoint).unwrap();
            }
            let tensors = SafeTensors::deserialize(&bytes).unwrap();
            all.push(GoldenComponent {
                name: format!("{architecture}-{preset}/{}", file.file_name().unwrap().to_string_lossy()),
                graph: entry.task.to_string(),
                inputs: arrays(&tensors, "input."),
                outputs: arrays(&tensors, "output."),
                folder: folder.to_owned(),
                checkpoint,
            });
        }
    }
    all
}

impl GoldenComponent {
    /// The shapes of the inputs, in the form of `--shapes`. Scalars are left out.
    pub fn shapes(&self) -> Shapes {
        let dims = |array: &ArrayD<f32>| array.shape().iter().map(ToString::to_string).collect::<Vec<_>>().join("x");
        let named = self.inputs.iter().filter(|(_, array)| array.ndim() > 0);
        named.map(|(name, array)| format!("{name}:{}", dims(array))).collect::<Vec<_>>().join(",").parse().unwrap()
    }

    /// The largest error of a model's outputs for `inputs`, on each library for processors. The model must have
    /// exactly the golden outputs' names.
    pub fn error_of(&self, model: &Model, storage: WeightStorage, inputs: &BTreeMap<String, ArrayD<f32>>) -> f32 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.onnx");
        save(model, &path, storage).unwrap();
        // The written graph can be loaded again, and has the same inferred types.
        load(&path).unwrap_or_else(|e| panic!("{}: {e}", self.name));
        let inputs: Vec<_> = inputs.iter().map(|(name, array)| (name.as_str(), array.view())).collect();
        let on = |provider: Provider| {
            let options = SessionOptions { provider, ..SessionOptions::default() };
            let outputs = Graph::open(&path, &options).and_then(|mut graph| graph.run(&inputs));
            let outputs = outputs.unwrap_or_else(|e| panic!("{} on {provider}: {e}", self.name));
            let names: BTreeSet<&String> = outputs.iter().map(|(name, _)| name).collect();
            assert_eq!(names, self.outputs.keys().collect(), "{}", self.name);
            largest(outputs.iter().map(|(name, found)| error_over_range(found, &self.outputs[name])))
        };
        largest(PROCESSOR.map(on).into_iter())
    }
}

/// The largest absolute difference, over the expected output's range. Both must have the same shape.
pub fn error_over_range(found: &ArrayD<f32>, expected: &ArrayD<f32>) -> f32 {
    assert_eq!(found.shape(), expected.shape());
    let (low, high) = expected.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(l, h), v| (l.min(*v), h.max(*v)));
    largest(found.iter().zip(expected).map(|(a, b)| (a - b).abs())) / (high - low)
}

/// The largest of some non-negative numbers. NaN if one of them is NaN, which `f32::max` would drop.
fn largest(numbers: impl Iterator<Item = f32>) -> f32 {
    numbers.fold(0.0, |largest, number| if largest.is_nan() || number <= largest { largest } else { number })
}

fn sorted(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn components(folder: &str) -> Vec<GoldenComponent> {
    let mut all = Vec::new();
    for folder in sorted(&repository(folder)).into_iter().filter(|path| path.is_dir()) {
        let files = sorted(&folder);
        let named =
            |end: &str| files.iter().find(|path| !is_golden(path) && path.to_string_lossy().ends_with(end)).cloned();
        let Some(checkpoint) = named(".safetensors.index.json").or_else(|| named(".safetensors")) else { continue };
        for file in files.iter().filter(|path| is_golden(path)) {
            let bytes = std::fs::read(file).unwrap();
            let tensors = SafeTensors::deserialize(&bytes).unwrap();
            let name = file.file_name().unwrap().to_string_lossy();
            all.push(GoldenComponent {
                name: format!("{}/{name}", folder.file_name().unwrap().to_string_lossy()),
                graph: name.split('.').next().unwrap().to_owned(),
                inputs: arrays(&tensors, "input."),
                outputs: arrays(&tensors, "output."),
                folder: folder.clone(),
                checkpoint: checkpoint.clone(),
            });
        }
    }
    all
}

fn is_golden(path: &Path) -> bool {
    path.to_string_lossy().ends_with(".golden.safetensors")
}

/// The tensors whose names begin with this prefix, under names without it.
fn arrays(tensors: &SafeTensors<'_>, kind: &str) -> BTreeMap<String, ArrayD<f32>> {
    let names = tensors.names().into_iter().filter_map(|name| Some((name, name.strip_prefix(kind)?)));
    names.map(|(name, short)| (short.to_owned(), array(tensors, name))).collect()
}

fn array(tensors: &SafeTensors<'_>, name: &str) -> ArrayD<f32> {
    let tensor = tensors.tensor(name).unwrap();
    let values = tensor.data().chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
    ArrayD::from_shape_vec(tensor.shape().to_vec(), values).unwrap()
}
