//! The program `engine-builder`: turns ONNX graphs and checkpoints into engines. Results go to standard output,
//! messages to standard error.

mod advice;
mod build;
mod bundle;
mod fetch;
mod fleet;
mod lint;
mod models;
mod named;
mod profiles;
mod push;
mod talk;

use clap::{CommandFactory, Parser, Subcommand};
use std::env;
use std::path::PathBuf;
use std::process::ExitCode;
use tileforge_contract::Precision;
use tileforge_engine_builder::rtx::{self, PlanProgram};
use tileforge_engine_builder::{Error, convert_graph};
use tileforge_session::Environment;
use tileforge_session::onnxruntime::{self, Search};
use tileforge_terminal::{
    self as terminal, Exit, PrintError, Shell, Verbosity, cache_folder, chain, chain_with, counted, explain_bus_errors,
    is_verbose, print, print_completions, print_json, print_manual, start_log,
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

/// Why a command failed.
#[derive(Debug)]
enum Failure {
    /// The arguments do not go together.
    Usage(String),
    /// The library's error.
    Builder(Error),
    /// An operation with engines and a registry failed.
    Registry(tileforge_registry::Error),
    /// A result cannot be printed.
    Print(PrintError),
    /// Some of several engines were not built. Their errors have been printed.
    Partly {
        /// How many.
        failed: usize,
        /// Of how many.
        of: usize,
        /// The exit code of the first of them.
        exit: Exit,
    },
}

type CommandResult = Result<(), Failure>;

impl<E: Into<Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Builder(error.into())
    }
}

impl terminal::Failure for Failure {
    fn exit(&self) -> Exit {
        match self {
            Self::Builder(error) => match error.root() {
                Error::NoEffect { .. }
                | Error::NoSuchName { .. }
                | Error::Precision { .. }
                | Error::ModelGraph { .. }
                | Error::Component { .. }
                | Error::Request(_)
                | Error::Unrecorded { .. } => Exit::Usage,
                Error::Engine(
                    tileforge_engine::Error::NoSuchEngine { .. } | tileforge_engine::Error::NoSuchPart { .. },
                ) => Exit::Usage,
                Error::Gate(_) | Error::Lint(_) => Exit::Gate,
                Error::Portable { .. } => Exit::DoesNotFit,
                Error::Session(error) if error.does_not_fit() => Exit::DoesNotFit,
                _ => Exit::Failed,
            },
            Self::Registry(
                tileforge_registry::Error::PushToDigest { .. } | tileforge_registry::Error::Twins { .. },
            )
            | Self::Usage(_) => Exit::Usage,
            Self::Registry(_) | Self::Print(_) => Exit::Failed,
            Self::Partly { exit, .. } => *exit,
        }
    }

    fn text(&self) -> Option<String> {
        Some(match self {
            Self::Usage(reason) => reason.clone(),
            Self::Builder(error) => {
                let text = chain_with(error, advice::on(error.root()).as_deref());
                let details = match error.root() {
                    Error::Export(error) if is_verbose() => error.details(),
                    _ => None,
                };
                [Some(text), details].into_iter().flatten().collect::<Vec<_>>().join("\n")
            }
            Self::Registry(error) => chain_with(error, advice::registry(error).as_deref()),
            Self::Print(error) => chain(error),
            Self::Partly { failed, of, .. } => format!("{failed} of {} were not built", counted(*of, "engine")),
        })
    }
}

/// Prints a human-readable result.
fn result(text: &str) -> CommandResult {
    print(text).map_err(Failure::Print)
}

/// Prints a machine-readable result.
fn result_json(value: &impl serde::Serialize) -> CommandResult {
    print_json(value).map_err(Failure::Print)
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

/// The places of the libraries that a build needs, if the user names them.
pub(crate) struct Libraries {
    onnxruntime: Option<PathBuf>,
    tensorrt_rtx: Option<PathBuf>,
}

impl Libraries {
    /// The places from the arguments, else from the environment variables.
    fn new(ort_lib: Option<PathBuf>, rtx_lib: Option<PathBuf>) -> Self {
        let variable = env::var_os(RTX_LIB).map(PathBuf::from).filter(|path| !path.as_os_str().is_empty());
        Self { onnxruntime: ort_lib, tensorrt_rtx: rtx_lib.or(variable) }
    }

    /// The environment in which this process builds engines.
    fn environment(&self) -> Result<Environment, Failure> {
        let variable = env::var_os("ORT_DYLIB_PATH").map(PathBuf::from);
        let search = Search::first_named([("--ort-lib", self.onnxruntime.clone()), ("ORT_DYLIB_PATH", variable)]);
        Ok(Environment::new(onnxruntime::load(&search)?).with_cache(cache_folder()).returning_large_blocks())
    }

    /// The command line and library with which this program starts itself to build one plan.
    fn plan_program(&self) -> Result<PlanProgram, Failure> {
        let program = env::current_exe().map_err(|source| Error::File {
            path: "engine-builder".into(),
            action: "find the program itself",
            source,
        })?;
        Ok(PlanProgram { program, arguments: vec!["build-plan".into()], library: self.tensorrt_rtx.clone() })
    }
}

/// The variable that names the folder of TensorRT for RTX.
const RTX_LIB: &str = "TENSORRT_RTX_LIB_PATH";

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
