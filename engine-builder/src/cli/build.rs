//! `engine-builder build`: engines of a model for one or several profiles.

use super::talk::Shown;
use super::{CommandResult, Failure, advice, environment, models, result, result_json};
use std::path::{Path, PathBuf};
use tileforge_contract::{Precision, Task, Upscale};
use tileforge_engine::manifest::{Gate, Manifest};
use tileforge_engine::share::share_files;
use tileforge_engine_builder::portable::{self, NotCompiled};
use tileforge_engine_builder::rtx::{PlanProgram, PlanReport};
use tileforge_engine_builder::{
    Built, Calibration, Error, GraphFile, ModelFile, Plans, PrecisionOptions, Profile, Progress, RangeMethod,
    Sensitivity, Silent, Source, SourceOptions, build, figure, map_parallel, profile,
};
use tileforge_image::Size;
use tileforge_session::Environment;
use tileforge_terminal::{Failure as _, report};

const EXAMPLES: &str = "\
Examples:
  engine-builder build models/compact-x4.yaml --profile cpu -o engines/cpu/compact-x4
  engine-builder build x4plus.safetensors --profile rtx4090 --require-compiled -o engines/rtx4090/x4plus
  engine-builder build x4plus.safetensors --profile rtx4090,rtx5090 --jobs 2 -o 'engines/{profile}/x4plus'";

/// Build an engine directory, or one for each of several profiles.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// A checkpoint (.safetensors, .pth, .pt, .ckpt, .bin, the .index.json of a sharded one, or a folder with any of
    /// them and its config.json), an exported graph (.onnx) or a model file (.yaml)
    model: PathBuf,
    /// The graph to build, where there are several: vae_encoder or vae_decoder of a checkpoint, or one that the model
    /// file names
    #[arg(long, value_name = "NAME")]
    component: Option<String>,
    /// Which chunk of a video the graph is for: first or next; short for --set chunk=NAME
    #[arg(long, value_name = "CHUNK")]
    chunk: Option<String>,
    /// Sizes of the pictures in pixels, WIDTHxHEIGHT, several with commas: one graph for each, in the place of the
    /// sizes of the model file or of the profile. A picture of a latent network is what its autoencoder makes of it
    #[arg(long, value_name = "SIZE", value_delimiter = ',')]
    size: Vec<Size>,
    /// Frames of a video in one run, with --size [default: as few as the network takes]
    #[arg(long, value_name = "COUNT", requires = "size", value_parser = clap::value_parser!(u16).range(1..))]
    frames: Option<u16>,
    /// A hyperparameter that the checkpoint does not state; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = assignment)]
    set: Vec<(String, String)>,
    /// Names that `engine-builder profiles` lists, or paths of .yaml files; several with commas, or `all`
    #[arg(long, value_delimiter = ',', required = true)]
    profile: Vec<String>,
    /// Another precision than the profile's: fp32, fp16, bf16, int8 or fp8
    #[arg(long, value_name = "PRECISION")]
    precision: Option<Precision>,
    /// A folder to measure activations on: pictures like those that the engine will get, or .safetensors files with the
    /// inputs of a network that takes tensors. Without it: the built-in test image, or random tensors
    #[arg(long, value_name = "DIR")]
    calibration: Option<PathBuf>,
    /// How many tiles to draw from the pictures (more, to fill the last batch), tensor files to read, or random tensors
    /// to make (the model file's number, else 32)
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
    /// Where the engine directory goes; `{profile}` in it stands for the profile's name, and several profiles need it
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// Fail with exit code 3 if the engine cannot be compiled here, instead of building a portable one
    #[arg(long)]
    require_compiled: bool,
    /// How many engines to build at the same time, or of one engine, plans for RTX GPUs. NVIDIA's builder takes about
    /// three times the memory of the weights for each
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: u16,
    /// Store files that engines below this folder also have only once, as hard links
    #[arg(long, value_name = "DIR")]
    share: Option<PathBuf>,
    /// Print one JSON object for each engine: the manifest with the measured `speed`, under `plans` what each plan
    /// cost, and under `sensitivity` what each layer costs
    #[arg(long)]
    json: bool,
}

