//! `engine-builder build`: engines of a model for one or several profiles.

mod input;
mod outcome;
pub(super) mod rebuild;
mod recipe;

use super::talk::Shown;
use super::{CommandResult, Failure, Libraries, models, named};
use input::{Input, Made};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use tileforge_contract::{Precision, Provider, Task};
use tileforge_engine::manifest::{ProfileRecipe, Recipe};
use tileforge_engine_builder::rtx::PlanProgram;
use tileforge_engine_builder::{
    Beside, Built, BuiltPipeline, CalibrationBudget, DiffusionSource, Error, GraphFile, ModelFile, PartOrder, Plans,
    PrecisionOptions, Profile, Progress, RangeMethod, Silent, SourceOptions, build, build_pipeline, map_parallel,
    portable, profile,
};
use tileforge_exporter::lora::Lora;
use tileforge_image::Size;
use tileforge_session::Environment;
use tileforge_terminal::{Failure as _, report, report_error};

const EXAMPLES: &str = "\
Examples:
  engine-builder build models/compact-x4.yaml --profile cpu -o engines/cpu/compact-x4
  engine-builder build models/sdxl-vae.yaml --profile cpu -o engines/cpu/sdxl-vae
  engine-builder build stable-diffusion-v1-5/ --profile cpu --size 512x512 -o engines/cpu/sd15
  engine-builder build x4plus.safetensors --profile rtx4090 --require-compiled -o engines/rtx4090/x4plus
  engine-builder build x4plus.safetensors --profile rtx4090,rtx5090 --jobs 2 -o 'engines/{profile}/x4plus'";

/// Build an engine directory, or one for each of several profiles.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// The name of a model that `engine-builder models` lists, or a path: a checkpoint (.safetensors, .pth, .pt, .ckpt,
    /// .bin, the .index.json of a sharded one, or a folder with any of them and its config.json), a diffusion pipeline
    /// (a folder with model_index.json, or one file with --config), an exported graph (.onnx) or a model file (.yaml)
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
    #[arg(long, help_heading = "Network", value_name = "COUNT", requires = "size", value_parser = clap::value_parser!(u16).range(1..))]
    frames: Option<u16>,
    /// A hyperparameter that the checkpoint does not state; may be repeated
    #[arg(long, help_heading = "Network", value_name = "NAME=VALUE", value_parser = assignment)]
    set: Vec<(String, String)>,
    #[command(flatten)]
    diffusion: DiffusionArguments,
    /// Names that `engine-builder profiles` lists, or paths of .yaml files; several with commas, or `all` [default: that
    /// of this machine, as `engine-builder profiles --here` says]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    profile: Vec<String>,
    /// Another precision than the profile's: fp32, fp16, bf16, int8 or fp8. With int8 for CPUs, a diffusion pipeline's
    /// text encoders and the encoder of its autoencoder stay in fp32
    #[arg(long, help_heading = "Precision", value_name = "PRECISION")]
    precision: Option<Precision>,
    /// A folder to measure activations on: pictures like those that the engine will get, or .safetensors files with the
    /// inputs of a network that takes tensors. For an engine of several parts, a folder that has one for each part, by
    /// its name. Without it: built-in pictures, or random tensors
    #[arg(long, help_heading = "Precision", value_name = "DIR")]
    calibration: Option<PathBuf>,
    /// How many tiles to draw from the pictures (more, to fill the last batch), tensor files to read, or random tensors
    /// to make (the model file's number, else 32)
    #[arg(long, help_heading = "Precision", value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=4096))]
    calibration_tiles: Option<u32>,
    /// How many minutes calibration and gates of each network may take. A minute stands for 3·10¹² operations, what two
    /// slow cores compute in it, so the engine does not depend on the machine. Larger networks are measured on fewer
    /// samples, and their larger graphs are not run for the gates; the manifest says what was left out (`left_out`)
    #[arg(
        long, help_heading = "Precision",
        value_name = "MINUTES",
        default_value_t = CalibrationBudget::default().minutes,
        value_parser = clap::value_parser!(u32).range(1..=100_000)
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
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
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
    /// Hyperparameters that the checkpoint does not state.
    fn hyperparameters(&self) -> BTreeMap<String, String> {
        let chunk = self.chunk.iter().map(|chunk| ("chunk".to_owned(), chunk.clone()));
        self.set.iter().cloned().chain(chunk).collect()
    }

    /// Where the engine goes without `--output`: engines are looked for there by their names.
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
        let precision = self.precision.map_or(String::new(), |precision| format!("-{precision}"));
        Ok(Path::new(ENGINES).join(PROFILE).join(format!("{name}{component}{precision}")))
    }
}

