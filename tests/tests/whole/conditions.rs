//! The conditions of a pipeline's network beside the states of a text, tested with small networks that expose them.

use end_to_end::{GoldenPipelines, build_engine, copy_folder, list_again, run, words};
use serde_json::{Value as Json, json};
use std::fs;
use std::path::{Path, PathBuf};
use tileforge_contract::{
    ARCHITECTURE_KEY, Axis, CONTRACT_KEY, Contract, DataType as Elements, Embedding, Extent, Meaning, Precision,
    ReceptiveField, Task, TensorSpec,
};
use tileforge_graph::{DataType, TensorType, Trace, Value, WeightStorage, save};

/// Tokens of a text, and the width of its states.
const TEXT: [usize; 2] = [77, 16];
/// Rows and columns of a latent.
const SIDE: usize = 8;

/// How the network receives the number of its text's tokens.
#[derive(Clone, Copy, Debug)]
enum Counts {
    Mask,
    Length,
}

/// A network whose prediction is a share of the latent plus a share of the text's tokens.
fn denoiser(folder: &Path, counts: Counts) -> PathBuf {
    let trace = Trace::new("denoiser", 9, 20);
    let float = |name: &str, dims: &[usize]| trace.input(name, TensorType::new(DataType::F32, dims.to_vec()));
    let latent = [1, 4, SIDE, SIDE];
    let (sample, timestep) = (float("sample", &latent), float("timestep", &[1]));
    let states = float("encoder_hidden_states", &[1, TEXT[0], TEXT[1]]);
    let everywhere = |value: &Value| value.reshape(&[-1, 1, 1, 1]);
    let side = Extent::multiple_of(1);
    let axes = || [Axis::Batch, Axis::Channels(4), Axis::Height(side), Axis::Width(side)];
    let text = [Axis::Batch, Axis::Tokens(None), Axis::Channels(TEXT[1])];
    let noisy = Meaning::NoisyLatent { latent: 4, condition: 0, mask: 0, masked_image: 0 };
    let mut inputs = vec![
        TensorSpec::new("sample", axes(), noisy),
        TensorSpec::new("timestep", [Axis::Batch], Meaning::Timestep { range: [0.0, 1000.0] }),
        TensorSpec::new("encoder_hidden_states", text, Meaning::Embedding { from: Embedding::Context }),
    ];
    let tokens = match counts {
        Counts::Mask => {
            inputs.push(TensorSpec::new("mask", [Axis::Batch, Axis::Tokens(None)], Meaning::TextMask));
            everywhere(&float("mask", &[1, TEXT[0]]).cumulative_sum(1).slice(1, TEXT[0] - 1, TEXT[0]))
        }
        Counts::Length => {
            inputs.push(TensorSpec::new("length", [Axis::Batch], Meaning::TextLength).of_type(Elements::I64));
            inputs.push(TensorSpec::new("control", axes(), Meaning::Residual));
            let length = trace.input("length", TensorType::new(DataType::I64, vec![1]));
            // Without a control network, the residuals are zeros.
            everywhere(&length.cast(DataType::F32)) + float("control", &latent)
        }
    };
    let rest = everywhere(&states.mean(2).mean(1)) + everywhere(&timestep.scale(1e-4));
    trace.output("made", &(sample.scale(0.1) + tokens.scale(0.01) + rest));
    let contract = Contract {
        task: Task::Unet,
        inputs,
        outputs: vec![TensorSpec::new("made", axes(), Meaning::Prediction)],
        receptive_field: ReceptiveField::Unbounded,
        safe_precisions: vec![Precision::Fp32],
    };
    let mut model = trace.finish().unwrap_or_else(|error| panic!("{error}"));
    let contract = contract.to_json().unwrap();
    let metadata = [(CONTRACT_KEY, contract.as_str()), (ARCHITECTURE_KEY, "test")];
    model.metadata = metadata.map(|(key, text)| (key.into(), text.into())).into();
    let path = folder.join(format!("{counts:?}.onnx"));
    save(&model, &path, WeightStorage::Inline).unwrap();
    path
}

/// The engine of Stable Diffusion with another network instead of its own.
fn pipeline(work: &Path, sd: &Path, counts: Counts) -> PathBuf {
    let engine = work.join(format!("{counts:?}"));
    copy_folder(sd, &engine);
    let _ = build_engine(work, &denoiser(work, counts), &work.join("small.yaml"), &[]).success();
    fs::remove_dir_all(engine.join("unet")).unwrap();
    copy_folder(&work.join("engine"), &engine.join("unet"));
    let path = engine.join("unet/manifest.json");
    let mut manifest: Json = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    manifest["name"] = json!("unet");
    fs::write(path, manifest.to_string()).unwrap();
    list_again(&engine);
    engine
}

/// The latent that an engine makes from a prompt.
fn latent(engine: &Path, work: &Path, prompt: &str) -> Vec<u8> {
    let output = work.join("latent.safetensors");
    let line = words(&[&"generate", &"--engine", &engine, &"--output", &output, &"--prompt", &prompt]);
    let options = ["--steps", "3", "--seed", "5", "--guidance", "3", "--negative-prompt", "blur"];
    let _ = run("runtime", line.into_iter().chain(options.map(Into::into))).success();
    fs::read(output).unwrap()
}

#[test]
fn networks_see_the_mask_and_the_length_of_their_text_and_no_control() {
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    let sd = GoldenPipelines::read().engine(work, "sd");
    let [masked, counted] = [Counts::Mask, Counts::Length].map(|counts| pipeline(work, &sd, counts));
    let [short, long] = ["a fox", "a red fox in the snow under an old tree"];
    // A mask has as many ones as the text has tokens, so that both networks predict the same.
    assert_eq!(latent(&masked, work, short), latent(&counted, work, short));
    assert_eq!(latent(&masked, work, long), latent(&counted, work, long));
    assert_ne!(latent(&masked, work, short), latent(&masked, work, long));
}