/// What stands for the profile's name in the engine's path.
const PROFILE: &str = "{profile}";

/// Tiles that are measured unless somebody asks for another number.
const CALIBRATION_TILES: u32 = 32;

pub(super) fn run(arguments: &Arguments, ort_lib: Option<&Path>) -> CommandResult {
    let output = arguments.output.to_string_lossy().into_owned();
    let names = match arguments.profile.as_slice() {
        [name] if name == "all" => profile::names(),
        names => names.to_vec(),
    };
    if names.len() > 1 && !output.contains(PROFILE) {
        let problem = "several profiles need `{profile}` in --output, as in 'engines/{profile}/compact-x4'";
        return Err(Failure::Usage(problem.into()));
    }
    let environment = environment(ort_lib)?;
    let model = is_model_file(&arguments.model).then(|| ModelFile::read(&arguments.model)).transpose()?;
    let graph = model.as_ref().map(|model| model.graph(arguments.component.as_deref())).transpose()?;
    let mut profiles = names.iter().map(|name| Profile::read(name)).collect::<Result<Vec<_>, _>>()?;
    profiles.iter_mut().try_for_each(|profile| set_precision(profile, arguments.precision, graph))?;
    let program = Some(plan_program()?);
    if arguments.require_compiled {
        let required = |profile| portable::require_compiled(&environment, profile, program.as_ref());
        profiles.iter().try_for_each(required)?;
    }
    let chunk = arguments.chunk.iter().map(|chunk| ("chunk".to_owned(), chunk.clone()));
    let mut options = SourceOptions {
        task: None,
        hyperparameters: arguments.set.iter().cloned().chain(chunk).collect(),
        weights: models::weight_folders(),
        sizes: arguments.size.clone(),
        frames: arguments.frames.map(usize::from),
    };
    let (source, calibration) = match (&model, graph) {
        (Some(model), Some(graph)) => (Source::of_model(model, graph, &options)?, graph.calibration.clone()),
        _ => {
            options.task = arguments.component.as_deref().map(task).transpose()?;
            (Source::open(&arguments.model, &options)?, Calibration::default())
        }
    };
    let jobs = usize::from(arguments.jobs);
    let work = Work { arguments, environment: &environment, source: &source, calibration, program };
    if let [profile] = profiles.as_slice() {
        let shown = Shown::default();
        let built = work.build(profile, jobs, &shown);
        shown.finish();
        return work.tell(&built?);
    }
    work.build_all(&profiles, jobs)
}

fn is_model_file(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
}

/// The task of a checkpoint's graph.
fn task(name: &str) -> Result<Task, Failure> {
    name.parse().map_err(|reason| Error::Component { reason }.into())
}

/// Gives a profile the precision that was asked for, else the one that suits the model best.
fn set_precision(profile: &mut Profile, asked: Option<Precision>, graph: Option<&GraphFile>) -> Result<(), Failure> {
    if let Some(precision) = asked {
        profile.set_precision(precision)?;
    } else if let Some(precision) = graph.and_then(|graph| graph.precision_on(profile.provider)) {
        match profile.set_precision(precision) {
            // What suits the model best is not what every machine can do.
            Err(Error::Precision { reason, .. }) => {
                report(&format!(
                    "{}: {}, as the profile says, instead of the model's {precision}: {reason}",
                    profile.name, profile.precision
                ));
            }
            done => done?,
        }
    }
    Ok(())
}

/// What the engines of one command share.
struct Work<'w> {
    arguments: &'w Arguments,
    environment: &'w Environment,
    source: &'w Source,
    /// How the model file has activations measured.
    calibration: Calibration,
    program: Option<PlanProgram>,
}

