//! The program `runtime`: arguments, and what each command does.

mod advice;
mod bench;
mod chosen;
mod coding;
mod compare;
mod default_engine;
mod doctor;
mod endings;
mod evaluate;
mod failure;
mod figures;
mod frame_folder;
mod generate;
mod infer;
mod inspect;
mod pull;
mod registry;
mod run;
mod setup;
mod signals;
mod unpack;
mod verify;
mod waiting;
mod warm;

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use tileforge_runtime::Result;
use tileforge_session::Environment;
use tileforge_session::onnxruntime::{self, Search};
use tileforge_terminal::{self as terminal, Exit};

use chosen::Named;
use failure::CommandResult;

/// Runs image engines: engines to pixels.
#[derive(Parser)]
#[command(name = "runtime", version, after_help = Exit::help(&EXITS), arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// The ONNX Runtime library, or the folder that holds it.
    ///
    /// Without it: the environment variable ORT_DYLIB_PATH, then beside this executable, then ../lib/tileforge (where
    /// releases have it), then ../lib, then .onnxruntime/lib of the source tree that it was built in (where `make
    /// setup` puts it).
    #[arg(long, global = true, value_name = "PATH", help_heading = "Libraries")]
    ort_lib: Option<PathBuf>,
    #[command(flatten)]
    verbosity: terminal::Verbosity,
}

/// How this program ends.
const EXITS: [Exit; 6] = [Exit::Done, Exit::Failed, Exit::Usage, Exit::DoesNotFit, Exit::Gate, Exit::Stopped];

#[derive(Subcommand)]
enum Command {
    Infer(Box<infer::Arguments>),
    Generate(Box<generate::Arguments>),
    Encode(coding::EncodeArguments),
    Decode(coding::DecodeArguments),
    Roundtrip(coding::RoundtripArguments),
    Run(run::Arguments),
    Bench(bench::Arguments),
    Evaluate(evaluate::Arguments),
    Compare(compare::Arguments),
    Inspect(inspect::Arguments),
    Verify(verify::Arguments),
    Warm(warm::Arguments),
    Unpack(unpack::Arguments),
    Pull(pull::Arguments),
    Doctor(doctor::Arguments),
    Setup(setup::Arguments),
    Completions(Completions),
    /// Print all manual pages as one JSON object, from file names to texts; releases are made with it.
    #[command(hide = true)]
    Manual,
}

/// Print a completion script for a shell.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  runtime completions bash > ~/.local/share/bash-completion/completions/runtime")]
struct Completions {
    /// The shell.
    shell: terminal::Shell,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    terminal::start_log(cli.verbosity);
    terminal::explain_bus_errors();
    terminal::stop_on_signals();
    terminal::end(run(cli))
}

impl Command {
    /// The engines that the arguments name; `None` for commands without any.
    fn engines(&mut self) -> Option<Named<'_>> {
        Some(match self {
            Self::Infer(arguments) => arguments.engine.named(),
            Self::Generate(arguments) => arguments.named(),
            Self::Encode(arguments) => arguments.engine.named(),
            Self::Decode(arguments) => arguments.engine.named(),
            Self::Roundtrip(arguments) => arguments.named(),
            Self::Run(arguments) => arguments.engine.named(),
            Self::Bench(arguments) => arguments.named(),
            Self::Evaluate(arguments) => arguments.engine.named(),
            Self::Inspect(arguments) => arguments.engine.named(),
            Self::Verify(arguments) => arguments.engine.named(),
            Self::Warm(arguments) => arguments.engine.named(),
            Self::Doctor(arguments) => arguments.named(),
            Self::Compare(_)
            | Self::Unpack(_)
            | Self::Pull(_)
            | Self::Setup(_)
            | Self::Completions(_)
            | Self::Manual => return None,
        })
    }
}

fn run(mut cli: Cli) -> CommandResult {
    let ort_lib = cli.ort_lib;
    // Commands that run nothing need no library.
    let environment = || environment(ort_lib.clone());
    if let Command::Infer(arguments) = &mut cli.command {
        arguments.engine.or_find(|| default_engine::default_engine(environment))?;
    }
    if let Some(named) = cli.command.engines() {
        registry::bring(named, environment)?;
    }
    match &cli.command {
        Command::Infer(arguments) => infer::run(arguments, environment),
        Command::Generate(arguments) => generate::run(arguments, environment),
        Command::Encode(arguments) => coding::encode(arguments, environment),
        Command::Decode(arguments) => coding::decode(arguments, environment),
        Command::Roundtrip(arguments) => coding::roundtrip(arguments, environment),
        Command::Run(arguments) => run::run(arguments, environment),
        Command::Bench(arguments) => bench::run(arguments, environment),
        Command::Evaluate(arguments) => evaluate::run(arguments, environment),
        Command::Compare(arguments) => compare::run(arguments),
        Command::Inspect(arguments) => inspect::run(arguments),
        Command::Verify(arguments) => verify::run(arguments, environment),
        Command::Warm(arguments) => warm::run(arguments, environment),
        Command::Unpack(arguments) => unpack::run(arguments),
        Command::Pull(arguments) => pull::run(arguments, environment),
        Command::Doctor(arguments) => doctor::run(arguments, environment),
        Command::Setup(arguments) => setup::run(arguments),
        Command::Completions(arguments) => Ok(terminal::print_completions(arguments.shell, Cli::command())?),
        Command::Manual => Ok(terminal::print_manual(Cli::command())?),
    }
}

/// The environment in which this process runs engines.
fn environment(ort_lib: Option<PathBuf>) -> Result<Environment> {
    let variable = env::var_os("ORT_DYLIB_PATH").map(PathBuf::from);
    let search = Search::first_named([("--ort-lib", ort_lib), ("ORT_DYLIB_PATH", variable)]);
    Ok(Environment::new(onnxruntime::load(&search)?).with_cache(terminal::cache_folder()).returning_large_blocks())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    /// Checks the examples of every help and of the documents, because users paste them.
    #[test]
    fn every_example_parses() {
        terminal::testing::check_examples::<Cli>();
    }

    #[test]
    fn values_are_asked_for_in_plain_words() {
        terminal::testing::check_values::<Cli>();
    }

    #[test]
    fn help_says_each_default_once() {
        let mut command = Cli::command();
        let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
        for name in names {
            let sub = command.find_subcommand_mut(&name).unwrap();
            for argument in sub.get_arguments() {
                let help = argument.get_long_help().or_else(|| argument.get_help()).map(ToString::to_string);
                let told = help.is_some_and(|help| help.contains("[default"));
                assert!(!told || argument.get_default_values().is_empty(), "{name} {}", argument.get_id());
            }
        }
    }
}
