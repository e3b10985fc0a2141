//! Builds a plan of an ONNX file and prints the result.
//!
//!     cargo run --release -p tileforge-tensorrt --features rtx --example build_plan -- \
//!         .onnxruntime/lib model.onnx 8.9,12.0 [refit|identical|stripped] [tf32] [verbose] [kernels] [to=FILE]
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;
use tileforge_tensorrt::{BuildOptions, ComputeCapability, Library, PlanHeader, Program, Refit, Severity};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, graph, capabilities, words @ ..] = arguments.as_slice() else {
        return Err(
            "expected: FOLDER GRAPH CAPABILITIES [refit|identical|stripped] [tf32] [verbose] [kernels] [to=FILE]"
                .into(),
        );
    };
    let library = Library::load(Path::new(folder))?;
    let capabilities: Vec<ComputeCapability> = capabilities.split(',').map(str::parse).collect::<Result<_, _>>()?;
    let has = |word: &str| words.iter().any(|given| given == word);
    let options = BuildOptions {
        tf32: has("tf32"),
        refit: match (has("refit"), has("identical") || has("stripped")) {
            (true, _) => Refit::Any,
            (_, true) => Refit::Identical,
            _ => Refit::Never,
        },
        without_weights: has("stripped"),
        messages: if has("verbose") { Severity::Verbose } else { Severity::Warning },
        ..BuildOptions::default()
    };
    let started = Instant::now();
    let mut steps = 0;
    let plan = library.build(Path::new(graph), &capabilities, &options, &mut |progress| {
        steps += 1;
        if has("verbose") {
            eprintln!("{progress:?}");
        }
        ControlFlow::Continue(())
    })?;
    for message in plan.messages() {
        eprintln!("{:?}: {}", message.severity, message.text);
    }
    println!(
        "{} layers, {} bytes, {:.2} s, {steps} steps, {:?}, {:?}",
        plan.layers(),
        plan.bytes().len(),
        started.elapsed().as_secs_f64(),
        PlanHeader::read(plan.bytes()),
        library.validity(plan.bytes()),
    );
    if has("kernels") {
        let program = Program::read(&mut plan.bytes())?;
        for each in &program.operations {
            let element = each.element.map(|element| element.to_string()).unwrap_or_default();
            println!(
                "{:24} {element:5} {:12} read {:12} written  {}",
                each.kind, each.read_bytes, each.written_bytes, each.kernel
            );
        }
        println!("{} kernels move {} bytes", program.operations.len(), program.moved_bytes());
    }
    if let Some(path) = words.iter().find_map(|word| word.strip_prefix("to=")) {
        std::fs::write(path, plan.bytes())?;
    }
    Ok(())
}
