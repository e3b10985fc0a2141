//! Where the graphs of an engine are opened.
#![allow(clippy::unwrap_used)] // a test's way to fail

mod small;

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use ndarray::ArrayD;
use tileforge_contract::Provider;
use tileforge_engine::{Engine, MANIFEST_FILE};
use tileforge_graph::{Opset, WeightStorage};
use tileforge_session::onnxruntime::{self, Search};
use tileforge_session::{Cancel, Environment, Ladder, Placement, SessionOptions, Tensor};

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
    assert_eq!(ladder.session(special, 0, &Cancel::new()).unwrap().provider(), Provider::Cpu);
    assert_eq!(ladder.session(plain, 0, &Cancel::new()).unwrap().provider(), Provider::OpenVino);
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
    assert!(strict.session(special, 0, &Cancel::new()).is_err());
    assert_eq!(strict.session(plain, 0, &Cancel::new()).unwrap().provider(), Provider::OpenVino);
}

#[test]
fn an_open_session_runs_while_another_graph_is_being_opened() {
    let folder = tempfile::tempdir().unwrap();
    let small = small::chain([1, 1, 8, 8], &[("relu", "Relu", &[])]);
    let names: Vec<String> = (0..2000).map(|number| format!("erf-{number}")).collect();
    let large = names.iter().map(|name| (name.as_str(), "Erf", &[][..])).collect::<Vec<_>>();
    let large = small::chain([1, 1, 16, 16], &large);
    let picture = ArrayD::from_elem(vec![1, 1, 8, 8], 0.5);
    let models = [("model.onnx", &small), ("large.onnx", &large)];
    let engine = small::engine(folder.path(), &models, WeightStorage::Inline, picture.clone(), picture.clone());
    let environment = Environment::new(onnxruntime::load(&Search::AroundExecutable).unwrap());
    let ladder = Ladder::new(&environment, &engine, Placement::default()).unwrap();
    let [small, large] = engine.manifest().graphs.as_slice() else { unreachable!("two graphs") };
    let mut session = ladder.session(small, 0, &Cancel::new()).unwrap();
    let input = Tensor::from(picture);
    // Odd while the large graph is being opened.
    let openings = AtomicUsize::new(0);
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::SeqCst) {
                openings.fetch_add(1, Ordering::SeqCst);
                let opened = ladder.session(large, 1, &Cancel::new());
                openings.fetch_add(1, Ordering::SeqCst);
                assert!(opened.is_ok());
            }
        });
        let began_and_ended_within = |_| {
            let before = openings.load(Ordering::SeqCst);
            let has_run = session.run(&[("input", &input)], &Cancel::new()).is_ok();
            has_run && before % 2 == 1 && openings.load(Ordering::SeqCst) == before
        };
        let seen = (0..100_000).any(began_and_ended_within);
        is_done.store(true, Ordering::SeqCst);
        assert!(seen);
    });
}
