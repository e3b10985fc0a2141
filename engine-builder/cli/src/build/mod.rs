//! `engine-builder build`: engines of a model for one or several profiles.

mod compilation;
mod foreign;
mod outcome;
pub(super) mod rebuild;

use compilation::compilation;
use foreign::ForeignArguments;
use outcome::Printing;

use super::failure::{CommandResult, Failure};
use super::libraries::Libraries;
use super::talk::{Noted, Shown};
use super::{models, named};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tileforge_contract::Precision;
use tileforge_engine_builder::request::{
    BuildRequest, BuiltEngine, CalibrationRequest, PipelineRequest, PrecisionChoice, PreparedBuild, Target,
};
use tileforge_engine_builder::{CalibrationBudget, Error, Plans, Progress, RangeMethod, map_parallel, profile};
use tileforge_exporter::lora::Lora;
use tileforge_image::Size;
use tileforge_session::Environment;
use tileforge_terminal::{Failure as _, report, report_error, whole};

const EXAMPLES: &str = "\
Examples:
  engine-builder build models/compact-x4.yaml --profile cpu -o engines/cpu/compact-x4
  engine-builder build models/sdxl-vae.yaml --profile cpu -o engines/cpu/sdxl-vae
  engine-builder build downloaded.onnx --task upscale --profile cpu -o engines/cpu/downloaded
  engine-builder build old.onnx --task upscale --input-range 0:255 --channel-order bgr --profile rtx4090 -o engines/old
  engine-builder build stable-diffusion-v1-5/ --profile cpu --size 512x512 -o engines/cpu/sd15
  engine-builder build x4plus.safetensors --profile openvino --precision auto -o engines/openvino/x4plus
  engine-builder build x4plus.safetensors --profile rtx4090 --require-compiled -o engines/rtx4090/x4plus
  engine-builder build x4plus.safetensors --profile rtx4090,rtx5090 --jobs 2 -o 'engines/{profile}/x4plus'";

/// Build an engine directory, or one for each of several profiles.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// The name of a model that `engine-builder models` lists, or a path: a checkpoint (.safetensors, .pth, .pt, .ckpt,
    /// .bin, the .index.json of a sharded one, or a folder with any of them and its config.json), a diffusion pipeline
    /// (a folder with model_index.json, or one file with --config), a graph (.onnx: exported, or of another program with
    /// --task or --contract) or a model file (.yaml)
    model: PathBuf,
    /// The one graph to build, where there are several: vae_encoder or vae_decoder of a checkpoint, or one that the
    /// model file names [default: all, each of which is a part of the engine]
    #[arg(long, help_heading = "Network", value_name = "NAME")]
    component: Option<String>,
    /// Which chunk of a video the graph is for: first or next; short for --set chunk=NAME [default: both, which are
    /// parts of the engine; with --component first]
    #[arg(long, help_heading = "Network", value_name = "CHUNK")]
    chunk: Option<String>,
    /// Sizes of the pictures in pixels, WIDTHxHEIGHT, several with commas: one graph for each, in the place of the
    /// sizes of the model file or of the profile. A picture of a latent network is what its autoencoder makes of it
    #[arg(long, help_heading = "Network", value_name = "SIZE", value_delimiter = ',')]
    size: Vec<Size>,
    /// Frames of a video in one run, with --size [default: as few as the network takes]
    #[arg(long, help_heading = "Network", value_name = "COUNT", requires = "size", value_parser = whole::<u16>(1..))]
    frames: Option<u16>,
    /// A hyperparameter that the checkpoint does not state; may be repeated
    #[arg(long, help_heading = "Network", value_name = "NAME=VALUE", value_parser = assignment)]
    set: Vec<(String, String)>,
    #[command(flatten)]
    diffusion: DiffusionArguments,
    #[command(flatten)]
    foreign: ForeignArguments,
    /// Names that `engine-builder profiles` lists, or paths of .yaml files; several with commas, or `all` [default: that
    /// of this machine, as `engine-builder profiles --here` says]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    profile: Vec<String>,
    /// Another precision than the profile's: fp32, fp16, bf16, int8 or fp8; for a processor also fp16-weights or
    /// int8-weights, which store weights in fewer bits and compute in fp32, or auto, the one that is fastest on this
    /// machine, of those that pass their gates. With int8 for CPUs, a diffusion pipeline's text encoders and the encoder
    /// of its autoencoder stay in fp32
    #[arg(long, help_heading = "Precision", value_name = "PRECISION", value_parser = precision)]
    precision: Option<PrecisionChoice>,
    /// A folder to measure activations on: pictures like those that the engine will get, or .safetensors files with the
    /// inputs of a network that takes tensors. For an engine of several parts, a folder that has one for each part, by
    /// its name. Without it: built-in pictures, or random tensors
    #[arg(long, help_heading = "Precision", value_name = "DIR")]
    calibration: Option<PathBuf>,
    /// How many tiles to draw from the pictures (more, to fill the last batch), tensor files to read, or random tensors
    /// to make (the model file's number, else 32)
    #[arg(long, help_heading = "Precision", value_name = "COUNT", value_parser = whole::<u32>(1..=4096))]
    calibration_tiles: Option<u32>,
    /// How many minutes calibration and gates of each network may take. A minute stands for 3·10¹² operations, what two
    /// slow cores compute in it, so the engine does not depend on the machine. Larger networks are measured on fewer
    /// samples, and their larger graphs are not run for the gates; the manifest says what was left out (`left_out`)
    #[arg(
        long, help_heading = "Precision",
        value_name = "MINUTES",
        default_value_t = CalibrationBudget::default().minutes,
        value_parser = whole::<u32>(1..=100_000)
    )]
    calibration_budget: u32,
    /// How INT8 chooses the range of an activation: minmax, percentile, entropy or mse (the model file's method, else
    /// mse)
    #[arg(long, help_heading = "Precision", value_name = "METHOD")]
    range: Option<RangeMethod>,
    /// INT8 and FP8: quantise the first and the last layer as well
    #[arg(long, help_heading = "Precision")]
    all_layers: bool,
    /// Try every layer alone in the engine's precision, and print what each costs, the most expensive first
    #[arg(long, help_heading = "Precision")]
    sensitivity: bool,
    /// Where the engine directory goes; `{profile}` in it stands for the profile's name, and several profiles need it
    /// [default: engines/{profile}/NAME, with the model's name, --component and --precision]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Fail with exit code 3 if the engine cannot be compiled here, instead of building a portable one. An engine of
    /// plans for RTX GPUs needs no GPU to be compiled, so without its plans it always fails, but for --portable
    #[arg(long)]
    require_compiled: bool,
    /// Build an engine for RTX GPUs without plans where NVIDIA's builder is missing: CUDA and the CPU run it
    #[arg(long, conflicts_with = "require_compiled")]
    portable: bool,
    /// How many engines to build at the same time, or of one engine, plans for RTX GPUs. NVIDIA's builder takes about
    /// three times the memory of the weights for each
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = whole::<u16>(1..=64))]
    jobs: u16,
    /// Store files that engines below this folder also have only once, as hard links
    #[arg(long, value_name = "DIR")]
    share: Option<PathBuf>,
    /// Print one JSON object for each engine: the manifest with the measured `speed`, under `plans` what each plan
    /// cost, and under `sensitivity` what each layer costs. An engine of several parts has this for each of its `parts`
    #[arg(long)]
    json: bool,
}

