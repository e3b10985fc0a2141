//! The conditions of a pipeline's network beside the states of a text, tested with small networks that expose them.

use end_to_end::{GoldenPipelines, Outcome, build_engine, copy_folder, edit_manifest, run, with_manifest, words};
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
/// Tokens of the second text encoder, whose states are one number.
const SECOND: usize = 8;
/// Rows and columns of a latent.
const SIDE: usize = 8;

/// How the network receives the number of its text's tokens.
#[derive(Clone, Copy, Debug)]
enum Counts {
    Mask,
    Length,
    /// The mask of a second text encoder, whose number of tokens is another and fixed.
    SecondMask,
    /// The length of the second text encoder's text.
    SecondLength,
}

impl Counts {
    fn has_second(self) -> bool {
        matches!(self, Self::SecondMask | Self::SecondLength)
    }
}

/// Finishes a network, and writes it with its contract.
fn finish(trace: Trace, contract: &Contract, path: &Path) {
    let mut model = trace.finish().unwrap_or_else(|error| panic!("{error}"));
    let contract = contract.to_json().unwrap();
    let metadata = [(CONTRACT_KEY, contract.as_str()), (ARCHITECTURE_KEY, "test")];
    model.metadata = metadata.map(|(key, text)| (key.into(), text.into())).into();
    save(&model, path, WeightStorage::Inline).unwrap();
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
        Counts::SecondMask => {
            let tokens = [Axis::Batch, Axis::Fixed(SECOND)];
            inputs.push(TensorSpec::new("count", tokens, Meaning::TextMask));
            everywhere(&float("count", &[1, SECOND]).cumulative_sum(1).slice(1, SECOND - 1, SECOND))
        }
        Counts::SecondLength => {
            inputs.push(TensorSpec::new("count", [Axis::Batch], Meaning::TextLength));
            everywhere(&float("count", &[1]))
        }
        Counts::Length => {
            inputs.push(TensorSpec::new("length", [Axis::Batch], Meaning::TextLength).of_type(Elements::I64));
            inputs.push(TensorSpec::new("control", axes(), Meaning::Residual));
            let length = trace.input("length", TensorType::new(DataType::I64, vec![1]));
            // Without a control network, the residuals are zeros.
            everywhere(&length.cast(DataType::F32)) + float("control", &latent)
        }
    };
    let mut rest = everywhere(&states.mean(2).mean(1)) + everywhere(&timestep.scale(1e-4));
    if counts.has_second() {
        let second = [Axis::Batch, Axis::Fixed(SECOND), Axis::Channels(1)];
        inputs.push(TensorSpec::new("second", second, Meaning::Embedding { from: Embedding::Context }));
        rest = rest + everywhere(&float("second", &[1, SECOND, 1]).mean(2).mean(1));
    }
    trace.output("made", &(sample.scale(0.1) + tokens.scale(0.01) + rest));
    let contract = Contract {
        task: Task::Unet,
        inputs,
        outputs: vec![TensorSpec::new("made", axes(), Meaning::Prediction)],
        receptive_field: ReceptiveField::Unbounded,
        safe_precisions: vec![Precision::Fp32],
    };
    let path = folder.join(format!("{counts:?}.onnx"));
    finish(trace, &contract, &path);
    path
}

/// A text encoder whose states are its tokens.
fn second_encoder(folder: &Path, vocabulary: usize) -> PathBuf {
    let trace = Trace::new("second", 9, 20);
    let ids = trace.input("ids", TensorType::new(DataType::I64, vec![1, SECOND]));
    trace.output("states", &ids.cast(DataType::F32).scale(1e-3).reshape(&[1, SECOND as i64, 1]));
    let text = [Axis::Batch, Axis::Fixed(SECOND)];
    let states = [Axis::Batch, Axis::Fixed(SECOND), Axis::Channels(1)];
    let contract = Contract {
        task: Task::TextEncoder,
        inputs: vec![TensorSpec::new("ids", text, Meaning::Tokens { vocabulary }).of_type(Elements::I64)],
        outputs: vec![TensorSpec::new("states", states, Meaning::Embedding { from: Embedding::Last })],
        receptive_field: ReceptiveField::Unbounded,
        safe_precisions: vec![Precision::Fp32],
    };
    let path = folder.join("second.onnx");
    finish(trace, &contract, &path);
    path
}

