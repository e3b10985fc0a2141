//! Any bytes are a checkpoint of PyTorch or give an error, and every tensor lies inside the file. Whatever is opened can
//! be read or is refused as damaged, and the checksums of the archive are compared on every way.
#![cfg_attr(fuzzing, no_main)]

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

#[cfg(fuzzing)]
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;
use tileforge_exporter::Checkpoint;
use tileforge_exporter::checkpoint::{other_format, parse_torch};

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a temporary folder"));

/// Larger tensors are not unpacked here: the limits for them have tests.
const READ_MAXIMUM_BYTES: u64 = 1 << 20;

fuzz_target!(|file: &[u8]| {
    let _ = other_format(file).map(|found| found.to_string());
    let parsed = match parse_torch(file) {
        Ok(parsed) => parsed,
        Err(reason) => {
            assert!(reason.len() <= 8 * file.len() + 10_000);
            return;
        }
    };
    for tensor in parsed.tensors.values() {
        let place = tensor.place;
        let stored = place.compressed.unwrap_or(place.length);
        assert!(place.offset + stored <= file.len() as u64);
        assert!(tensor.elements as u64 * tensor.data_type.size() as u64 <= place.length);
        assert_eq!(tensor.dims.len(), tensor.strides.len());
        let last = tensor
            .dims
            .iter()
            .zip(&tensor.strides)
            .fold(tensor.first, |last, (dim, stride)| last + dim.saturating_sub(1) * stride);
        let elements: usize = tensor.dims.iter().product();
        assert!(elements == 0 || last < tensor.elements);
        assert!(elements <= tensor.elements);
    }
    let path: PathBuf = FOLDER.path().join("model.pth");
    fs::write(&path, file).expect("a file in a temporary folder");
    let Ok(checkpoint) = Checkpoint::open(&path) else { return };
    for (name, weight) in checkpoint.tensors() {
        let Some(tensor) = parsed.tensors.get(&checkpoint.original_name(name)) else { continue };
        if tensor.place.length > READ_MAXIMUM_BYTES {
            continue;
        }
        let Ok(bytes) = weight.to_bytes() else { continue };
        assert_eq!(bytes.len() as u64, weight.byte_length());
        if let Ok(negated) = weight.clone().negated() {
            let twice = negated.negated().expect("numbers that have another sign");
            assert!(twice.to_bytes().is_ok_and(|twice| twice == bytes), "the sign of the sign");
        }
    }
});
