//! Where the graphs of an engine are opened.
#![allow(clippy::unwrap_used)] // a test's way to fail

mod small;

use std::fs;

use ndarray::ArrayD;
use tileforge_contract::Provider;
use tileforge_engine::{Engine, MANIFEST_FILE};
use tileforge_graph::{Opset, WeightStorage};
use tileforge_session::onnxruntime::{self, Search};
use tileforge_session::{Environment, Ladder, Placement, SessionOptions};

#[test]
fn a_graph_that_a_provider_cannot_open_steps_down_alone() {
    let folder = tempfile::tempdir().unwrap();
    let plain = small::chain([1, 1, 8, 8], &[("relu", "Relu", &[])]);
    // An operator of ONNX Runtime's own, which OpenVINO does not have.
    let mut special = small::chain([1, 1, 16, 16], &[("inverse", "Inverse", &[])]);
    special.nodes[0].domain = "com.microsoft".into();
    special.opsets.push(Opset { domain: "com.microsoft".into(), version: 1 });
    let picture = ArrayD::from_elem(vec![1, 1, 8, 8], 0.5);
    let models = [("model.onnx", &plain), ("special.onnx", &special)];
    let _ = small::engine(folder.path(), &models, WeightStorage::Inline, picture.clone(), picture);
    let file = folder.path().join(MANIFEST_FILE);
    let manifest = fs::read_to_string(&file).unwrap();
    fs::write(&file, manifest.replace(r#""provider":"cpu""#, r#""provider":"openvino""#)).unwrap();
    let engine = Engine::open(folder.path()).unwrap();
    let environment = Environment::new(onnxruntime::load(&Search::AroundExecutable).unwrap());
    let of = |strict: bool| {
        let session = SessionOptions { strict, ..SessionOptions::default() };
        let placement = Placement { session, ..Placement::default() };
        Ladder::new(&environment, &engine, placement).unwrap()
    };
    let [plain, special] = engine.manifest().graphs.as_slice() else { unreachable!("two graphs") };
    let ladder = of(false);
    assert_eq!(ladder.session(special, 0).unwrap().provider(), Provider::Cpu);
    assert_eq!(ladder.session(plain, 0).unwrap().provider(), Provider::OpenVino);
    assert_eq!([plain, special].map(|graph| ladder.provider_of(graph)), [Provider::OpenVino, Provider::Cpu]);
    assert!(ladder.memory_of(plain) > 0);
    assert_eq!(ladder.memory_of(plain), engine.manifest().memory_at_least(plain));
    // Streams share the cores; a single one leaves the number to ONNX Runtime.
    let threads = |streams| {
        let placement = Placement { streams: Some(streams), ..Placement::default() };
        Ladder::new(&environment, &engine, placement).unwrap().threads()
    };
    assert!(threads(1).is_none() && threads(2).is_some_and(|threads| threads > 0));
    // The figures name the lowest provider.
    assert_eq!((ladder.provider(), ladder.location().provider), (Provider::OpenVino, Provider::Cpu));
    let strict = of(true);
    assert!(strict.session(special, 0).is_err());
    assert_eq!(strict.session(plain, 0).unwrap().provider(), Provider::OpenVino);
}
