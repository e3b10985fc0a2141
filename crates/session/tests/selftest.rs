//! Self-tests of a whole engine, on ONNX Runtime.
#![allow(clippy::unwrap_used)] // a test's way to fail

mod small;

use std::path::Path;

use ndarray::{ArrayD, IxDyn};
use tileforge_engine::Engine;
use tileforge_graph::WeightStorage;
use tileforge_session::onnxruntime::{self, Search};
use tileforge_session::{Cancel, Environment, Ladder, Placement, selftest};

use small::chain;

/// An engine that gives the logarithm of a grey picture of 1 × 2 pixels.
fn engine(folder: &Path, input: [f32; 2], expected: [f32; 2]) -> Engine {
    let shape = [1, 1, 1, 2];
    let array = |values: [f32; 2]| ArrayD::from_shape_vec(IxDyn(&shape), values.into()).unwrap();
    let model = chain(shape, &[("log", "Log", &[])]);
    small::engine(folder, &[("model.onnx", &model)], WeightStorage::Inline, array(input), array(expected))
}

fn verify(input: [f32; 2], expected: [f32; 2]) -> selftest::SelfTestReport {
    let folder = tempfile::tempdir().unwrap();
    let engine = engine(folder.path(), input, expected);
    let environment = Environment::new(onnxruntime::load(&Search::AroundExecutable).unwrap());
    let ladder = Ladder::new(&environment, &engine, Placement::default()).unwrap();
    let mut session = ladder.session(&engine.manifest().graphs[0], 0, &Cancel::new()).unwrap();
    selftest::verify(&engine, &mut session).unwrap()
}

#[test]
fn nan_and_infinity_are_named() {
    let nan = verify([-1.0, 1.0], [0.0, 0.0]);
    assert!(!nan.passed && !nan.finite && nan.maximum_error.is_nan());
    assert_eq!((nan.nan, nan.infinite, nan.found()), (1, 0, "1 of 2 values are NaN".into()));
    let infinite = verify([0.0, 1.0], [0.0, 0.0]);
    assert!(!infinite.passed && !infinite.finite);
    assert_eq!(infinite.found(), "1 of 2 values are infinite");
    let both = verify([0.0, -1.0], [0.0, 0.0]);
    assert_eq!(both.found(), "1 of 2 values are NaN and 1 infinite");
    // An expected NaN does not hide a failure.
    let expected = verify([-1.0, 1.0], [f32::NAN, 0.0]);
    assert!(!expected.passed, "{expected:?}");
}

#[test]
fn what_is_expected_passes_and_what_is_not_says_how_far_it_is_off() {
    let same = verify([1.0, std::f32::consts::E], [0.0, 1.0]);
    assert!(same.passed, "{same:?}");
    let off = verify([1.0, std::f32::consts::E], [0.0, 2.0]);
    assert!(!off.passed);
    assert_eq!(off.found(), "a largest error of 5.00e-1");
}
