//! Builds a plan for RTX GPUs from an exported graph, and the model around the plan. Prints figures: the cost of a
//! graph before an engine is made of it.
//!
//!     cargo run --release -p tileforge-engine-builder --features rtx --example rtx_plan -- \
//!         .onnxruntime/lib model-fp16.onnx 8.9 OUTPUT_FOLDER [int8|fp8|as-exported]
//!
//! With a precision of 8 bits, the graph is in FP32, and is quantised without calibration. With `as-exported`, the plan
//! is built without the forms that a builder gives a graph; if these would change nothing, none is built.
#![allow(clippy::print_stdout)]

use std::io::Cursor;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;
use tileforge_contract::Provider;
use tileforge_engine_builder::rtx::{PlanFacts, context_model, prepare};
use tileforge_engine_builder::uncalibrated;
use tileforge_graph::{WeightStorage, load, save};
use tileforge_tensorrt::{BuildOptions, ComputeCapability, Library, Program};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, graph, capabilities, output, kind @ ..] = arguments.as_slice() else {
        return Err("expected: LIBRARY_FOLDER GRAPH CAPABILITIES OUTPUT_FOLDER [int8|fp8|as-exported]".into());
    };
    let (graph, output) = (Path::new(graph), Path::new(output));
    let capabilities: Vec<ComputeCapability> = capabilities.split(',').map(str::parse).collect::<Result<_, _>>()?;
    let library = Library::load(Path::new(folder))?;
    std::fs::create_dir_all(output)?;

    let mut model = load(graph)?;
    let exported = model.clone();
    let is_as_exported = kind.first().is_some_and(|kind| kind == "as-exported");
    if let Some(precision) = kind.first().filter(|_| !is_as_exported) {
        let quantised = uncalibrated(&model, precision.parse()?, Provider::TensorRtRtx)?;
        model = quantised.ok_or("no layer can be in 8 bits")?;
    }
    let prepared = prepare(&mut model)?;
    if is_as_exported {
        if model.nodes == exported.nodes {
            println!("unchanged");
            return Ok(());
        }
        model = exported;
    }
    let path = output.join("model.onnx");
    save(&model, &path, WeightStorage::Copy)?;

    let started = Instant::now();
    let plan = library.build(&path, &capabilities, &BuildOptions::default(), &mut |_| ControlFlow::Continue(()))?;
    let seconds = started.elapsed().as_secs_f64();
    std::fs::write(output.join("model.plan"), plan.bytes())?;
    let versions: Vec<(u32, u32)> = capabilities.iter().map(|capability| capability.version()).collect();
    let facts =
        PlanFacts { plan: Path::new("model.plan"), graph: "model.onnx", partition: "model", capabilities: &versions };
    save(&context_model(&model.inputs, &model.outputs, &facts)?, &output.join("context.onnx"), WeightStorage::Inline)?;

    let peak = std::fs::read_to_string("/proc/self/status")?;
    let peak = peak.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
    println!(
        "{seconds:.1} s, {} layers, plan of {} bytes, {}, rewritten: {prepared:?}",
        plan.layers(),
        plan.bytes().len(),
        peak.split_whitespace().collect::<Vec<_>>().join(" "),
    );
    let program = Program::read(&mut Cursor::new(plan.bytes()))?;
    let (moved, activations) = (program.moved_bytes() as f64 / 1e6, program.activation_bytes as f64 / 1e6);
    let (kernels, products) = (program.operations.len(), program.multiply_adds() as f64 / 1e9);
    println!("{kernels} kernels, {moved:.1} MB moved, {products:.2} G products, {activations:.1} MB of activations");
    Ok(())
}
