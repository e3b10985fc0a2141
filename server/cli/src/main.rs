//! The program `tileforge-server`: arguments, signals and printing.

mod advice;
mod arguments;
mod configuration;
mod failure;
mod log;
mod running;
mod serve;
mod system;
mod traces;
mod work;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use tileforge_terminal::{self as terminal, Exit};

use failure::{CommandResult, Error};

/// Serves engines of image models over HTTP and gRPC, and works on jobs of a broker.
#[derive(Parser)]
#[command(name = "tileforge-server", version, after_help = Exit::help(&EXITS), arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    common: arguments::Common,
}

/// How this program ends.
const EXITS: [Exit; 3] = [Exit::Done, Exit::Failed, Exit::Usage];

#[derive(Subcommand)]
enum Command {
    Serve(Box<arguments::Serve>),
    Work(Box<arguments::Work>),
    Key(Key),
    Completions(Completions),
    /// Print all manual pages as one JSON object, from file names to texts; releases are made with it.
    #[command(hide = true)]
    Manual,
}

/// Make a key for clients.
///
/// Prints the key to standard output, and its line for the file of `serve --keys` to the file. The file holds no key.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  tileforge-server key alice --keys /etc/tileforge-server/keys")]
struct Key {
    /// What the key is called.
    name: String,
    /// The file of keys, to which the line is added.
    #[arg(long, value_name = "FILE")]
    keys: PathBuf,
}

/// Print a completion script for a shell.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  tileforge-server completions bash > ~/.local/share/bash-completion/completions/tileforge-server")]
struct Completions {
    /// The shell.
    shell: terminal::Shell,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    terminal::explain_bus_errors();
    terminal::end(run(cli))
}

fn run(cli: Cli) -> CommandResult {
    match cli.command {
        Command::Serve(arguments) => serve::run(&arguments, cli.common),
        Command::Work(arguments) => work::run(&arguments, cli.common),
        Command::Key(arguments) => key(&arguments),
        Command::Completions(arguments) => Ok(terminal::print_completions(arguments.shell, Cli::command())?),
        Command::Manual => Ok(terminal::print_manual(Cli::command())?),
    }
}

fn key(Key { name, keys }: &Key) -> CommandResult {
    let failed = |source| Error::Keys { path: keys.clone(), source };
    let before = match std::fs::read_to_string(keys) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        before => before.map_err(failed)?,
    };
    let [key, line] = tileforge_server::new_key(name, &before)
        .map_err(|problem| Error::Key(format!("{}: {problem}", keys.display())))?;
    let mut file = system::append_private(keys).map_err(failed)?;
    writeln!(file, "{line}").map_err(failed)?;
    Ok(terminal::print(&key)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    /// Tests the examples of every help and of the documents: users paste them.
    #[test]
    fn every_example_parses() {
        terminal::testing::check_examples::<Cli>();
    }

    #[test]
    fn values_are_asked_for_in_plain_words() {
        terminal::testing::check_values::<Cli>();
    }
}
