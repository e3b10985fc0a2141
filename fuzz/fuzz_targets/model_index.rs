//! Any bytes are a pipeline's index and a component's configuration, or give an error. The two parts are separated by a
//! zero byte.
#![cfg_attr(fuzzing, no_main)]

use std::fs;
use std::sync::LazyLock;

#[cfg(fuzzing)]
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;
use tileforge_exporter::pipeline::Pipeline;

/// A folder with a component of one small tensor.
static FOLDER: LazyLock<TempDir> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let unet = folder.path().join("unet");
    fs::create_dir(&unet).expect("a folder in it");
    let header = br#"{"conv_in.weight":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
    let weights = [&(header.len() as u64).to_le_bytes(), header.as_slice(), &[0; 4]].concat();
    fs::write(unet.join("diffusion_pytorch_model.safetensors"), weights).expect("a file in it");
    folder
});

fuzz_target!(|bytes: &[u8]| {
    let folder = FOLDER.path();
    let mut parts = bytes.splitn(2, |&byte| byte == 0);
    let (index, config) = (parts.next().unwrap_or_default(), parts.next().unwrap_or(b"{}"));
    fs::write(folder.join("model_index.json"), index).expect("a file in a temporary folder");
    fs::write(folder.join("unet/config.json"), config).expect("a file in a temporary folder");
    assert!(Pipeline::is_one(folder));
    for wanted in [&[][..], &["unet".to_owned()]] {
        let _ = Pipeline::open(folder, wanted, None);
        let _ = Pipeline::open(folder, wanted, Some("fp16"));
    }
});
