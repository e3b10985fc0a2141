//! ONNX files of other programs: `inspect`, `build`, `run` and `infer` as a user runs them, compared with the outputs
//! of the programs that made the files (tests/golden-onnx).
//!
//! | module | holds |
//! |---|---|
//! | `networks` | networks that PyTorch's exporters wrote |
//! | `forms` | files whose pictures have another form, and files without pictures |
//! | `mixed` | networks that mix the samples of a batch |
//! | `wrong` | files that are damaged, wrong or meant to harm |

mod forms;
mod mixed;
mod networks;
mod wrong;

use end_to_end::{Outcome, error_over_range, repository, run, words};
use ndarray::ArrayD;
use safetensors::SafeTensors;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use tileforge_contract::DataType;
use tileforge_runtime::tensor_file::{Stored, write};

/// The largest error over the output's range, the same as for exported graphs (tests/golden).
const TOLERANCE: f32 = 2e-5;

/// A file of the golden data.
fn golden(case: &str) -> PathBuf {
    repository("tests/golden-onnx").join(case).join("model.onnx")
}

/// The float tensors of a safetensors file.
fn floats(path: &Path) -> BTreeMap<String, ArrayD<f32>> {
    let bytes = fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let tensor = |(name, tensor): (String, safetensors::tensor::TensorView<'_>)| {
        let values = tensor.data().as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        (tensor.dtype() == safetensors::Dtype::F32)
            .then(|| (name, ArrayD::from_shape_vec(tensor.shape().to_vec(), values).unwrap()))
    };
    file.tensors().into_iter().filter_map(tensor).collect()
}

/// Builds `work/engine` from a file.
fn build(work: &Path, model: &Path, profile: &str, more: &[&str]) -> Outcome {
    let engine = work.join("engine");
    let arguments = words(&[&"build", &model, &"--profile", &repository(profile), &"-o", &engine]);
    run("engine-builder", arguments.into_iter().chain(more.iter().map(OsString::from)))
}

fn contract_in(work: &Path) -> serde_json::Value {
    end_to_end::manifest_in(work)["contract"].clone()
}

/// The output of `work/engine` for a picture.
fn made(work: &Path, picture: &ArrayD<f32>) -> ArrayD<f32> {
    let contract = contract_in(work);
    let name = |side: &str| contract[side][0]["name"].as_str().unwrap().to_owned();
    let (input, output) = (work.join("in.safetensors"), work.join("out.safetensors"));
    let bytes: Vec<u8> = picture.iter().flat_map(|value| value.to_le_bytes()).collect();
    let stored = Stored { data_type: DataType::F32, shape: picture.shape().to_vec(), bytes };
    write(&input, &[(name("inputs"), stored)], &BTreeMap::new()).unwrap();
    let arguments = words(&[&"run", &"--engine", &work.join("engine"), &"--input", &input, &"--output", &output]);
    let _ = run("runtime", arguments).success();
    floats(&output).remove(&name("outputs")).unwrap()
}

/// The largest error of `work/engine`, built again for each picture of a case. Pictures are scaled to the values of
/// black and white in `range`.
fn error_of(work: &Path, case: &str, range: [f32; 2], options: &[&str]) -> f32 {
    let data = floats(&golden(case).with_file_name("golden.safetensors"));
    let mut worst = 0.0_f32;
    for index in 0.. {
        let Some(picture) = data.get(&format!("image.{index}")) else { break };
        let expected = &data[&format!("made.{index}")];
        let size = format!("{}x{}", picture.shape()[3], picture.shape()[2]);
        let sized: &[&str] = if is_static(case) { &[] } else { &["--size", &size] };
        let _ = build(work, &golden(case), "tests/profiles/small-tiles.yaml", &[options, sized].concat()).success();
        let [low, high] = range;
        let found = made(work, &picture.mapv(|value| low + value * (high - low))).mapv(|v| (v - low) / (high - low));
        assert_eq!(found.shape(), expected.shape(), "{case}");
        worst = worst.max(error_over_range(&found, expected));
    }
    worst
}

fn is_static(case: &str) -> bool {
    case.ends_with("-static")
}
