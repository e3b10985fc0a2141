//! The command line: results on stdout, talk on stderr.

mod bundle;
mod lint;
mod profiles;

use clap::{CommandFactory, Parser, Subcommand};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use tileforge_contract::Precision;
use tileforge_engine::manifest::{Gate, Manifest};
use tileforge_engine_builder::bundle::share_files;
use tileforge_engine_builder::{
    Error, PrecisionOptions, Profile, RangeMethod, Result, Sensitivity, Source, build, convert_graph, figure, portable,
};

const AFTER_HELP: &str = "\
Exit codes: 0 done, 1 failed, 2 wrong usage, 3 the engine does not fit this box, 4 a gate failed.

Examples:
  engine-builder build models/compact-x4.yaml --profile cpu -o engines/cpu/compact-x4
  engine-builder build models/compact-x4.yaml --profile cpu --precision int8 --calibration photos/ -o engines/cpu/compact-x4-int8
  engine-builder build x4plus.onnx --profile rtx4090 -o engines/rtx4090/x4plus --json
  engine-builder build vae_decoder.onnx --profile rtx4090 --precision fp16 -o engines/rtx4090/vae-decoder
  engine-builder profiles";

#[derive(Parser)]
#[command(name = "engine-builder", version, about = "Builds engines of image models for one kind of machine", after_help = AFTER_HELP)]
struct Arguments {
    /// The ONNX Runtime library, or the folder that holds it
    #[arg(long, value_name = "PATH", global = true)]
    ort_lib: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build an engine directory.
    #[command(
        after_help = "Example:\n  engine-builder build models/compact-x4.yaml --profile cpu -o engines/cpu/compact-x4"
    )]
    Build(BuildArguments),
    /// Write an exported graph in FP16 or BF16, or with INT8 weights, and nothing else: no engine, no calibration, no
    /// gate.
    #[command(after_help = CONVERT_HELP)]
    Convert(ConvertArguments),
    Pack(bundle::PackArguments),
    Unpack(bundle::UnpackArguments),
    Keygen(bundle::KeygenArguments),
    Sign(bundle::SignArguments),
    Verify(bundle::VerifyArguments),
    Diff(bundle::DiffArguments),
    Lint(lint::Arguments),
    Profiles(profiles::Arguments),
    /// Print the completions of a shell.
    #[command(after_help = "Example:\n  engine-builder completions bash > /etc/bash_completion.d/engine-builder")]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

const CONVERT_HELP: &str = "\
Example:
  engine-builder convert unet.onnx --precision fp16 -o unet-fp16.onnx
  engine-builder convert unet.onnx --precision int8 -o unet-int8-weights.onnx

For graphs that are too large to be measured here. Whether FP16 holds their activations is not looked at: name what it does not with --island.";

#[derive(clap::Args)]
struct ConvertArguments {
    /// An exported graph (.onnx)
    graph: PathBuf,
    /// fp16, bf16, or int8: weights of convolutions and matrix products in 8 bits, with one scale for each output
    /// channel, and activations in FP32
    #[arg(long, value_name = "PRECISION")]
    precision: Precision,
    /// A node that computes in FP32, or a layer whose weights stay as they are; can be given again
    #[arg(long, value_name = "NODE")]
    island: Vec<String>,
    /// Where the graph goes; weights that need no conversion stay in the file that they are in, under a second name
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

#[derive(clap::Args)]
struct BuildArguments {
    /// A checkpoint (.safetensors, .safetensors.index.json), an exported graph (.onnx) or a model file (.yaml)
    model: PathBuf,
    /// A name that `engine-builder profiles` lists, or the path of a .yaml file
    #[arg(long)]
    profile: String,
    /// Another arithmetic than the profile's: fp32, fp16, bf16, int8 or fp8
    #[arg(long, value_name = "PRECISION")]
    precision: Option<Precision>,
    /// A folder of pictures like those that the engine will see, to measure activations on, or of .safetensors files
    /// with the inputs of a network that takes tensors; otherwise the built-in test image, or random tensors
    #[arg(long, value_name = "DIR")]
    calibration: Option<PathBuf>,
    /// Tiles that are drawn from the pictures (a graph's batch is filled), files of tensors that are read, or random
    /// tensors that are made
    #[arg(long, value_name = "COUNT", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=4096))]
    calibration_tiles: u32,
    /// How INT8 chooses the range of an activation: minmax, percentile, entropy or mse
    #[arg(long, value_name = "METHOD", default_value_t)]
    range: RangeMethod,
    /// INT8 and FP8: quantise the first and the last layer as well
    #[arg(long)]
    all_layers: bool,
    /// Try every layer alone in the engine's precision, and print what each costs, the worst first
    #[arg(long)]
    sensitivity: bool,
    /// Where the engine directory goes
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// Fail with exit code 3 if the engine cannot be compiled here, instead of building a portable one
    #[arg(long)]
    require_compiled: bool,
    /// Store files that engines below this folder have too only once, as hard links
    #[arg(long, value_name = "DIR")]
    share: Option<PathBuf>,
    /// Print the manifest as one JSON object, and in it what was measured besides: `speed`, and as `sensitivity` what
    /// each layer costs
    #[arg(long)]
    json: bool,
}

pub(crate) fn run() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match &arguments.command {
        Command::Build(build) => run_build(build, arguments.ort_lib.as_deref()),
        Command::Convert(convert) => run_convert(convert),
        Command::Pack(arguments) => bundle::pack(arguments),
        Command::Unpack(arguments) => bundle::unpack(arguments),
        Command::Keygen(arguments) => bundle::keygen(arguments),
        Command::Sign(arguments) => bundle::sign(arguments),
        Command::Verify(arguments) => bundle::verify(arguments),
        Command::Diff(arguments) => bundle::diff(arguments),
        Command::Lint(arguments) => lint::run(arguments),
        Command::Profiles(arguments) => profiles::run(arguments),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Arguments::command(), "engine-builder", &mut script);
            print(&String::from_utf8_lossy(&script))
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let mut text = format!("error: {error}");
            let mut cause = std::error::Error::source(&error);
            // The causes that a message of ours repeats in full are not said twice.
            while let Some(inner) = cause {
                if !text.contains(&inner.to_string()) {
                    text = format!("{text}: {inner}");
                }
                cause = inner.source();
            }
            say(&text);
            ExitCode::from(match error {
                Error::Usage(_) => 2,
                Error::Gate(_) | Error::Lint(_) => 4,
                Error::Runtime(tileforge_runtime::Error::DoesNotFit(_)) => 3,
                _ => 1,
            })
        }
    }
}

