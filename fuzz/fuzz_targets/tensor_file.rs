//! Any bytes are a file of tensors or give an error of readable length. Nothing is unpacked before its shape was agreed
//! to, and what is read has the types and shapes that were stated.
#![cfg_attr(fuzzing, no_main)]

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

#[cfg(fuzzing)]
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;
use tileforge_runtime::tensor_file::{Contents, read_checked};

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a temporary folder"));

/// A file that states more is refused, as an engine refuses other shapes than its own.
const MOST_BYTES: u64 = 1 << 22;

fuzz_target!(|input: (u8, &[u8])| {
    let (format, bytes) = input;
    let ending = ["npz", "npy", "safetensors"][usize::from(format) % 3];
    let path: PathBuf = FOLDER.path().join("x").with_extension(ending);
    fs::write(&path, bytes).expect("a file in a temporary folder");
    let mut stated = None;
    let read = read_checked(&path, |found| {
        let bytes = found.values().fold(0_u64, |all, tensor| all.saturating_add(tensor.bytes()));
        stated = Some(found.clone());
        if bytes <= MOST_BYTES { Ok(()) } else { Err(tileforge_runtime::Error::Cancelled) }
    });
    match read {
        Ok(Contents::Named { tensors, .. }) => {
            for (name, tensor) in &tensors {
                let stated = &stated.as_ref().expect("a check")[name];
                assert_eq!((tensor.data_type, &tensor.shape), (stated.data_type, &stated.shape));
                assert_eq!(tensor.bytes.len() as u64, stated.bytes());
            }
        }
        Ok(Contents::Single(tensor)) => {
            let stated = &stated.as_ref().expect("a check")[""];
            assert_eq!((&tensor.shape, tensor.bytes.len() as u64), (&stated.shape, stated.bytes()));
        }
        Err(error) => assert!(error.to_string().len() < 10_000),
    }
});