/// What is asked of the engine of a diffusion pipeline.
#[derive(clap::Args)]
#[command(next_help_heading = "Pipelines")]
struct DiffusionArguments {
    /// Pictures that are made together, in one run of the network
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=32))]
    batch: Option<u16>,
    /// Tokens of a text, several with commas: 77,154 also takes texts in two pieces [default: what the text
    /// encoder takes]
    #[arg(long, value_name = "COUNT", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=4096))]
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

impl DiffusionArguments {
    /// The first option that was given.
    fn given(&self) -> Option<&'static str> {
        let given = [
            ("--batch", self.batch.is_some()),
            ("--tokens", !self.tokens.is_empty()),
            ("--variant", self.variant.is_some()),
            ("--lora", !self.lora.is_empty()),
            ("--config", self.config.is_some()),
        ];
        given.into_iter().find_map(|(option, is_given)| is_given.then_some(option))
    }
}

/// What stands for the profile's name in the engine's path.
const PROFILE: &str = "{profile}";

/// The folder below the current one where engines are looked for by name.
const ENGINES: &str = "engines";

/// Tiles that are measured unless somebody asks for another number.
const CALIBRATION_TILES: u32 = 32;

pub(super) fn run(mut arguments: Arguments, libraries: &Libraries) -> CommandResult {
    arguments.model = named::model(&arguments.model)?;
    if arguments.profile.is_empty() {
        let here = profile::here()?;
        report(&format!("profile {}: {}", here.name, here.reason));
        arguments.profile.push(here.name);
    }
    build_checked(&arguments, libraries, |_| Ok(()))
}

/// Builds engines after `check` has agreed to what they are made of.
fn build_checked(
    arguments: &Arguments,
    libraries: &Libraries,
    check: impl FnOnce(&Recipe) -> CommandResult,
) -> CommandResult {
    let output = arguments.output.clone().map_or_else(|| arguments.default_output(), Ok)?;
    let names = match arguments.profile.as_slice() {
        [name] if name == "all" => profile::names(),
        names => names.to_vec(),
    };
    if names.len() > 1 && !output.to_string_lossy().contains(PROFILE) {
        let problem = "several profiles need `{profile}` in --output, as in 'engines/{profile}/compact-x4'";
        return Err(Failure::Usage(problem.into()));
    }
    let environment = libraries.environment()?;
    let model = is_model_file(&arguments.model).then(|| ModelFile::read(&arguments.model)).transpose()?;
    let mut profiles = names.iter().map(|name| Profile::read(name)).collect::<Result<Vec<_>, _>>()?;
    let recorded =
        profiles.iter().map(|profile| Ok(ProfileRecipe { name: profile.name.clone(), sha256: profile.sha256()? }));
    let recorded = recorded.collect::<Result<Vec<_>, Error>>()?;
    if let Some(precision) = arguments.precision {
        profiles.iter_mut().try_for_each(|profile| profile.set_precision(precision))?;
    }
    let program = Some(libraries.plan_program()?);
    let required = match (arguments.require_compiled, arguments.portable) {
        (true, _) => portable::require_compiled,
        (false, true) => |_: &_, _: &_, _: Option<&_>| Ok(()),
        (false, false) => portable::require_plans,
    };
    profiles.iter().try_for_each(|profile| required(&environment, profile, program.as_ref()))?;
    let component = arguments.component.as_deref();
    let mut options = SourceOptions {
        task: None,
        hyperparameters: arguments.hyperparameters(),
        weights: models::weight_folders(),
        sizes: arguments.size.clone(),
        frames: arguments.frames.map(usize::from),
    };
    let is_pipeline = match &model {
        // One graph alone is built as of any model.
        Some(model) => component.is_none() && DiffusionSource::is_one_of_models(model),
        None => arguments.diffusion.config.is_some() || DiffusionSource::is_one(&arguments.model),
    };
    if let Some(option) = arguments.diffusion.given().filter(|_| !is_pipeline) {
        let problem = format!("{option} is for pipelines, which have a folder with model_index.json");
        return Err(Failure::Usage(problem));
    }
    let input = match &model {
        _ if is_pipeline => Input::of_pipeline(arguments, model.as_ref(), &options.weights)?,
        Some(model) => Input::of_model(model, component, &options)?,
        None => {
            options.task = component.map(task).transpose()?;
            Input::of_path(&arguments.model, &options)?
        }
    };
    let recipe = recipe::of(arguments, &input, model.as_ref(), &options.weights.digests)?;
    check(&Recipe { profile: recorded.first().cloned().unwrap_or_default(), ..recipe.clone() })?;
    let target = |(profile, recorded): (&Profile, ProfileRecipe)| {
        let recipe = Recipe { profile: recorded, ..recipe.clone() };
        Target::new(profile, &input, arguments.precision.is_none(), recipe)
    };
    let targets = profiles.iter().zip(recorded).map(target).collect::<Result<Vec<_>, _>>()?;
    let jobs = usize::from(arguments.jobs);
    let work = Work { arguments, environment: &environment, input: &input, program, output: &output };
    if let [target] = targets.as_slice() {
        let shown = Shown::default();
        let built = work.build(target, jobs, &shown);
        shown.finish();
        return outcome::tell(arguments, &input, &built?);
    }
    work.build_all(&targets, jobs)
}