impl Arguments {
    /// The library's request for these arguments.
    fn request(&self) -> Result<BuildRequest, Failure> {
        let DiffusionArguments { batch, tokens, variant, lora, config } = self.diffusion.clone();
        let chunk = self.chunk.iter().map(|chunk| ("chunk".to_owned(), chunk.clone()));
        Ok(BuildRequest {
            model: self.model.clone(),
            component: self.component.clone(),
            hyperparameters: self.set.iter().cloned().chain(chunk).collect::<BTreeMap<_, _>>(),
            sizes: self.size.clone(),
            frames: self.frames,
            pipeline: PipelineRequest { batch, tokens, variant, adaptations: lora, config },
            foreign: self.foreign.said()?,
            profiles: match self.profile.as_slice() {
                [name] if name == "all" => profile::names(),
                names => names.to_vec(),
            },
            precision: self.precision.unwrap_or_default(),
            calibration: CalibrationRequest {
                folder: self.calibration.clone(),
                tiles: self.calibration_tiles,
                budget: CalibrationBudget { minutes: self.calibration_budget },
                range: self.range,
                all_layers: self.all_layers,
                sensitivity: self.sensitivity,
            },
            compilation: compilation(self.require_compiled, self.portable),
            weights: models::weight_folders(),
        })
    }

    fn printing(&self) -> Printing<'_> {
        Printing { share: self.share.as_deref(), json: self.json }
    }

    /// The default of `--output`: programs find engines there by name.
    fn default_output(&self) -> Result<PathBuf, Failure> {
        let whole = self.model.canonicalize().map_err(|source| Error::File {
            path: self.model.clone(),
            action: "find",
            source,
        })?;
        let name = if whole.is_dir() { whole.file_name() } else { whole.file_stem() };
        let name =
            name.and_then(|name| name.to_str()).map(|name| name.strip_suffix(".safetensors.index").unwrap_or(name));
        let Some(name) = name.filter(|name| tileforge_files::is_plain(name) && !name.starts_with('.')) else {
            let problem = format!("{}: it has no name for its engine; give one with --output", self.model.display());
            return Err(Failure::Usage(problem));
        };
        let component = self.component.as_ref().map_or(String::new(), |component| format!("-{component}"));
        let precision = match self.precision {
            Some(PrecisionChoice::Only(precision)) => format!("-{precision}"),
            _ => String::new(),
        };
        Ok(Path::new(ENGINES).join(PROFILE).join(format!("{name}{component}{precision}")))
    }
}

