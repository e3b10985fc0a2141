//! Any adaptation is merged or refused, and what was merged can be written.
#![cfg_attr(fuzzing, no_main)]

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use arbitrary::Arbitrary;
#[cfg(fuzzing)]
use libfuzzer_sys::fuzz_target;
use safetensors::tensor::{Dtype, TensorView, serialize_to_file};
use tempfile::TempDir;
use tileforge_exporter::Checkpoint;
use tileforge_exporter::lora::{Lora, merge};

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a temporary folder"));

#[derive(Arbitrary, Debug)]
struct Tensor {
    layer: u8,
    ending: u8,
    data_type: u8,
    dims: Vec<u8>,
    fill: [u8; 8],
}

const LAYERS: [&str; 5] = [
    "lora_unet_down_blocks_0_attentions_0_to_q",
    "unet.down_blocks.0.attentions.0.to_q",
    "lora_unet_input_blocks_1_0_in_layers_2",
    "lora_unet_conv_in",
    "something_else",
];
const ENDINGS: [&str; 6] =
    [".lora_down.weight", ".lora_up.weight", ".alpha", ".lora_A.weight", ".lora_B.weight", ".lora.down.weight"];
const TYPES: [(Dtype, usize); 6] =
    [(Dtype::F32, 4), (Dtype::F16, 2), (Dtype::BF16, 2), (Dtype::F64, 8), (Dtype::I64, 8), (Dtype::U8, 1)];

fuzz_target!(|input: (Vec<Tensor>, f64)| {
    let (tensors, scale) = input;
    let at = |name: &str| -> PathBuf { FOLDER.path().join(name) };
    let (base, adaptation) = (at("base.safetensors"), at("lora.safetensors"));
    if !base.exists() {
        let zeros = [0; 4 * 36 * 4];
        let view = |dims: &[usize]| {
            let bytes = &zeros[..dims.iter().product::<usize>() * 4];
            TensorView::new(Dtype::F32, dims.to_vec(), bytes).expect("as many bytes as the shape needs")
        };
        let named =
            [("down_blocks.0.attentions.0.to_q.weight", view(&[4, 4])), ("conv_in.weight", view(&[4, 4, 3, 3]))];
        serialize_to_file(named, None, &base).expect("a file in a temporary folder");
    }
    // A file has each name once.
    let named: BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)> = tensors
        .iter()
        .take(8)
        .map(|tensor| {
            let layer = LAYERS[usize::from(tensor.layer) % LAYERS.len()];
            let ending = ENDINGS[usize::from(tensor.ending) % ENDINGS.len()];
            let (data_type, size) = TYPES[usize::from(tensor.data_type) % TYPES.len()];
            let dims: Vec<usize> = tensor.dims.iter().take(4).map(|&dim| usize::from(dim % 9)).collect();
            let length = dims.iter().product::<usize>() * size;
            let bytes = tensor.fill.iter().copied().cycle().take(length).collect();
            (format!("{layer}{ending}"), (data_type, dims, bytes))
        })
        .collect();
    let views = named.iter().map(|(name, (data_type, dims, bytes))| {
        (name.as_str(), TensorView::new(*data_type, dims.clone(), bytes).expect("as many bytes as the shape needs"))
    });
    serialize_to_file(views, None, &adaptation).expect("a file in a temporary folder");
    let mut checkpoint = Checkpoint::open(&base).expect("a checkpoint that was written");
    let lora = Lora { path: adaptation.clone(), scale };
    if merge(&mut [("unet", &mut checkpoint)], &[lora]).is_ok() {
        for weight in checkpoint.tensors().values() {
            weight.to_bytes().expect("a merged weight can be computed");
        }
    }
    let _ = fs::remove_file(adaptation);
});
