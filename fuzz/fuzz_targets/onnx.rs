//! Any bytes are a graph or give an error, in bounded memory. What can be read can be linted, converted, written and
//! read again.
#![cfg_attr(fuzzing, no_main)]

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

#[cfg(fuzzing)]
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;
use tileforge_contract::Precision;
use tileforge_engine_builder::convert_graph;
use tileforge_engine_builder::lint::{Target, lint};
use tileforge_exporter::foreign::Survey;
use tileforge_files::Digests;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a temporary folder"));

fuzz_target!(|bytes: &[u8]| {
    let at = |name: &str| -> PathBuf { FOLDER.path().join(name) };
    let (graph, converted) = (at("graph.onnx"), at("converted.onnx"));
    fs::write(&graph, bytes).expect("a file in a temporary folder");
    // What another program wrote is looked at without running it.
    if let Ok(survey) = Survey::of(&graph) {
        let _ = (survey.facts(), survey.missing(), survey.task());
    }
    // An engine's graph takes these forms when a session is opened.
    let _ = tileforge_graph::for_cuda(bytes, &graph);
    let of_weights = |[outputs, inputs]: [usize; 2]| outputs.saturating_mul(inputs);
    let _ = tileforge_graph::with_kernels(bytes, &graph, true, 1 << 12, of_weights);
    let _ = tileforge_graph::for_openvino(bytes, &graph, |_| 0);
    let Ok(model) = tileforge_graph::load(&graph) else { return };
    let _ = tileforge_graph::check_weight_files(&graph, &Digests::default());
    for target in Target::TABLES {
        let report = lint(&model, target);
        let _ = report.findings.iter().map(ToString::to_string).collect::<String>();
    }
    let _ = (tileforge_graph::to_text(&model), model.largest_step(), model.peak());
    for precision in [Precision::Fp16, Precision::Bf16, Precision::Int8] {
        if convert_graph(&graph, precision, &BTreeSet::new(), &converted).is_ok() {
            tileforge_graph::load(&converted).expect("what was written can be read");
        }
    }
});
