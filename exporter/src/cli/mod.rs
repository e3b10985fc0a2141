//! The command line: results on stdout, talk on stderr.

mod export;
mod inspect;

use clap::{CommandFactory, Parser, Subcommand};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use tileforge_exporter::pipeline::weights_in;
use tileforge_exporter::{Checkpoint, Error, Result, Task};

const AFTER_HELP: &str = "\
Exit codes: 0 done, 1 failed, 2 wrong usage.

Examples:
  exporter inspect RealESRGAN_x4plus.safetensors
  exporter export RealESRGAN_x4plus.safetensors -o x4plus.onnx
  exporter export model.safetensors.index.json -o model.onnx --weights copy --shapes image:1x3x256x256
  exporter export stable-diffusion-xl-base-1.0 -o sdxl-onnx --variant fp16";

#[derive(Parser)]
#[command(name = "exporter", version, about = "Turns safetensors checkpoints of image models into ONNX graphs", after_help = AFTER_HELP)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show what a checkpoint is: architecture, task, scale, parameters, hyperparameters, element types.
    #[command(after_help = "Example:\n  exporter inspect models/compact-x4.safetensors --json")]
    Inspect(inspect::Arguments),
    /// Write the ONNX graph of a checkpoint, or those of a pipeline's folder.
    #[command(after_help = "Examples:\n  exporter export compact-x4.safetensors -o compact-x4.onnx\n  \
                            exporter export compact-x4.safetensors -o tile.onnx --shapes image:1x3x256x256 --weights inline\n  \
                            exporter export stable-diffusion-v1-5 -o sd15-onnx\n  \
                            exporter export stable-diffusion-v1-5/vae -o decoder.onnx --component vae_decoder")]
    Export(export::Arguments),
    /// Print the completions of a shell.
    #[command(after_help = "Example:\n  exporter completions bash > /etc/bash_completion.d/exporter")]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

/// What the checkpoint does not tell.
#[derive(clap::Args)]
struct Hints {
    /// Which graph, of a checkpoint that several are made of, or of a pipeline; may be repeated
    #[arg(long, value_name = "NAME")]
    component: Vec<String>,
    /// Which weights of a folder that has several sets of them, such as fp16
    #[arg(long, value_name = "NAME")]
    variant: Option<String>,
    /// Where an image of 0 to 1 gets the mean and the deviation that a depth network was trained with [default:
    /// outside]
    #[arg(long, value_name = "PLACE", value_parser = ["outside", "in-graph"])]
    preprocess: Option<String>,
    /// Which chunk of a video the graph is for, the first one or any other; the same as --set chunk=NAME
    #[arg(long, value_name = "NAME", value_parser = ["first", "next"])]
    chunk: Option<String>,
    /// A hyperparameter that the checkpoint does not tell, as NAME=VALUE; may be repeated
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = pair)]
    set: Vec<(String, String)>,
}

impl Hints {
    /// The checkpoint at `path`, which may be the folder of a component.
    fn open(&self, path: &Path) -> Result<Checkpoint> {
        if path.is_dir() {
            Checkpoint::open(weights_in(path, self.variant.as_deref())?)
        } else {
            Checkpoint::open(path)
        }
    }

    /// The task of the wanted graph of one checkpoint, if it is said.
    fn task(&self) -> Result<Option<Task>> {
        match self.component.as_slice() {
            [] => Ok(None),
            [one] => one.parse().map(Some).map_err(|reason| Error::Option(format!("--component: {reason}"))),
            _ => Err(Error::Option("--component: one checkpoint becomes one graph; say which one".into())),
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

pub(crate) fn run() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Inspect(arguments) => inspect::run(&arguments),
        Command::Export(arguments) => export::run(&arguments),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "exporter", &mut script);
            print(&String::from_utf8_lossy(&script))
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("error: {error}"));
            ExitCode::from(if matches!(error, Error::Option(_)) { 2 } else { 1 })
        }
    }
}

/// A result, on stdout. A reader that has gone away is no error: it has seen what it wanted.
fn print(text: &str) -> Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(source) if source.kind() != io::ErrorKind::BrokenPipe => {
            Err(Error::File { path: "stdout".into(), action: "write to", source })
        }
        _ => Ok(()),
    }
}

/// Talk, on stderr.
fn say(text: &str) {
    // There is nowhere left to report a failure to.
    let _ = writeln!(io::stderr().lock(), "{text}");
}
