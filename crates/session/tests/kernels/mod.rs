//! What the tests of our kernels share.
#![allow(clippy::unwrap_used, clippy::panic)] // a test's way to fail

use std::path::Path;

use tileforge_graph::{Model, WeightStorage, with_kernels};
use tileforge_session::onnxruntime::{self, Search};
use tileforge_session::{Cancel, Environment, OptimisationLevel, Session, SessionOptions, Tensor};

pub(crate) fn environment() -> Environment {
    Environment::new(onnxruntime::load(&Search::AroundExecutable).unwrap())
}

pub(crate) fn save(model: &Model, path: &Path) {
    tileforge_graph::save(model, path, WeightStorage::Inline).unwrap();
}

/// The operators of the graph in the form that a session runs, if its prepared weights may take so many bytes.
pub(crate) fn operators(path: &Path, most_bytes: usize) -> Vec<String> {
    let bytes = std::fs::read(path).unwrap();
    let adapted = with_kernels(&bytes, path, true, most_bytes, |[k, c]| 144 * k * c).unwrap();
    let Some(adapted) = adapted else { return vec!["as it is".into()] };
    let file = path.with_extension("adapted.onnx");
    std::fs::write(&file, adapted).unwrap();
    tileforge_graph::load_untyped(&file).unwrap().nodes.into_iter().map(|node| node.operator).collect()
}

/// The first results of a graph, at a level at which a session has our kernels, or at one at which it has not.
pub(crate) fn run(
    environment: &Environment,
    path: &Path,
    optimisation: OptimisationLevel,
    inputs: &[(&str, &Tensor)],
) -> Result<Vec<f32>, String> {
    let options = SessionOptions { optimisation, own_kernels: true, ..SessionOptions::default() };
    let mut session = Session::open(environment, path, &options).map_err(|error| error.to_string())?;
    let outputs = session.run(inputs, &Cancel::default()).map_err(|error| error.to_string())?;
    match &outputs[0].1 {
        Tensor::F32(values) => Ok(values.iter().copied().collect()),
        other => panic!("{other:?}"),
    }
}

/// The results on 1, 2, 4 and 8 threads are the same bytes.
pub(crate) fn check_threads(environment: &Environment, path: &Path, inputs: &[(&str, &Tensor)]) {
    let results = [1, 2, 4, 8].map(|threads| {
        let options = SessionOptions { threads: Some(threads), own_kernels: true, ..SessionOptions::default() };
        let mut session = Session::open(environment, path, &options).unwrap();
        session.run(inputs, &Cancel::default()).unwrap().remove(0).1
    });
    assert!(results.windows(2).all(|pair| pair[0] == pair[1]));
}

pub(crate) fn largest_difference(one: &[f32], other: &[f32]) -> f32 {
    assert_eq!(one.len(), other.len());
    let differences = one.iter().zip(other).map(|(one, other)| (one - other).abs());
    // NaN stays.
    differences.fold(0.0, |largest, difference| if difference <= largest { largest } else { difference })
}
