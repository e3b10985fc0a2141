//! The command line: results on standard output, messages on standard error.

mod advice;
mod bundle;
mod fetch;
mod lint;
mod models;
mod profiles;
mod talk;

use clap::{CommandFactory, Parser, Subcommand};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use talk::Shown;
use tileforge_contract::{Precision, Task, Upscale};
use tileforge_engine::manifest::{Gate, Manifest};
use tileforge_engine::share::share_files;
use tileforge_engine_builder::{
    Calibration, Error, ModelFile, PrecisionOptions, Profile, RangeMethod, Sensitivity, Source, SourceOptions, build,
    convert_graph, figure, portable,
};
use tileforge_session::Environment;
use tileforge_session::onnxruntime::{self, Search};
use tileforge_terminal::{
    self as terminal, Exit, PrintError, Shell, cache_folder, chain, chain_with, explain_bus_errors, print,
    print_completions, print_json, report, start_log,
};

const AFTER_HELP: &str = "\
Examples:
  engine-builder build models/compact-x4.yaml --profile cpu -o engines/cpu/compact-x4
  engine-builder build models/compact-x4.yaml --profile cpu --precision int8 --calibration photos/ \\
    -o engines/cpu/compact-x4-int8
  engine-builder build x4plus.onnx --profile rtx4090 -o engines/rtx4090/x4plus --json
  engine-builder build vae_decoder.onnx --profile rtx4090 --precision fp16 -o engines/rtx4090/vae-decoder
  engine-builder profiles
  engine-builder fetch realesrgan-x4plus";

#[derive(Parser)]
#[command(name = "engine-builder", version, about = "Builds engines of image models for one kind of machine")]
#[command(after_help = [AFTER_HELP, "\n\n", Exit::HELP].concat())]
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
    /// Write an exported graph in FP16 or BF16, or with INT8 weights. This makes no engine: nothing is calibrated, no
    /// gate is checked.
    #[command(after_help = CONVERT_HELP)]
    Convert(ConvertArguments),
    Pack(bundle::PackArguments),
    Unpack(bundle::UnpackArguments),
    Keygen(bundle::KeygenArguments),
    Sign(bundle::SignArguments),
    Verify(bundle::VerifyArguments),
    Diff(bundle::DiffArguments),
    Lint(lint::Arguments),
    Models(models::Arguments),
    Fetch(fetch::Arguments),
    Profiles(profiles::Arguments),
    /// Print the completions of a shell.
    #[command(after_help = "Example:\n  engine-builder completions bash > /etc/bash_completion.d/engine-builder")]
    Completions {
        /// The shell.
        shell: Shell,
    },
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

#[derive(clap::Args)]
struct BuildArguments {
    /// A checkpoint (.safetensors, .pth, .pt, .ckpt, .bin, the .index.json of a sharded one, or a folder with any of
    /// them and its config.json), an exported graph (.onnx) or a model file (.yaml)
    model: PathBuf,
    /// The graph to build, where there are several: vae_encoder or vae_decoder of a checkpoint, or one that the model
    /// file names
    #[arg(long, value_name = "NAME")]
    component: Option<String>,
    /// A hyperparameter that the checkpoint does not state; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = assignment)]
    set: Vec<(String, String)>,
    /// A name that `engine-builder profiles` lists, or the path of a .yaml file
    #[arg(long)]
    profile: String,
    /// Another precision than the profile's: fp32, fp16, bf16, int8 or fp8
    #[arg(long, value_name = "PRECISION")]
    precision: Option<Precision>,
    /// A folder to measure activations on: pictures like those that the engine will get, or .safetensors files with the
    /// inputs of a network that takes tensors. Without it: the built-in test image, or random tensors
    #[arg(long, value_name = "DIR")]
    calibration: Option<PathBuf>,
    /// How many tiles to draw from the pictures (more, to fill the last batch), tensor files to read, or random tensors
    /// to make
    /// (the model file's number, else 32)
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=4096))]
    calibration_tiles: Option<u32>,
    /// How INT8 chooses the range of an activation: minmax, percentile, entropy or mse (the model file's method, else
    /// mse)
    #[arg(long, value_name = "METHOD")]
    range: Option<RangeMethod>,
    /// INT8 and FP8: quantise the first and the last layer as well
    #[arg(long)]
    all_layers: bool,
    /// Try every layer alone in the engine's precision, and print what each costs, the most expensive first
    #[arg(long)]
    sensitivity: bool,
    /// Where the engine directory goes
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// Fail with exit code 3 if the engine cannot be compiled here, instead of building a portable one
    #[arg(long)]
    require_compiled: bool,
    /// Store files that engines below this folder also have only once, as hard links
    #[arg(long, value_name = "DIR")]
    share: Option<PathBuf>,
    /// Print one JSON object: the manifest with the measured `speed`, and under `sensitivity` what each layer costs
    #[arg(long)]
    json: bool,
}