fn is_model_file(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
}

/// The task of a checkpoint's graph.
fn task(name: &str) -> Result<Task, Failure> {
    name.parse().map_err(|reason| Error::Component { reason }.into())
}

/// A profile that an engine is built for, in the precision of each part.
struct Target {
    /// The profile as it was asked for.
    stated: Profile,
    /// The same with the precision of each part, in the order of [`Input::all`].
    profiles: Vec<Profile>,
    /// The parts that stay in FP32, whatever precision is asked for.
    kept: BTreeSet<String>,
    /// What the engine's manifest says about how it was ordered.
    recipe: Recipe,
}

impl Target {
    /// With the precision that suits the model best, if nobody asked for another one.
    fn new(profile: &Profile, input: &Input<'_>, is_free: bool, recipe: Recipe) -> Result<Self, Error> {
        let mut kept = BTreeSet::new();
        let of = |(part, made): (Option<&str>, &Made<'_>)| {
            let mut profile = profile.clone();
            if is_free && let Some(facts) = made.facts {
                set_precision(&mut profile, part, facts)?;
            }
            let in_8_bits = profile.precision == Precision::Int8 && profile.provider == Provider::Cpu;
            if let Some(part) = part.filter(|part| in_8_bits && input.keeps_fp32(part)) {
                profile.set_precision(Precision::Fp32)?;
                kept.insert(part.to_owned());
            }
            Ok(profile)
        };
        let profiles = input.all().into_iter().map(of).collect::<Result<_, Error>>()?;
        Ok(Self { stated: profile.clone(), profiles, kept, recipe })
    }
}

/// Gives a profile the precision that suits a model's graph best.
fn set_precision(profile: &mut Profile, part: Option<&str>, facts: &GraphFile) -> Result<(), Error> {
    let Some(precision) = facts.precision_on(profile.provider) else { return Ok(()) };
    match profile.set_precision(precision) {
        // What suits the model best is not what every machine can do.
        Err(Error::Precision { reason, .. }) => {
            report(&fallback(profile, part, precision, &reason));
            Ok(())
        }
        done => done,
    }
}

/// That a profile's own precision is taken instead of the model's, and why.
fn fallback(profile: &Profile, part: Option<&str>, of_model: Precision, reason: &str) -> String {
    let part = part.map_or(String::new(), |part| format!("{part}: "));
    format!(
        "{part}{}: {}, as the profile says, instead of the model's {of_model}: {reason}",
        profile.name, profile.precision
    )
}

/// What the engines of one command share.
struct Work<'w> {
    arguments: &'w Arguments,
    environment: &'w Environment,
    input: &'w Input<'w>,
    program: Option<PlanProgram>,
    /// Where engines go, with [`PROFILE`] in it.
    output: &'w Path,
}

/// An engine of either kind that was built.
enum Outcome {
    Engine(Box<Built>),
    Pipeline(Box<BuiltPipeline>),
}

