//! `engine-builder`: ONNX graphs and checkpoints to engines.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
