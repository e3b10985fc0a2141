//! Developers' tools: `cargo xtask <task>`.

mod architectures;
mod codegen;
mod dist;
mod repeat;
mod synth;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(about = "Developer's tasks of Tileforge")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// List the architectures with their presets, and with example shapes for presets that need shapes.
    Architectures(architectures::Arguments),
    /// Generate crates/graph/src/proto/onnx.rs from crates/graph/proto/onnx-ml.proto.
    Codegen {
        /// Write nothing; fail if the checked-in file differs.
        #[arg(long)]
        check: bool,
    },
    /// Make a release: archives, Debian packages, checksums.
    Dist(dist::Arguments),
    /// Write a large photo by repeating a small one.
    Repeat(repeat::Arguments),
    /// Write a checkpoint with random weights of any registered architecture.
    Synth(synth::Arguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().task {
        Task::Architectures(arguments) => architectures::run(&arguments),
        Task::Codegen { check } => codegen::run(check),
        Task::Dist(arguments) => dist::run(&arguments),
        Task::Repeat(arguments) => repeat::run(&arguments),
        Task::Synth(arguments) => synth::run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            #[allow(clippy::print_stderr)] // a command-line program talks on stderr
            {
                eprintln!("error: {message}");
            }
            ExitCode::FAILURE
        }
    }
}
