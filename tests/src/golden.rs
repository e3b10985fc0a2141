//! Inputs and outputs of the reference implementations (`tests/golden/README.md`).

use crate::repository;
use ndarray::ArrayD;
use safetensors::SafeTensors;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// One input with the output that the reference gives for it.
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
    let mut cases: Vec<PathBuf> = repository("tests/golden").read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.retain(|path| path.is_dir());
    cases.sort();
    let mut all = Vec::new();
    for case in cases {
        let checkpoint = [case.join("checkpoint.safetensors"), case.join("model.safetensors.index.json")];
        let checkpoint = checkpoint.into_iter().find(|path| path.exists());
        let Some(checkpoint) = checkpoint else { continue };
        let mut files: Vec<PathBuf> = case.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
        files.retain(|path| path.file_name().unwrap().to_string_lossy().starts_with("golden"));
        files.sort();
        for file in files {
            let bytes = std::fs::read(&file).unwrap();
            let tensors = SafeTensors::deserialize(&bytes).unwrap();
            let name = format!("{}/{}", case.file_name().unwrap().to_string_lossy(), file.file_name().unwrap().to_string_lossy());
            let (image, upscaled) = (array(&tensors, "image"), array(&tensors, "upscaled"));
            all.push(Golden { name, checkpoint: checkpoint.clone(), image, upscaled });
        }
    }
    all
}

/// One graph of a component of a pipeline, with inputs and what the reference makes of them (`tests/golden-diffusers/README.md`).
#[derive(Debug)]
pub struct GoldenComponent {
    /// Case and file, for messages.
    pub name: String,
    /// The folder of the component, with its configuration.
    pub folder: PathBuf,
    /// The weights: the file, or the index of its shards. For a case `lora-…` it is a file of adaptations.
    pub checkpoint: PathBuf,
    /// Which of the component's graphs.
    pub graph: String,
    /// Inputs by name.
    pub inputs: BTreeMap<String, ArrayD<f32>>,
    /// Outputs by name.
    pub outputs: BTreeMap<String, ArrayD<f32>>,
}

/// Every golden input of every component, case by case.
pub fn golden_components() -> Vec<GoldenComponent> {
    components("tests/golden-diffusers")
}

/// Every golden input of every video autoencoder, case by case (`tests/golden-video-vae/README.md`).
pub fn golden_video_autoencoders() -> Vec<GoldenComponent> {
    components("tests/golden-video-vae")
}

fn components(folder: &str) -> Vec<GoldenComponent> {
    let sorted = |folder: &Path| {
        let mut paths: Vec<PathBuf> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths
    };
    let mut all = Vec::new();
    for folder in sorted(&repository(folder)).into_iter().filter(|path| path.is_dir()) {
        let files = sorted(&folder);
        let named = |end: &str| files.iter().find(|path| !is_golden(path) && path.to_string_lossy().ends_with(end)).cloned();
        let Some(checkpoint) = named(".safetensors.index.json").or_else(|| named(".safetensors")) else { continue };
        for file in files.iter().filter(|path| is_golden(path)) {
            let bytes = std::fs::read(file).unwrap();
            let tensors = SafeTensors::deserialize(&bytes).unwrap();
            let of = |kind: &str| {
                let names = tensors.names().into_iter().filter_map(|name| Some((name, name.strip_prefix(kind)?)));
                names.map(|(name, short)| (short.to_owned(), array(&tensors, name))).collect()
            };
            let name = file.file_name().unwrap().to_string_lossy();
            all.push(GoldenComponent {
                name: format!("{}/{name}", folder.file_name().unwrap().to_string_lossy()),
                graph: name.split('.').next().unwrap().to_owned(),
                inputs: of("input."),
                outputs: of("output."),
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

fn array(tensors: &SafeTensors<'_>, name: &str) -> ArrayD<f32> {
    let tensor = tensors.tensor(name).unwrap();
    let values = tensor.data().chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
    ArrayD::from_shape_vec(tensor.shape().to_vec(), values).unwrap()
}
