//! The program `exporter`: checkpoints to ONNX graphs. Results go to standard output, messages to standard error.

mod advice;
mod export;
mod inspect;

use clap::{CommandFactory, Parser, Subcommand};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use tileforge_exporter::pipeline::weights_in;
use tileforge_exporter::{Checkpoint, Error, Task};
use tileforge_terminal::{
    self as terminal, Exit, PrintError, Shell, Verbosity, chain, chain_with, explain_bus_errors, is_verbose, print,
    print_completions, print_json, print_manual, start_log,
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

/// What the checkpoint does not determine.
#[derive(clap::Args)]
struct Hints {
    /// Which graph to make, where a checkpoint or a pipeline gives several; may be repeated
    #[arg(long, value_name = "NAME")]
    component: Vec<String>,
    /// Which weights to take from a folder that has several sets of them, such as fp16
    #[arg(long, value_name = "NAME")]
    variant: Option<String>,
    /// Where a depth network's input is normalised by mean and deviation: before the graph, which is the default, or in
    /// it
    #[arg(long, value_name = "PLACE", value_parser = ["outside", "in-graph"])]
    preprocess: Option<String>,
    /// Which chunk of a video the graph is for: the first one, or any other; short for --set chunk=NAME
    #[arg(long, value_name = "NAME", value_parser = ["first", "next"])]
    chunk: Option<String>,
    /// A hyperparameter that the checkpoint does not determine; may be repeated
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = pair)]
    set: Vec<(String, String)>,
}

impl Hints {
    /// The checkpoint at `path`, which may be the folder of a component.
    fn open(&self, path: &Path) -> Result<Checkpoint, Failure> {
        Ok(if path.is_dir() {
            Checkpoint::open(weights_in(path, self.variant.as_deref())?)?
        } else {
            Checkpoint::open(path)?
        })
    }

    /// The task of the graph to make of one checkpoint, if it is given.
    fn task(&self) -> Result<Option<Task>, Failure> {
        match self.component.as_slice() {
            [] => Ok(None),
            [one] => one.parse().map(Some).map_err(|reason| Failure::Usage(format!("--component: {reason}"))),
            _ => Err(Failure::Usage("one checkpoint becomes one graph; give --component once".into())),
        }
    }

    fn map(&self) -> BTreeMap<String, String> {
        let preprocess = self.preprocess.iter().map(|place| ("preprocess".to_owned(), place.clone()));
        let chunk = self.chunk.iter().map(|chunk| ("chunk".to_owned(), chunk.clone()));
        self.set.iter().cloned().chain(preprocess).chain(chunk).collect()
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(name, value)| !name.is_empty() && !value.is_empty());
    pair.map(|(name, value)| (name.into(), value.into())).ok_or_else(|| "expected NAME=VALUE".into())
}

/// Why a command failed.
#[derive(Debug)]
enum Failure {
    /// The arguments do not go together.
    Usage(String),
    /// The library's error.
    Export(Error),
    /// Results cannot be printed.
    Print(PrintError),
}

type CommandResult = Result<(), Failure>;

impl<E: Into<Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Export(error.into())
    }
}

impl terminal::Failure for Failure {
    fn exit(&self) -> Exit {
        match self {
            Self::Usage(_)
            | Self::Export(
                Error::UnknownHyperparameter { .. }
                | Error::SeveralGraphs { .. }
                | Error::NoSuchComponent { .. }
                | Error::OneGraphPerFile { .. }
                | Error::ShapeText { .. }
                | Error::TwoShapes { .. }
                | Error::Shape { .. }
                | Error::NeedsFixedShape { .. }
                | Error::ImageTooSmall { .. }
                | Error::NoSuchInput { .. },
            ) => Exit::Usage,
            Self::Export(_) | Self::Print(_) => Exit::Failed,
        }
    }

    fn text(&self) -> Option<String> {
        Some(match self {
            Self::Usage(reason) => reason.clone(),
            Self::Export(error) => {
                let text = chain_with(error, advice::on(error).as_deref());
                let details = error.details().filter(|_| is_verbose());
                [Some(text), details].into_iter().flatten().collect::<Vec<_>>().join("\n")
            }
            Self::Print(error) => chain(error),
        })
    }
}

/// Prints a result.
fn result(text: &str) -> CommandResult {
    print(text).map_err(Failure::Print)
}

/// Prints a result for machines.
fn result_json(value: &impl serde::Serialize) -> CommandResult {
    print_json(value).map_err(Failure::Print)
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
