//! `exporter`: safetensors checkpoints to ONNX graphs.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
