//! Where the weights of an engine's sessions are, and how much memory they take.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic)] // a test's way to fail

mod small;

use std::fs;

use ndarray::{ArrayD, IxDyn};
use tileforge_engine::Engine;
use tileforge_graph::{Attribute, DataType, Model, Weight, WeightStorage};
use tileforge_session::onnxruntime::{self, Search};
use tileforge_session::{Cancel, Environment, Ladder, Placement, Session, Tensor};

const SHAPE: [usize; 4] = [1, 1, 8, 8];
const CHANNELS: usize = 512;
/// 3×3 convolutions with this number of input and of output channels: 9.4 MB each.
const LAYERS: usize = 16;

/// A number from 0 to 1 that looks random.
fn scrambled(seed: usize) -> f32 {
    let mixed = (seed as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    ((mixed ^ mixed >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 40) as f32 / (1 << 24) as f32
}

/// Convolutions whose weights ONNX Runtime reorders on most processors.
fn model() -> Model {
    let weights: Vec<String> = (0..LAYERS + 2).map(|layer| format!("weight{layer}")).collect();
    let names: Vec<String> = (0..LAYERS + 2).map(|layer| format!("convolution{layer}")).collect();
    let of_layer: Vec<[&str; 1]> = weights.iter().map(|weight| [weight.as_str()]).collect();
    let operators: Vec<(&str, &str, &[&str])> =
        names.iter().zip(&of_layer).map(|(name, weight)| (name.as_str(), "Conv", weight.as_slice())).collect();
    let mut model = small::chain(SHAPE, &operators);
    for (layer, name) in weights.into_iter().enumerate() {
        let inputs = if layer == 0 { 1 } else { CHANNELS };
        let outputs = if layer == LAYERS + 1 { 1 } else { CHANNELS };
        // Each layer has other numbers, because equal weights are stored once. They have the deviation that keeps
        // values as large as they are from layer to layer.
        let scale = (12.0 / (9 * inputs) as f32).sqrt();
        let value = |place: usize| scale * (scrambled(layer << 32 | place) - 0.5);
        let bytes = (0..outputs * inputs * 9).flat_map(|place| value(place).to_le_bytes()).collect::<Vec<u8>>();
        let weight = Weight::from_bytes(DataType::F32, vec![outputs, inputs, 3, 3], bytes).unwrap();
        model.weights.insert(name, weight);
    }
    for node in &mut model.nodes {
        node.attributes.insert("pads".into(), Attribute::Ints(vec![1; 4]));
    }
    model
}

/// A number of bytes of this process, from proc_pid_status(5).
fn status(key: &str) -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() * 1024
}

/// A session of the engine, and by how much the memory of this process grew at most while it was opened.
fn opened(engine: &Engine) -> (Session, u64) {
    let library = onnxruntime::load(&Search::AroundExecutable).unwrap();
    let environment = Environment::new(library).returning_large_blocks();
    let ladder = Ladder::new(&environment, engine, Placement::default()).unwrap();
    // Resets the peak (proc_pid_clear_refs(5)).
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = status("VmRSS");
    let session = ladder.session(&engine.manifest().graphs[0], 0, &Cancel::new()).unwrap();
    (session, status("VmHWM").saturating_sub(before))
}

/// One test only, because the memory is measured for the whole process.
#[test]
fn a_session_holds_its_weights_once_and_computes_the_same_when_their_file_has_no_name() {
    let folder = tempfile::tempdir().unwrap();
    let picture = ArrayD::from_elem(IxDyn(&SHAPE), 0.5);
    let engine = small::engine(
        folder.path(),
        &[("model.onnx", &model())],
        WeightStorage::Copy,
        picture.clone(),
        picture.clone(),
    );
    let weights = engine.manifest().files["model.weights"].bytes;
    assert!(status("RssFile") < weights, "the digest keeps no weights in memory");
    let input = Tensor::from(picture);
    let (mut session, grew) = opened(&engine);
    let by_file = session.run(&[("input", &input)], &Cancel::new()).unwrap();
    // Our own kernels hold some of the weights in another form, and say how much that is.
    let others = session.kernels_bytes();
    drop(session);
    // The weights in the order of the kernels, and one layer's weights being copied. With the file's pages and two
    // copies, it would be three times as much.
    assert!(grew < others + weights * 3 / 2, "{grew} bytes for {weights} bytes of weights and {others} of our kernels");
    // The engine is gone, and its files are still open.
    folder.close().unwrap();
    let (mut session, _) = opened(&engine);
    let from_memory = session.run(&[("input", &input)], &Cancel::new()).unwrap();
    assert!(by_file == from_memory);
    let [(_, Tensor::F32(values))] = by_file.as_slice() else { panic!("{by_file:?}") };
    assert!(values.iter().all(|value| value.is_finite()) && values.iter().any(|value| value.abs() > 1e-3), "{values}");
}