impl Work<'_> {
    /// Builds the engine for one profile.
    fn build(&self, target: &Target, jobs: usize, progress: &dyn Progress) -> Result<Outcome, Failure> {
        let plans = Plans { program: self.program.clone(), jobs };
        // A path without the placeholder need not be UTF-8.
        let directory = match self.output.to_str() {
            Some(output) => PathBuf::from(output.replace(PROFILE, &target.stated.name)),
            None => self.output.to_owned(),
        };
        let mut orders = BTreeMap::new();
        for ((part, made), profile) in self.input.all().into_iter().zip(&target.profiles) {
            let Some(part) = part else {
                let options = self.options(self.arguments.calibration.clone(), made.facts);
                let order = PartOrder { source: &made.source, profile: profile.clone(), options };
                let make = |order: &PartOrder<'_>| {
                    let recipe = Some(Box::new(target.recipe.clone()));
                    build(self.environment, progress, order, recipe, &plans, &directory)
                };
                let built = match (make(&order), order.in_precision_of(&target.stated)) {
                    (Err(Error::Gate(missed)), Some(stated)) => {
                        report(&fallback(
                            &target.stated,
                            None,
                            profile.precision,
                            &format!("a gate is missed\n{missed}"),
                        ));
                        make(&stated)?
                    }
                    (built, _) => built?,
                };
                return Ok(Outcome::Engine(Box::new(built)));
            };
            let options = if target.kept.contains(part) {
                PrecisionOptions::default()
            } else {
                self.options(self.calibration_of(part)?, made.facts)
            };
            orders.insert(part.to_owned(), PartOrder { source: &made.source, profile: profile.clone(), options });
        }
        let none = Beside::default();
        let beside = if let Input::Parts(_, beside) = self.input { beside } else { &none };
        let recipe = Some(Box::new(target.recipe.clone()));
        let built = build_pipeline(self.environment, progress, &orders, beside, recipe, &plans, &directory)?;
        Ok(Outcome::Pipeline(Box::new(built)))
    }

    /// The folder of a part's own calibration data. They differ from part to part.
    fn calibration_of(&self, part: &str) -> Result<Option<PathBuf>, Failure> {
        let Some(folder) = &self.arguments.calibration else { return Ok(None) };
        let names: Vec<&str> = self.input.all().into_iter().filter_map(|(part, _)| part).collect();
        if !names.iter().any(|part| folder.join(part).is_dir()) {
            let names = names.join(", ");
            let problem = format!("{}: expected folders in it, named after the parts {names}", folder.display());
            return Err(Failure::Usage(problem));
        }
        Ok(Some(folder.join(part)).filter(|folder| folder.is_dir()))
    }

    fn options(&self, calibration: Option<PathBuf>, facts: Option<&GraphFile>) -> PrecisionOptions {
        let Arguments { calibration_tiles, calibration_budget, range, all_layers, sensitivity, .. } = self.arguments;
        let of_model = facts.map(|facts| facts.calibration.clone()).unwrap_or_default();
        PrecisionOptions {
            calibration,
            calibration_tiles: calibration_tiles.or(of_model.tiles).unwrap_or(CALIBRATION_TILES) as usize,
            budget: CalibrationBudget { minutes: *calibration_budget },
            range: range.or(of_model.range).unwrap_or_default(),
            all_layers: *all_layers,
            sensitivity: *sensitivity,
        }
    }

    /// Builds the engines for several profiles, so many at the same time. A profile that fails does not stop the
    /// others.
    fn build_all(&self, targets: &[Target], jobs: usize) -> CommandResult {
        let shown = Shown::default();
        shown.begin("building engines", targets.len());
        let made = map_parallel(targets, jobs, |target| {
            let built = self.build(target, 1, &Silent);
            shown.step();
            built
        });
        shown.finish();
        let mut exits = Vec::new();
        for (target, built) in targets.iter().zip(made) {
            match built {
                Ok(built) => outcome::tell(self.arguments, self.input, &built)?,
                Err(failure) => {
                    let why = failure.text().unwrap_or_default();
                    report_error(&format!("{}: not built: {why}", target.stated.name));
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

/// `NAME=VALUE`.
fn assignment(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
    pair.map(|(name, value)| (name.to_owned(), value.to_owned())).ok_or_else(|| "expected NAME=VALUE".into())
}
