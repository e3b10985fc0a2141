//! The command line: arguments, exit codes, and how errors are told.

mod bench;
mod chosen;
mod compare;
mod doctor;
mod evaluate;
mod frames;
mod infer;
mod inspect;
mod output;
mod plan;
mod verify;

use std::error::Error as _;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use tileforge_runtime::{Error, onnxruntime};
use tracing_subscriber::EnvFilter;

use output::report;

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  failed
  2  wrong usage
  3  the engine does not fit this box
  4  a gate or a self-test failed
  130  stopped by Ctrl-C or a signal; what was not finished is not there";

/// Runs image engines: engines to pixels.
#[derive(Parser)]
#[command(name = "runtime", version, after_help = EXIT_CODES, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// The ONNX Runtime library, or the folder that holds it.
    ///
    /// Without it: the environment variable ORT_DYLIB_PATH, then beside this executable, then ../lib, then
    /// .onnxruntime/lib in any folder above (where `make setup` puts it).
    #[arg(long, global = true, value_name = "PATH")]
    ort_lib: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Command {
    Infer(infer::Arguments),
    Bench(bench::Arguments),
    Evaluate(evaluate::Arguments),
    Compare(compare::Arguments),
    Inspect(inspect::Arguments),
    Verify(verify::Arguments),
    Doctor(doctor::Arguments),
    Completions(Completions),
}

/// Print a completion script for a shell.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  runtime completions bash > ~/.local/share/bash-completion/completions/runtime")]
struct Completions {
    /// The shell.
    shell: clap_complete::Shell,
}

/// Why a command did not end with exit code 0.
#[derive(Debug)]
enum Failure {
    /// The library's error, with its chain of causes.
    Runtime(Error),
    /// Arguments that do not go together.
    Usage(String),
    /// A gate or a self-test was missed; the figures have been printed.
    Gate(String),
    /// Some pictures of several failed, and their errors have been printed.
    Partly(String),
    /// Results cannot be printed.
    Print(io::Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Runtime(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Print(error)
    }
}

type CommandResult = Result<(), Failure>;

impl Failure {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Runtime(Error::DoesNotFit(_)) => 3,
            Self::Runtime(Error::Cancelled) => 130,
            Self::Runtime(_) | Self::Partly(_) | Self::Print(_) => 1,
            Self::Usage(_) => 2,
            Self::Gate(_) => 4,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Runtime(error) => chain(error),
            Self::Usage(text) | Self::Gate(text) | Self::Partly(text) => text.clone(),
            Self::Print(error) => format!("standard output: cannot be written: {error}"),
        }
    }
}

/// An error and its causes, one a line.
fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!("\n  because: {error}"));
        cause = error.source();
    }
    text
}

pub(crate) fn main() -> ExitCode {
    let cli = Cli::parse();
    start_log();
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever reads frames has seen enough, but they are what was asked for.
        Err(Failure::Runtime(Error::File { source, .. })) if source.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::FAILURE
        }
        Err(failure) => {
            report(&format!("error: {}", failure.text()));
            ExitCode::from(failure.exit_code())
        }
    }
}

fn run(cli: Cli) -> CommandResult {
    let library = || onnxruntime::load(cli.ort_lib.as_deref());
    match &cli.command {
        Command::Infer(arguments) => infer::run(arguments, library),
        Command::Bench(arguments) => bench::run(arguments, library),
        Command::Evaluate(arguments) => evaluate::run(arguments, library),
        Command::Compare(arguments) => compare::run(arguments),
        Command::Inspect(arguments) => inspect::run(arguments),
        Command::Verify(arguments) => verify::run(arguments, library),
        Command::Doctor(arguments) => doctor::run(arguments, library),
        Command::Completions(arguments) => {
            let mut script = Vec::new();
            clap_complete::generate(arguments.shell, &mut Cli::command(), "runtime", &mut script);
            Ok(output::print(String::from_utf8_lossy(&script).trim_end())?)
        }
    }
}

/// Warnings go to standard error; RUST_LOG shows more, such as `RUST_LOG=onnxruntime=debug`.
fn start_log() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    let colours = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(colours)
        .with_target(false)
        .without_time()
        .init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn each_failure_has_its_exit_code() {
        let codes = [
            Failure::Runtime(Error::Cancelled),
            Failure::Usage(String::new()),
            Failure::Runtime(Error::DoesNotFit(String::new())),
            Failure::Gate(String::new()),
        ]
        .map(|failure| failure.exit_code());
        assert_eq!(codes, [130, 2, 3, 4]);
    }
}
