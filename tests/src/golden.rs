//! Inputs and outputs of the reference implementations (`tests/golden/README.md`).

use crate::repository;
use ndarray::ArrayD;
use safetensors::SafeTensors;
use std::path::PathBuf;

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

fn array(tensors: &SafeTensors<'_>, name: &str) -> ArrayD<f32> {
    let tensor = tensors.tensor(name).unwrap();
    let values = tensor.data().chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
    ArrayD::from_shape_vec(tensor.shape().to_vec(), values).unwrap()
}