fn run_build(arguments: &BuildArguments, ort_lib: Option<&std::path::Path>) -> Result<()> {
    tileforge_runtime::onnxruntime::load(ort_lib)?;
    let mut profile = Profile::read(&arguments.profile)?;
    if let Some(precision) = arguments.precision {
        profile.set_precision(precision)?;
    }
    if arguments.require_compiled {
        portable::require_compiled(&profile)?;
    }
    let source = Source::open(&arguments.model)?;
    let options = PrecisionOptions {
        calibration: arguments.calibration.clone(),
        calibration_tiles: arguments.calibration_tiles as usize,
        range: arguments.range,
        all_layers: arguments.all_layers,
        sensitivity: arguments.sensitivity,
    };
    let built = build(&source, &profile, &options, &arguments.output)?;
    let shared = arguments.share.as_deref().map(|folder| share_files(&built.directory, folder)).transpose()?;
    let manifest = &built.manifest;
    if arguments.json {
        let text = serde_json::to_string(&Report { manifest, speed: &built.speed, sensitivity: &built.sensitivity })
            .map_err(|e| Error::Input { path: arguments.output.clone(), reason: e.to_string() })?;
        return print(&(text + "\n"));
    }
    let enlarges = manifest.interface.as_ref().map_or(String::new(), |interface| format!(" ×{}", interface.scale));
    say(&format!("{}: {}{enlarges}, {}", source.name(), manifest.model.architecture, manifest.precision.name()));
    for graph in &manifest.graphs {
        say(&format!("  {}{}", graph.file, if graph.optimised { ", optimised offline" } else { "" }));
    }
    if !manifest.islands.is_empty() {
        say(&format!("  not in {}: {}", manifest.precision.name(), shortened(&manifest.islands)));
    }
    if let Some(calibration) = &manifest.calibration {
        say(&format!(
            "  calibrated on {} tiles of {} pictures ({})",
            calibration.tiles, calibration.pictures, calibration.source
        ));
    }
    for layer in &built.sensitivity {
        say(&format!("  {layer}"));
    }
    for gate in manifest.gates.iter().chain(&built.speed) {
        say(&format!(
            "  gate {}: {} = {} (at least {})",
            gate.graph,
            gate.name,
            figure(gate.value),
            figure(gate.floor)
        ));
    }
    if let Some(reason) = &built.portable {
        say(&format!("  portable, not compiled for its GPU: {reason}"));
    }
    say(&format!("  {:.1} MB in {} files", built.bytes as f64 / 1e6, manifest.files.len()));
    if let Some(saved) = shared.filter(|saved| *saved > 0) {
        say(&format!("  {:.1} MB of it shared with other engines", saved as f64 / 1e6));
    }
    print(&format!("{}\n", built.directory.display()))
}

/// What `build --json` prints: the manifest, and what was measured besides.
#[derive(serde::Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    manifest: &'a Manifest,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    speed: &'a [Gate],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    sensitivity: &'a [Sensitivity],
}

fn run_convert(arguments: &ConvertArguments) -> Result<()> {
    let islands = arguments.island.iter().cloned().collect();
    convert_graph(&arguments.graph, arguments.precision, &islands, &arguments.output)?;
    print(&format!("{}\n", arguments.output.display()))
}

/// The first of some names, and how many there are.
fn shortened(names: &[String]) -> String {
    const SHOWN: usize = 4;
    let first = names.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN {
        format!("{first} and {} more (`islands` of the manifest)", names.len() - SHOWN)
    } else {
        first
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