/// Why a command failed.
#[derive(Debug)]
enum Failure {
    /// The arguments do not go together.
    Usage(String),
    /// The library's error.
    Builder(Error),
    /// A result cannot be printed.
    Print(PrintError),
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
            Self::Usage(_)
            | Self::Builder(
                Error::NoEffect { .. } | Error::Precision { .. } | Error::ModelGraph { .. } | Error::Component { .. },
            ) => Exit::Usage,
            Self::Builder(Error::Gate(_) | Error::Lint(_)) => Exit::Gate,
            Self::Builder(Error::Portable { .. }) => Exit::DoesNotFit,
            Self::Builder(Error::Session(error)) if error.does_not_fit() => Exit::DoesNotFit,
            Self::Builder(_) | Self::Print(_) => Exit::Failed,
        }
    }

    fn text(&self) -> Option<String> {
        Some(match self {
            Self::Usage(reason) => reason.clone(),
            Self::Builder(error) => chain_with(error, advice::on(error).as_deref()),
            Self::Print(error) => chain(error),
        })
    }
}

/// Prints a result for people.
fn result(text: &str) -> CommandResult {
    print(text).map_err(Failure::Print)
}

/// Prints a result for machines.
fn result_json(value: &impl serde::Serialize) -> CommandResult {
    print_json(value).map_err(Failure::Print)
}

pub(crate) fn run() -> ExitCode {
    let arguments = Arguments::parse();
    start_log();
    explain_bus_errors();
    terminal::end(match &arguments.command {
        Command::Build(build) => run_build(build, arguments.ort_lib.as_deref()),
        Command::Convert(convert) => run_convert(convert),
        Command::Pack(arguments) => bundle::pack(arguments),
        Command::Unpack(arguments) => bundle::unpack(arguments),
        Command::Keygen(arguments) => bundle::keygen(arguments),
        Command::Sign(arguments) => bundle::sign(arguments),
        Command::Verify(arguments) => bundle::verify(arguments),
        Command::Diff(arguments) => bundle::diff(arguments),
        Command::Lint(arguments) => lint::run(arguments),
        Command::Models(arguments) => models::run(arguments),
        Command::Fetch(arguments) => fetch::run(arguments),
        Command::Profiles(arguments) => profiles::run(arguments),
        Command::Completions { shell } => print_completions(*shell, Arguments::command()).map_err(Failure::Print),
    })
}

/// An environment with the library that the user names, or the nearest one, and with the user's cache.
fn environment(ort_lib: Option<&Path>) -> Result<Environment, Failure> {
    let variable = std::env::var_os("ORT_DYLIB_PATH").filter(|value| !value.is_empty());
    let search = match (ort_lib, variable) {
        (Some(place), _) => Search::Named { place: place.to_owned(), by: "--ort-lib" },
        (None, Some(place)) => Search::Named { place: place.into(), by: "ORT_DYLIB_PATH" },
        (None, None) => Search::AroundExecutable,
    };
    let environment = Environment::new(onnxruntime::load(&search)?);
    Ok(match cache_folder() {
        Some(cache) => environment.with_cache(cache),
        None => environment,
    })
}