/// Builds a graph as a part of a pipeline, in place of the one of this name.
fn replace(work: &Path, engine: &Path, part: &str, graph: &Path) {
    let _ = build_engine(work, graph, &work.join("small.yaml"), &[]).success();
    let folder = engine.join(part);
    if folder.exists() {
        fs::remove_dir_all(&folder).unwrap();
    }
    copy_folder(&work.join("engine"), &folder);
    edit_manifest(&folder, |manifest| manifest["name"] = json!(part));
}

/// The engine of Stable Diffusion with another network instead of its own.
fn pipeline(work: &Path, sd: &Path, counts: Counts) -> PathBuf {
    let engine = work.join(format!("{counts:?}"));
    copy_folder(sd, &engine);
    replace(work, &engine, "unet", &denoiser(work, counts));
    if counts.has_second() {
        let first: Json =
            serde_json::from_slice(&fs::read(engine.join("text_encoder/manifest.json")).unwrap()).unwrap();
        let vocabulary = first["contract"]["inputs"][0]["meaning"]["vocabulary"].as_u64().unwrap() as usize;
        replace(work, &engine, "second", &second_encoder(work, vocabulary));
    }
    with_manifest(&engine, |manifest| {
        if counts.has_second() {
            manifest["parts"]["second"] = json!("");
            let roles = &mut manifest["diffusion"]["roles"];
            let second = json!({ "part": "second", "tokenizer": "tokenizer" });
            roles["texts"].as_array_mut().unwrap().push(second);
            for input in ["second", "count"] {
                roles["conditions"][input] = json!([{ "part": "second", "output": "states" }]);
            }
        }
    });
    engine
}

fn generate(engine: &Path, output: &Path, prompt: &str) -> Outcome {
    let line = words(&[&"generate", &"--engine", &engine, &"--output", &output, &"--prompt", &prompt]);
    let options = ["--steps", "3", "--seed", "5", "--guidance", "3", "--negative-prompt", "blur"];
    run("runtime", line.into_iter().chain(options.map(Into::into)))
}

/// The latent that an engine makes from a prompt.
fn latent(engine: &Path, work: &Path, prompt: &str) -> Vec<u8> {
    let output = work.join("latent.safetensors");
    let _ = generate(engine, &output, prompt).success();
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

#[test]
fn a_second_text_encoder_has_its_own_number_of_tokens() {
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    let sd = GoldenPipelines::read().engine(work, "sd");
    let [masked, counted] = [Counts::SecondMask, Counts::SecondLength].map(|counts| pipeline(work, &sd, counts));
    let [short, long] = ["a fox", "a red fox in the snow under an old tree beside a lake"];
    assert_eq!(latent(&masked, work, short), latent(&counted, work, short));
    let of_second = latent(&counted, work, long);
    assert_eq!(latent(&masked, work, long), of_second);
    // The first encoder sees more of a long text: its count is another.
    let count_of = |part: &str, output: &str| {
        let from = json!([{ "part": part, "output": output }]);
        with_manifest(&counted, |manifest| manifest["diffusion"]["roles"]["conditions"]["count"] = from);
    };
    let of_short = latent(&counted, work, short);
    count_of("text_encoder", "last_hidden_state");
    assert_eq!(latent(&counted, work, short), of_short);
    assert_ne!(latent(&counted, work, long), of_second);
    // No warning says that the end has no effect, since one encoder sees it.
    let told = generate(&counted, &work.join("latent.safetensors"), long).success().stderr;
    assert!(!told.contains("too long"), "{told}");
    // A length of both would be of one in pieces and of one without; a mask of both has no number of tokens.
    for engine in [&counted, &masked] {
        with_manifest(engine, |manifest| {
            let _ = manifest["diffusion"]["roles"]["conditions"].as_object_mut().unwrap().remove("count").unwrap();
        });
    }
    let output = work.join("refused.safetensors");
    let _ =
        generate(&counted, &output, short).failure(1, &["text_encoder, second: expected texts of 77 tokens, found 8"]);
    let _ =
        generate(&masked, &output, short).failure(1, &["text_encoder, second: expected texts of 8 tokens, found 77"]);
    with_manifest(&masked, |manifest| {
        let roles = &mut manifest["diffusion"]["roles"];
        roles["conditions"]["count"] = json!([{ "part": "text_encoder", "output": "last_hidden_state" }]);
    });
    let _ = generate(&masked, &output, short).failure(1, &["text_encoder: expected texts of 8 tokens, found 77"]);
    assert!(!output.exists());
}