impl Work<'_> {
    /// Builds the engine for one profile.
    fn build(&self, profile: &Profile, jobs: usize, progress: &dyn Progress) -> Result<Built, Error> {
        let Arguments { calibration, calibration_tiles, range, all_layers, sensitivity, output, .. } = self.arguments;
        let options = PrecisionOptions {
            calibration: calibration.clone(),
            calibration_tiles: calibration_tiles.or(self.calibration.tiles).unwrap_or(CALIBRATION_TILES) as usize,
            range: range.or(self.calibration.range).unwrap_or_default(),
            all_layers: *all_layers,
            sensitivity: *sensitivity,
        };
        let plans = Plans { program: self.program.clone(), jobs };
        // A path without the placeholder need not be UTF-8.
        let directory = match output.to_str() {
            Some(output) => PathBuf::from(output.replace(PROFILE, &profile.name)),
            None => output.clone(),
        };
        build(self.environment, progress, self.source, profile, &options, &plans, &directory)
    }

    /// Builds the engines for several profiles, so many at the same time. A profile that fails does not stop the
    /// others.
    fn build_all(&self, profiles: &[Profile], jobs: usize) -> CommandResult {
        let shown = Shown::default();
        shown.begin("building engines", profiles.len());
        let made = map_parallel(profiles, jobs, |profile| {
            let built = self.build(profile, 1, &Silent);
            shown.step();
            built
        });
        shown.finish();
        let mut exits = Vec::new();
        for (profile, built) in profiles.iter().zip(made) {
            match built {
                Ok(built) => self.tell(&built)?,
                Err(error) => {
                    let failure = Failure::from(error);
                    let why = failure.text().unwrap_or_default();
                    report(&format!("{}: not built: {why}", profile.name));
                    exits.push(failure.exit());
                }
            }
        }
        match exits.first() {
            None => Ok(()),
            Some(first) => Err(Failure::Partly { failed: exits.len(), of: profiles.len(), exit: *first }),
        }
    }

    /// Prints what was built.
    fn tell(&self, built: &Built) -> CommandResult {
        let shared = self.arguments.share.as_deref().map(|folder| share_files(&built.directory, folder)).transpose()?;
        let manifest = &built.manifest;
        if self.arguments.json {
            return result_json(&Report {
                manifest,
                plans: &built.plans,
                speed: &built.speed,
                sensitivity: &built.sensitivity,
            });
        }
        let enlarges = Upscale::of(&manifest.contract).map_or(String::new(), |upscale| format!(" ×{}", upscale.scale));
        report(&format!("{}: {}{enlarges}, {}", self.source.name(), manifest.model.architecture, manifest.precision));
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
        for plan in &built.plans {
            report(&format!("  {}", plan_line(plan)));
        }
        if let Some(reason) = &built.portable {
            let advice = match reason {
                NotCompiled::NoBuilder(error) => advice::missing_builder(error),
                NotCompiled::Here(_) => None,
            };
            let advice = advice.map_or(String::new(), |advice| format!("; {advice}"));
            report(&format!("  portable, not compiled for its GPU: {reason}{advice}"));
        }
        report(&format!("  {:.1} MB in {} files", built.bytes as f64 / 1e6, manifest.files.len()));
        if let Some(saved) = shared.filter(|saved| *saved > 0) {
            report(&format!("  {:.1} MB of it shared with other engines", saved as f64 / 1e6));
        }
        result(&built.directory.display().to_string())
    }
}

/// How this program starts itself to build one plan.
pub(super) fn plan_program() -> Result<PlanProgram, Failure> {
    let program = std::env::current_exe().map_err(|source| Error::File {
        path: "engine-builder".into(),
        action: "find the program itself",
        source,
    })?;
    Ok(PlanProgram { program, arguments: vec!["build-plan".into()] })
}

/// What a plan cost, in a line.
fn plan_line(plan: &PlanReport) -> String {
    let memory = plan.peak_bytes.map_or(String::new(), |bytes| format!(", {:.2} GB of memory", bytes as f64 / 1e9));
    let bytes = if plan.repeatable {
        ""
    } else {
        "; another build may give other bytes, because this system does not let programs fix their addresses"
    };
    format!(
        "plan of {}: {:.1} MB, {} layers, {:.1} s{memory}{bytes}",
        plan.graph,
        plan.bytes as f64 / 1e6,
        plan.layers,
        plan.seconds
    )
}

/// What `build --json` prints: the manifest, plans, speed and sensitivity.
#[derive(serde::Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    manifest: &'a Manifest,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    plans: &'a [PlanReport],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    speed: &'a [Gate],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    sensitivity: &'a [Sensitivity],
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
