//! OpenVINO runs what ONNX Runtime runs.

use crate::batches::differences;
use crate::random_networks::each;
use ndarray::ArrayD;
use tileforge_contract::Provider;
use tileforge_exporter::arch::registry;
use tileforge_session::SessionOptions;

/// The largest difference that rounding in another order makes, over the range of the values.
const ROUNDING: f32 = 2e-5;

fn on(provider: Provider) -> SessionOptions {
    SessionOptions { provider, ..SessionOptions::default() }
}

/// The largest difference of two arrays over the range of the second.
fn error(found: &ArrayD<f32>, expected: &ArrayD<f32>) -> f32 {
    let (low, high) = expected.iter().fold((f32::MAX, f32::MIN), |(low, high), &value| (low.min(value), high.max(value)));
    let largest = found.iter().zip(expected).map(|(found, expected)| (found - expected).abs()).fold(0.0, f32::max);
    largest / (high - low).max(f32::MIN_POSITIVE)
}

#[test]
fn every_network_gives_what_onnx_runtime_gives() {
    let mut problems = Vec::new();
    let shown = each(|network, _| {
        let samples = network.samples();
        let first = &samples[..1];
        let expected = network.run(1, &on(Provider::Cpu), first).unwrap();
        match network.run(1, &on(Provider::OpenVino), first) {
            Err(error) => problems.push(format!("{}: {error}", network.name)),
            Ok(found) => {
                for ((name, found), (_, expected)) in found[0].iter().zip(&expected[0]) {
                    assert_eq!(found.shape(), expected.shape(), "{}: {name}", network.name);
                    let error = error(found, expected);
                    if !(error <= ROUNDING) {
                        problems.push(format!("{}: {name}: {error:e} of the range", network.name));
                    }
                }
            }
        }
    });
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert_eq!(shown.len(), registry().len());
}

#[test]
fn a_sample_of_a_batch_is_computed_as_one_alone() {
    let mut found = Vec::new();
    let _ = each(|network, threads| {
        if !network.is_of_clips() {
            found.extend(differences(network, Provider::OpenVino, threads));
        }
    });
    assert!(found.is_empty(), "{}", found.join("\n"));
}
