//! Networks that mix the samples of a batch. The builder finds that, and the host keeps requests apart.

use super::build;
use end_to_end::{environment, manifest_in, run, words};
use ndarray::ArrayD;
use std::collections::BTreeMap;
use std::path::Path;
use tileforge_engine::Engine;
use tileforge_graph::{DataType, Dim, TensorType, Trace, Value, WeightStorage, save};
use tileforge_runtime::host::{Handle, Host, HostOptions, Service, Terms};
use tileforge_runtime::run::{Outputs, Runner};
use tileforge_session::{Placement, Tensor};

const SIDE: usize = 48;

/// Builds `work/engine` of a network of another program for batches of 1 and 4. Returns the build's standard error.
fn built(work: &Path, change: impl Fn(&Value) -> Value) -> String {
    let trace = Trace::new("mixed", 9, 20);
    let [batch, height, width] = ["batch", "height", "width"].map(Dim::symbol);
    let image = trace.input("image", TensorType::new(DataType::F32, [batch, Dim::Fixed(3), height, width]));
    trace.output("made", &change(&image));
    let path = work.join("mixed.onnx");
    save(&trace.finish().unwrap(), &path, WeightStorage::Inline).unwrap();
    build(work, &path, "tests/profiles/batched.yaml", &["--task", "upscale"]).success().stderr
}

/// A number of requests that wait for one stream.
const REQUESTS: usize = 8;

/// What requests of one picture each make, and the largest number of samples in a run.
fn made(work: &Path, allows_rounding: bool, together: bool) -> (Vec<ArrayD<f32>>, usize) {
    let host = Host::new(&environment(), HostOptions::default());
    let placement = Placement { streams: Some(1), ..Placement::default() };
    let runner = Runner::new(&host, &Engine::open(&work.join("engine")).unwrap(), placement).unwrap();
    let service = Service::new(&host, runner, REQUESTS);
    let picture = |seed: usize| {
        let value = |at: usize| ((at + seed * 131) * 7919 % 1009) as f32 / 1009.0;
        let values = (0..3 * SIDE * SIDE).map(value).collect();
        Tensor::from(ArrayD::from_shape_vec(vec![1, 3, SIDE, SIDE], values).unwrap())
    };
    // All are made before the first is submitted, so that they come while the first opens the session.
    let pictures: Vec<Tensor> = (0..REQUESTS).map(picture).collect();
    let submit = |picture: Tensor| {
        let terms = Terms { allows_rounding, ..Terms::default() };
        service.submit(BTreeMap::from([("image".to_owned(), picture)]), terms).unwrap()
    };
    let wait = |handle: Handle<Outputs>| handle.wait().unwrap().tensors.swap_remove(0).1.into_f32().unwrap();
    let made = if together {
        let handles: Vec<_> = pictures.into_iter().map(submit).collect();
        handles.into_iter().map(wait).collect()
    } else {
        pictures.into_iter().map(submit).map(wait).collect()
    };
    let most = host.metrics().runs.keys().copied().max().unwrap();
    service.shutdown();
    (made, most)
}

/// What requests that come together make, once a run had samples of several. On a busy machine, each may be finished
/// before the next one comes.
fn shared(work: &Path, allows_rounding: bool) -> Vec<ArrayD<f32>> {
    let mut attempts = (0..50).map(|_| made(work, allows_rounding, true));
    attempts.find(|(_, most)| *most > 1).unwrap().0
}

#[test]
fn requests_to_a_network_that_mixes_samples_are_kept_apart() {
    let work = tempfile::tempdir().unwrap();
    let said = built(work.path(), |image| image + &image.mean(0).scale(1e-5));
    assert!(said.contains("model-4x3x48x48.onnx") && said.contains("allows_rounding"), "{said}");
    assert_eq!(manifest_in(work.path())["batches_change_no_byte"], false);
    let shown = run("runtime", words(&[&"inspect", &"--engine", &work.path().join("engine")])).success().stdout;
    assert!(shown.contains("batches          change results"), "{shown}");
    let (alone, most) = made(work.path(), false, false);
    assert_eq!(most, 1);
    let (apart, most) = made(work.path(), false, true);
    assert!(most == 1 && apart == alone, "{most} samples in a run");
    // The network does mix what shares a run.
    assert!(shared(work.path(), true) != alone);
}

#[test]
fn requests_to_a_network_whose_samples_are_independent_share_runs() {
    let work = tempfile::tempdir().unwrap();
    let said = built(work.path(), |image| image.sigmoid());
    assert!(!said.contains("allows_rounding"), "{said}");
    assert_eq!(manifest_in(work.path())["batches_change_no_byte"], true);
    let (alone, most) = made(work.path(), false, false);
    assert!(most == 1 && shared(work.path(), false) == alone, "{most} samples in a run");
}
