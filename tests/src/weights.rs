//! Checkpoints for tests, copied with changes.

use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// A tensor of a checkpoint.
#[derive(Debug)]
pub struct Weight {
    /// The type of its elements.
    pub kind: Dtype,
    /// Its dimensions.
    pub shape: Vec<usize>,
    /// Its elements, in little-endian bytes.
    pub data: Vec<u8>,
}

/// Copies a safetensors file and changes each weight by its name. The copy may replace the file itself.
pub fn copy_weights(from: &Path, to: &Path, change: impl Fn(&str, &mut Weight)) {
    let bytes = fs::read(from).unwrap();
    let (_, metadata) = SafeTensors::read_metadata(&bytes).unwrap();
    let read = SafeTensors::deserialize(&bytes).unwrap();
    let mut weights: BTreeMap<String, Weight> = BTreeMap::new();
    for (name, view) in read.tensors() {
        let mut weight = Weight { kind: view.dtype(), shape: view.shape().to_vec(), data: view.data().to_vec() };
        change(&name, &mut weight);
        weights.insert(name, weight);
    }
    let views = weights.iter().map(|(name, Weight { kind, shape, data })| {
        (name.as_str(), TensorView::new(*kind, shape.clone(), data).unwrap())
    });
    let serialised = safetensors::serialize(views, metadata.metadata().clone()).unwrap();
    fs::write(to, serialised).unwrap();
}
