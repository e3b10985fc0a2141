//! The program `engine-builder`: turns ONNX graphs and checkpoints into engines. Results go to standard output,
//! messages to standard error.

mod advice;
mod build;
mod bundle;
mod failure;
mod fetch;
mod fleet;
mod libraries;
mod lint;
mod models;
mod named;
mod profiles;
mod push;
mod talk;

use clap::{CommandFactory, Parser, Subcommand};
use failure::{CommandResult, Failure, result};
use libraries::Libraries;
use std::path::PathBuf;
use std::process::ExitCode;
use tileforge_contract::Precision;
use tileforge_engine_builder::{convert_graph, rtx};
use tileforge_terminal::{
    self as terminal, Exit, Shell, Verbosity, explain_bus_errors, print_completions, print_manual, start_log,
};

const AFTER_HELP: &str = "\
Examples:
  engine-builder build models/compact-x4.yaml --profile cpu -o engines/cpu/compact-x4
  engine-builder build models/compact-x4.yaml --profile cpu --precision int8 --calibration photos/ \\
    -o engines/cpu/compact-x4-int8
  engine-builder build x4plus.onnx --profile rtx4090 -o engines/rtx4090/x4plus --json
  engine-builder build vae_decoder.onnx --profile rtx4090 --precision fp16 -o engines/rtx4090/vae-decoder
  engine-builder rebuild engines/rtx4090/x4plus
  engine-builder profiles
  engine-builder fetch realesrgan-x4plus";

#[derive(Parser)]
#[command(name = "engine-builder", version, about = "Builds engines of image models for one kind of machine")]
#[command(after_help = format!("{AFTER_HELP}\n\n{}", Exit::help(&EXITS)))]
struct Arguments {
    /// The ONNX Runtime library, or the folder that holds it
    #[arg(long, value_name = "PATH", global = true, help_heading = "Libraries")]
    ort_lib: Option<PathBuf>,
    /// The folder of NVIDIA's TensorRT for RTX, which builds plans for RTX GPUs
    ///
    /// Without it: the environment variable TENSORRT_RTX_LIB_PATH, then beside the ONNX Runtime library.
    #[arg(long, value_name = "DIR", global = true, help_heading = "Libraries")]
    rtx_lib: Option<PathBuf>,
    #[command(flatten)]
    verbosity: Verbosity,
    #[command(subcommand)]
    command: Command,
}

/// The exit codes of this program.
const EXITS: [Exit; 6] = [Exit::Done, Exit::Failed, Exit::Usage, Exit::DoesNotFit, Exit::Gate, Exit::Stopped];

#[derive(Subcommand)]
enum Command {
    Build(Box<build::Arguments>),
    Rebuild(Box<build::rebuild::Arguments>),
    /// Write an exported graph in FP16 or BF16, or with INT8 weights. This makes no engine: nothing is calibrated, no
    /// gate is checked.
    #[command(after_help = CONVERT_HELP)]
    Convert(ConvertArguments),
    Pack(bundle::PackArguments),
    Unpack(bundle::UnpackArguments),
    Push(push::Arguments),
    Keygen(bundle::KeygenArguments),
    Sign(bundle::SignArguments),
    Verify(bundle::VerifyArguments),
    Diff(bundle::DiffArguments),
    Lint(lint::Arguments),
    Plan(fleet::Arguments),
    Models(models::Arguments),
    Fetch(fetch::Arguments),
    Profiles(profiles::Arguments),
    /// Build the plan that standard input describes; `build` starts this.
    #[command(hide = true)]
    BuildPlan,
    /// Print the completions of a shell.
    #[command(after_help = "Example:\n  engine-builder completions bash > /etc/bash_completion.d/engine-builder")]
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Print all manual pages as one JSON object, from file names to texts; releases are made with it.
    #[command(hide = true)]
    Manual,
}

const CONVERT_HELP: &str = "\
Example:
  engine-builder convert unet.onnx --precision fp16 -o unet-fp16.onnx
  engine-builder convert unet.onnx --precision int8 -o unet-int8-weights.onnx

For graphs that are too large to be measured here. Whether FP16 holds their activations is not looked at: name what it \
does not with --island.";

#[derive(clap::Args)]
struct ConvertArguments {
    /// An exported graph (.onnx)
    graph: PathBuf,
    /// fp16, bf16, or int8: weights of convolutions and matrix products in 8 bits, with one scale for each output
    /// channel, and activations in FP32
    #[arg(long, value_name = "PRECISION")]
    precision: Precision,
    /// A node that computes in FP32, or a layer whose weights are not converted; may be repeated
    #[arg(long, value_name = "NODE")]
    island: Vec<String>,
    /// Where the graph goes; weights that need no conversion stay in their file, which gets a second name
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

fn main() -> ExitCode {
    let Arguments { ort_lib, rtx_lib, verbosity, command } = Arguments::parse();
    start_log(verbosity);
    explain_bus_errors();
    match &command {
        Command::BuildPlan => terminal::leave_signals_to_parent(),
        _ => terminal::stop_on_signals(),
    }
    let libraries = Libraries::new(ort_lib, rtx_lib);
    terminal::end(match command {
        Command::Build(build) => build::run(*build, &libraries),
        Command::Rebuild(rebuild) => build::rebuild::run(*rebuild, &libraries),
        Command::Convert(convert) => run_convert(&convert),
        Command::Pack(arguments) => bundle::pack(&arguments),
        Command::Unpack(arguments) => bundle::unpack(&arguments),
        Command::Push(arguments) => push::run(&arguments),
        Command::Keygen(arguments) => bundle::keygen(&arguments),
        Command::Sign(arguments) => bundle::sign(&arguments),
        Command::Verify(arguments) => bundle::verify(&arguments),
        Command::Diff(arguments) => bundle::diff(&arguments),
        Command::Lint(lint) => lint::run(&lint, &libraries),
        Command::Plan(arguments) => fleet::run(&arguments, &libraries),
        Command::Models(arguments) => models::run(&arguments),
        Command::Fetch(arguments) => fetch::run(&arguments),
        Command::Profiles(arguments) => profiles::run(&arguments),
        Command::BuildPlan => rtx::serve_plan().map_err(Failure::Builder),
        Command::Completions { shell } => print_completions(shell, Arguments::command()).map_err(Failure::Print),
        Command::Manual => print_manual(Arguments::command()).map_err(Failure::Print),
    })
}

fn run_convert(arguments: &ConvertArguments) -> CommandResult {
    let islands = arguments.island.iter().cloned().collect();
    convert_graph(&arguments.graph, arguments.precision, &islands, &arguments.output)?;
    result(&arguments.output.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Arguments::command().debug_assert();
    }

    /// The examples of every help text and of the documents: users paste them.
    #[test]
    fn every_example_parses() {
        terminal::testing::check_examples::<Arguments>();
    }

    #[test]
    fn values_are_asked_for_in_plain_words() {
        terminal::testing::check_values::<Arguments>();
    }
}
