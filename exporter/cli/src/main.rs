//! The program `exporter`: checkpoints to ONNX graphs. Results go to standard output, messages to standard error.

mod advice;
mod export;
mod failure;
mod hints;
mod inspect;

use clap::{CommandFactory, Parser, Subcommand};
use failure::Failure;
use std::process::ExitCode;
use tileforge_terminal::{
    self as terminal, Exit, Shell, Verbosity, explain_bus_errors, print_completions, print_manual, start_log,
};

const AFTER_HELP: &str = "\
Examples:
  exporter inspect RealESRGAN_x4plus.pth
  exporter export RealESRGAN_x4plus.pth -o x4plus.onnx
  exporter export model.safetensors.index.json -o model.onnx --weights copy --shapes image:1x3x256x256
  exporter export stable-diffusion-xl-base-1.0 -o sdxl-onnx --variant fp16";

#[derive(Parser)]
#[command(
    name = "exporter",
    version,
    about = "Turns checkpoints of image models into ONNX graphs",
    after_help = format!("{AFTER_HELP}\n\n{}", Exit::help(&EXITS))
)]
struct Arguments {
    #[command(flatten)]
    verbosity: Verbosity,
    #[command(subcommand)]
    command: Command,
}

/// How this program ends: it has no engines and no gates.
const EXITS: [Exit; 4] = [Exit::Done, Exit::Failed, Exit::Usage, Exit::Stopped];

const EXPORT_HELP: &str = "\
Examples:
  exporter export compact-x4.safetensors -o compact-x4.onnx
  exporter export compact-x4.safetensors -o tile.onnx --shapes image:1x3x256x256 --weights inline
  exporter export stable-diffusion-v1-5 -o sd15-onnx
  exporter export stable-diffusion-v1-5/vae -o decoder.onnx --component vae_decoder";

#[derive(Subcommand)]
enum Command {
    /// Show what a checkpoint, a pipeline or a graph is: architecture, task, sizes, element types.
    #[command(after_help = "Example:\n  exporter inspect models/compact-x4.safetensors --json")]
    Inspect(inspect::Arguments),
    /// Write the ONNX graph of a checkpoint, or those of a pipeline's folder.
    #[command(after_help = EXPORT_HELP)]
    Export(export::Arguments),
    /// Print the completions of a shell.
    #[command(after_help = "Example:\n  exporter completions bash > /etc/bash_completion.d/exporter")]
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Print all manual pages as one JSON object, from file names to texts; releases are made with it.
    #[command(hide = true)]
    Manual,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    start_log(arguments.verbosity);
    explain_bus_errors();
    terminal::stop_on_signals();
    terminal::end(match &arguments.command {
        Command::Inspect(arguments) => inspect::run(arguments),
        Command::Export(arguments) => export::run(arguments),
        Command::Completions { shell } => print_completions(*shell, Arguments::command()).map_err(Failure::Print),
        Command::Manual => print_manual(Arguments::command()).map_err(Failure::Print),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Arguments::command().debug_assert();
    }

    /// Tests the examples of every help and of the documents: users paste them.
    #[test]
    fn every_example_parses() {
        terminal::testing::check_examples::<Arguments>();
    }

    #[test]
    fn values_are_asked_for_in_plain_words() {
        terminal::testing::check_values::<Arguments>();
    }
}