fn run_build(arguments: &BuildArguments, ort_lib: Option<&Path>) -> CommandResult {
    let environment = environment(ort_lib)?;
    let mut profile = Profile::read(&arguments.profile)?;
    let model = is_model_file(&arguments.model).then(|| ModelFile::read(&arguments.model)).transpose()?;
    let graph = model.as_ref().map(|model| model.graph(arguments.component.as_deref())).transpose()?;
    if let Some(precision) = arguments.precision {
        profile.set_precision(precision)?;
    } else if let Some(precision) = graph.and_then(|graph| graph.precision_on(profile.provider)) {
        match profile.set_precision(precision) {
            // What suits the model best is not what every machine can do.
            Err(Error::Precision { reason, .. }) => {
                report(&format!(
                    "{}, as the profile says, instead of the model's {precision}: {reason}",
                    profile.precision
                ));
            }
            done => done?,
        }
    }
    if arguments.require_compiled {
        portable::require_compiled(&environment, &profile)?;
    }
    let hyperparameters = arguments.set.iter().cloned().collect();
    let weights = models::weight_folders();
    let (source, calibration) = match (&model, graph) {
        (Some(model), Some(graph)) => {
            let options = SourceOptions { task: None, hyperparameters, weights };
            (Source::of_model(model, graph, &options)?, graph.calibration.clone())
        }
        _ => {
            let task = arguments.component.as_deref().map(task).transpose()?;
            let options = SourceOptions { task, hyperparameters, weights };
            (Source::open(&arguments.model, &options)?, Calibration::default())
        }
    };
    let options = PrecisionOptions {
        calibration: arguments.calibration.clone(),
        calibration_tiles: arguments.calibration_tiles.or(calibration.tiles).unwrap_or(CALIBRATION_TILES) as usize,
        range: arguments.range.or(calibration.range).unwrap_or_default(),
        all_layers: arguments.all_layers,
        sensitivity: arguments.sensitivity,
    };
    let shown = Shown::default();
    let built = build(&environment, &shown, &source, &profile, &options, &arguments.output);
    shown.finish();
    let built = built?;
    let shared = arguments.share.as_deref().map(|folder| share_files(&built.directory, folder)).transpose()?;
    let manifest = &built.manifest;
    if arguments.json {
        return result_json(&Report { manifest, speed: &built.speed, sensitivity: &built.sensitivity });
    }
    let enlarges = Upscale::of(&manifest.contract).map_or(String::new(), |upscale| format!(" ×{}", upscale.scale));
    report(&format!("{}: {}{enlarges}, {}", source.name(), manifest.model.architecture, manifest.precision));
    for graph in &manifest.graphs {
        report(&format!("  {}{}", graph.file, if graph.optimised { ", optimised offline" } else { "" }));
    }
    if !manifest.islands.is_empty() {
        report(&format!("  not in {}: {}", manifest.precision, shortened(&manifest.islands)));
    }
    if let Some(calibration) = &manifest.calibration {
        let found = format!("{} tiles of {} pictures", calibration.tiles, calibration.pictures);
        report(&format!("  calibrated on {found} ({})", calibration.source));
    }
    for layer in &built.sensitivity {
        report(&format!("  {layer}"));
    }
    for gate in manifest.gates.iter().chain(&built.speed) {
        let (value, floor) = (figure(gate.value), figure(gate.floor));
        report(&format!("  gate {}: {} = {value} (at least {floor})", gate.graph, gate.name));
    }
    if let Some(reason) = &built.portable {
        report(&format!("  portable, not compiled for its GPU: {reason}"));
    }
    report(&format!("  {:.1} MB in {} files", built.bytes as f64 / 1e6, manifest.files.len()));
    if let Some(saved) = shared.filter(|saved| *saved > 0) {
        report(&format!("  {:.1} MB of it shared with other engines", saved as f64 / 1e6));
    }
    result(&built.directory.display().to_string())
}

/// Tiles that are measured unless somebody asks for another number.
const CALIBRATION_TILES: u32 = 32;

fn is_model_file(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
}

/// The task of a checkpoint's graph.
fn task(name: &str) -> Result<Task, Failure> {
    name.parse().map_err(|reason| Error::Component { reason }.into())
}

/// What `build --json` prints: the manifest, speed and sensitivity.
#[derive(serde::Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    manifest: &'a Manifest,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    speed: &'a [Gate],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    sensitivity: &'a [Sensitivity],
}

fn run_convert(arguments: &ConvertArguments) -> CommandResult {
    let islands = arguments.island.iter().cloned().collect();
    convert_graph(&arguments.graph, arguments.precision, &islands, &arguments.output)?;
    result(&arguments.output.display().to_string())
}

/// The first few names, and how many more there are.
fn shortened(names: &[String]) -> String {
    const SHOWN: usize = 4;
    let first = names.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN {
        format!("{first} and {} more (`islands` of the manifest)", names.len() - SHOWN)
    } else {
        first
    }
}

/// `NAME=VALUE`.
fn assignment(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
    pair.map(|(name, value)| (name.to_owned(), value.to_owned())).ok_or_else(|| "expected NAME=VALUE".into())
}
