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
    /// Generate the checked-in code from schemas of protocol buffers.
    Codegen,
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
        Task::Codegen => codegen::run(),
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