/// What is asked of the engine of a diffusion pipeline.
#[derive(Clone, clap::Args)]
#[command(next_help_heading = "Pipelines")]
struct DiffusionArguments {
    /// Pictures that are made together, in one run of the network, and texts in one run of a text encoder
    #[arg(long, value_name = "COUNT", value_parser = whole::<u16>(1..=32))]
    batch: Option<u16>,
    /// Tokens of a text, several with commas: 77,154 also takes texts in two pieces [default: what the text
    /// encoder takes]
    #[arg(long, value_name = "COUNT", value_delimiter = ',', value_parser = whole::<u16>(1..=4096))]
    tokens: Vec<u16>,
    /// The variant of the weights in a folder, such as fp16
    #[arg(long, value_name = "NAME")]
    variant: Option<String>,
    /// A file of low-rank adaptations to merge into the weights; may be repeated
    #[arg(long, value_name = "FILE[:SCALE]")]
    lora: Vec<Lora>,
    /// The folder with the configurations, tokenizers and scheduler of a pipeline whose weights are in one file
    #[arg(long, value_name = "DIR")]
    config: Option<PathBuf>,
}

/// The placeholder of the profile's name in the engine's path.
const PROFILE: &str = "{profile}";

/// The folder, below the current one, where programs look for engines by name.
const ENGINES: &str = "engines";

pub(super) fn run(mut arguments: Arguments, libraries: &Libraries) -> CommandResult {
    arguments.model = named::model(&arguments.model)?;
    if arguments.profile.is_empty() {
        let here = profile::here()?;
        report(&format!("profile {}: {}", here.name, here.reason));
        arguments.profile.push(here.name);
    }
    let output = arguments.output.clone().map_or_else(|| arguments.default_output(), Ok)?;
    let request = arguments.request()?;
    if request.profiles.len() > 1 && !output.to_string_lossy().contains(PROFILE) {
        let problem = "several profiles need `{profile}` in --output, as in 'engines/{profile}/compact-x4'";
        return Err(Failure::Usage(problem.into()));
    }
    let environment = libraries.environment()?;
    let plans = Plans { program: Some(libraries.plan_program()?), jobs: usize::from(arguments.jobs) };
    let shown = Shown::default();
    let prepared = PreparedBuild::new(request, &environment, &plans, &shown)?;
    let work = Work { prepared, environment, output };
    let printing = arguments.printing();
    if let [target] = work.prepared.targets() {
        let built = work.build(target, &plans, &shown);
        shown.finish();
        return printing.tell(work.prepared.name(), &built?);
    }
    work.build_all(&plans, &printing)
}

/// The values that all engines of one command share.
struct Work {
    prepared: PreparedBuild,
    environment: Environment,
    /// The path of the engines, with [`PROFILE`] in it.
    output: PathBuf,
}

impl Work {
    /// Builds the engine for one profile.
    fn build(&self, target: &Target, plans: &Plans, progress: &dyn Progress) -> Result<BuiltEngine, Error> {
        // A path without the placeholder need not be UTF-8.
        let directory = match self.output.to_str() {
            Some(output) => PathBuf::from(output.replace(PROFILE, target.profile())),
            None => self.output.clone(),
        };
        self.prepared.build(target, &self.environment, plans, progress, &directory)
    }

    /// Builds the engines for several profiles, some of them at the same time. A failed profile does not stop the
    /// others.
    fn build_all(&self, plans: &Plans, printing: &Printing<'_>) -> CommandResult {
        let targets = self.prepared.targets();
        let shown = Shown::default();
        shown.begin("building engines", targets.len());
        let one = Plans { jobs: 1, ..plans.clone() };
        let made = map_parallel(targets, plans.jobs, |target| {
            let built = self.build(target, &one, &Noted);
            shown.step();
            built
        });
        shown.finish();
        let mut exits = Vec::new();
        for (target, built) in targets.iter().zip(made) {
            match built {
                Ok(built) => printing.tell(self.prepared.name(), &built)?,
                Err(error) => {
                    let failure = Failure::from(error);
                    let why = failure.text().unwrap_or_default();
                    report_error(&format!("{}: not built: {why}", target.profile()));
                    exits.push(failure.exit());
                }
            }
        }
        match exits.first() {
            None => Ok(()),
            Some(first) => Err(Failure::Partly { failed: exits.len(), of: targets.len(), exit: *first }),
        }
    }
}

/// A precision, or `auto`.
fn precision(text: &str) -> Result<PrecisionChoice, String> {
    if text == "auto" {
        return Ok(PrecisionChoice::Fastest);
    }
    let precision: Precision = text.parse().map_err(|error| format!("{error}, or auto"))?;
    Ok(PrecisionChoice::Only(precision))
}

/// `NAME=VALUE`.
fn assignment(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
    pair.map(|(name, value)| (name.to_owned(), value.to_owned())).ok_or_else(|| "expected NAME=VALUE".into())
}
