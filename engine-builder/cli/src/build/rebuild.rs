//! `engine-builder rebuild`: an engine made again, of what its manifest says.

use super::super::models::{model_folders, weight_folders};
use super::super::{CommandResult, Failure, Libraries, named};
use super::{Arguments as Order, DiffusionArguments, build_checked};
use serde_json::Value;
use std::path::{Path, PathBuf};
use tileforge_engine::manifest::{CalibrationRecipe, Recipe};
use tileforge_engine::rebuild::Predecessor;
use tileforge_engine_builder::recipe::{changed_profile, changes};
use tileforge_engine_builder::{CalibrationBudget, Error, RangeMethod};
use tileforge_exporter::lora::Lora;
use tileforge_image::Size;
use tileforge_terminal::report;

const HELP: &str = "\
Examples:
  engine-builder rebuild engines/cpu/compact-x4
  engine-builder rebuild engines/rtx4090/x4plus --model x4plus.pth -o engines/rtx4090/x4plus-new
  engine-builder rebuild old-engine --model sdxl/ --allow-changed-source -o engines/rtx4090/sdxl

The manifest has the names of the files and folders that the engine was made of, without their folders. They are looked
for in the current folder, in the folders of model files, and in those of weights (MODEL_PATH, and the cache of
`engine-builder fetch`). Options name them elsewhere. A file with another digest is an error, and so is a profile of the
same name that has changed, unless --profile names it.";

/// Make an engine again, as its manifest says: after an upgrade of Tileforge, ONNX Runtime or TensorRT. The same inputs
/// and releases give the same bytes.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(in super::super) struct Arguments {
    /// The engine's directory or name; only its manifest is read
    #[arg(value_name = "DIR")]
    engine: PathBuf,
    /// Where the new engine goes [default: in the place of the older one, in one step when it is finished]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// The name of a model, or the model file, checkpoint, folder or graph that the engine was made of
    #[arg(long, value_name = "MODEL")]
    model: Option<PathBuf>,
    /// The folder that describes a pipeline in one file
    #[arg(long, value_name = "DIR")]
    config: Option<PathBuf>,
    /// A file of low-rank adaptations that was merged into the weights; may be repeated. All of them, in their order
    #[arg(long, value_name = "FILE[:SCALE]")]
    lora: Vec<Lora>,
    /// The profile as it is now, or another one: a name that `engine-builder profiles` lists, or the path of a .yaml
    /// file
    #[arg(long, value_name = "PROFILE")]
    profile: Option<String>,
    /// The folder that activations were measured on
    #[arg(long, value_name = "DIR")]
    calibration: Option<PathBuf>,
    /// Go on where a file is another one than the engine was made of, or where the manifest does not say; this is told
    #[arg(long)]
    allow_changed_source: bool,
    /// Fail with exit code 3 if the engine cannot be compiled here
    #[arg(long)]
    require_compiled: bool,
    /// Build an engine for RTX GPUs without plans where NVIDIA's builder is missing, as the older one may be
    #[arg(long, conflicts_with = "require_compiled")]
    portable: bool,
    /// How many plans for RTX GPUs to build at the same time
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: u16,
    /// Store files that engines below this folder also have only once, as hard links
    #[arg(long, value_name = "DIR")]
    share: Option<PathBuf>,
    /// Print what `build --json` prints
    #[arg(long)]
    json: bool,
}

pub(in super::super) fn run(mut arguments: Arguments, libraries: &Libraries) -> CommandResult {
    arguments.engine = named::engine(&arguments.engine)?;
    let arguments = &arguments;
    let old = Predecessor::read(&arguments.engine)?;
    let output = match &arguments.output {
        Some(output) => output,
        None if old.can_be_replaced() => &arguments.engine,
        None => {
            let problem = format!(
                "{}: its manifest has the older schema {}, so nobody knows which files belong to it; give the new \
                 engine another folder with --output",
                arguments.engine.display(),
                old.schema
            );
            return Err(Failure::Usage(problem));
        }
    };
    let was_signed = arguments.engine.join(SIGNATURE).exists();
    if old.recipe.is_none() {
        report(&format!("{}: {}", arguments.engine.display(), unknown_text(&old)));
    }
    let order = arguments.order(&old, output)?;
    build_checked(&order, libraries, |recipe| arguments.check(&old, recipe))?;
    let new = Predecessor::read(output)?;
    differences(&old, &new).iter().for_each(|line| report(&format!("  {line}")));
    if was_signed {
        report("  the older engine was signed; `engine-builder sign` signs this one");
    }
    Ok(())
}

const SIGNATURE: &str = tileforge_engine::signature::SIGNATURE_FILE;

/// Whether the older engine had nothing compiled in it.
fn was_portable(old: &Predecessor) -> bool {
    let is_portable = |network: &Value| network.pointer("/target/portable") == Some(&Value::Bool(true));
    old.networks().iter().any(|(_, network)| is_portable(network))
}

/// What a manifest without a recipe leaves open.
fn unknown_text(old: &Predecessor) -> String {
    let several = old.precision().is_none();
    format!(
        "its manifest, of schema {}, has no recipe: sizes, hyperparameters, adaptations and options of calibration{} \
         are those of the profile and the model, as in a build without options",
        old.schema,
        if several { ", and the precision of each part," } else { "" }
    )
}

impl Arguments {
    /// The build that makes the engine again.
    fn order(&self, old: &Predecessor, output: &Path) -> Result<Order, Failure> {
        let known = old.recipe.as_deref().cloned();
        let is_known = known.is_some();
        let recipe = known.unwrap_or_else(|| Recipe {
            precision: old.precision(),
            calibration: CalibrationRecipe {
                budget_minutes: CalibrationBudget::default().minutes,
                range: old.range().map(str::to_owned),
                ..CalibrationRecipe::default()
            },
            ..Recipe::default()
        });
        let model = match &self.model {
            Some(model) => named::model(model)?,
            None if is_known => find(&recipe.model, None, "--model", recipe.origin.as_deref())?,
            None => {
                let problem = "its manifest does not say what it was made of; give that with --model";
                return Err(Failure::Usage(format!("{}: {problem}", self.engine.display())));
            }
        };
        let near = model.parent().map(Path::to_owned);
        let found = |name: &str, option| find(name, near.as_deref(), option, None);
        let diffusion = &recipe.diffusion;
        let config = match (&self.config, &diffusion.config) {
            (Some(config), _) => Some(config.clone()),
            (None, Some(name)) => Some(found(name, "--config")?),
            (None, None) => None,
        };
        let lora = if self.lora.is_empty() {
            let of = |one: &tileforge_engine::manifest::Adaptation| {
                Ok(Lora { path: found(&one.file, "--lora")?, scale: one.scale })
            };
            diffusion.adaptations.iter().map(of).collect::<Result<_, Failure>>()?
        } else {
            self.lora.clone()
        };
        let calibration = match (&self.calibration, &recipe.calibration.folder) {
            (Some(folder), _) => Some(folder.clone()),
            (None, Some(folder)) => Some(found(&folder.name, "--calibration")?),
            (None, None) if !is_known && old.was_calibrated_on_a_folder() && !self.allow_changed_source => {
                let problem = "activations were measured on a folder, and its manifest does not say which; give it \
                               with --calibration, or take the built-in samples with --allow-changed-source";
                return Err(Failure::Usage(format!("{}: {problem}", self.engine.display())));
            }
            (None, None) => None,
        };
        let profile = self.profile.clone().or_else(|| old.profile().map(str::to_owned)).ok_or_else(|| {
            let problem = "its manifest names no profile; give one with --profile";
            Failure::Usage(format!("{}: {problem}", self.engine.display()))
        })?;
        let range = recipe.calibration.range.as_deref().map(str::parse::<RangeMethod>).transpose();
        let range = range.map_err(|reason| self.invalid(format!("recipe.calibration.range: {reason}")))?;
        Ok(Order {
            model,
            component: recipe.component,
            chunk: None,
            size: recipe.sizes.iter().map(|&[width, height]| Size { width, height }).collect(),
            frames: recipe.frames,
            set: recipe.hyperparameters.into_iter().collect(),
            diffusion: DiffusionArguments {
                batch: recipe.diffusion.batch,
                tokens: recipe.diffusion.tokens,
                variant: recipe.diffusion.variant,
                lora,
                config,
            },
            profile: vec![profile],
            precision: recipe.precision,
            calibration,
            calibration_tiles: recipe.calibration.tiles,
            calibration_budget: recipe.calibration.budget_minutes,
            range,
            all_layers: recipe.calibration.all_layers,
            sensitivity: false,
            output: Some(output.to_owned()),
            require_compiled: self.require_compiled,
            portable: self.portable || (!self.require_compiled && was_portable(old)),
            jobs: self.jobs,
            share: self.share.clone(),
            json: self.json,
        })
    }

    /// Compares what was opened with what the older engine was made of.
    fn check(&self, old: &Predecessor, recipe: &Recipe) -> CommandResult {
        let mut changes = changes(old, recipe);
        // A profile that is named is taken as it is today.
        changes.extend(changed_profile(old, recipe).filter(|_| self.profile.is_none()));
        if changes.is_empty() {
            if old.inputs().is_empty() {
                report("  its manifest has no digest of what it was made of, so nothing was compared");
            }
            return Ok(());
        }
        if !self.allow_changed_source {
            return Err(Error::ChangedSource { changes }.into());
        }
        changes.iter().for_each(|change| report(&format!("  changed since it was made: {change}")));
        Ok(())
    }

    fn invalid(&self, reason: String) -> Failure {
        Error::Input { path: self.engine.join(tileforge_engine::MANIFEST_FILE), reason }.into()
    }
}

/// The file or folder of this name: in `near`, in the current folder, or in those of model files and weights.
fn find(name: &str, near: Option<&Path>, option: &str, origin: Option<&str>) -> Result<PathBuf, Failure> {
    let weights = weight_folders().folders;
    let all = near.into_iter().map(Path::to_owned).chain([PathBuf::new()]).chain(model_folders()).chain(weights);
    let mut folders: Vec<PathBuf> = Vec::new();
    all.for_each(|folder| {
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    });
    if let Some(found) = folders.iter().map(|folder| folder.join(name)).find(|path| path.exists()) {
        return Ok(found);
    }
    let looked = folders.iter().map(|folder| match folder.as_os_str().is_empty() {
        true => "the current folder".to_owned(),
        false => folder.display().to_string(),
    });
    let looked = looked.collect::<Vec<_>>().join(", ");
    let origin = origin.map_or_else(String::new, |origin| format!(" (published at {origin})"));
    let reason = format!("the engine was made of it{origin}, and it is not in {looked}; name it with {option}");
    Err(Error::Input { path: name.into(), reason }.into())
}

/// What differs between an engine and the one that was made again, a line for each.
fn differences(old: &Predecessor, new: &Predecessor) -> Vec<String> {
    let without_name = |engine: &Predecessor| {
        let mut manifest = engine.manifest.clone();
        manifest.as_object_mut().map(|manifest| manifest.remove("name"));
        manifest
    };
    // The digests of all files are in the manifest.
    if without_name(old) == without_name(new) {
        return vec!["all files are the same as before".into()];
    }
    let mut lines = Vec::new();
    let text = |value: Option<&Value>| match value {
        None | Some(Value::Null) => "nothing".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    let mut compare = |part: Option<&str>, before: &Value, now: &Value, pointers: &[(&str, &str)]| {
        let part = part.map_or_else(String::new, |part| format!("{part}: "));
        for (pointer, what) in pointers {
            let (before, now) = (before.pointer(pointer), now.pointer(pointer));
            // What the older manifest did not say has not changed.
            if before.is_some() && before != now {
                lines.push(format!("{part}{what}: {} → {}", text(before), text(now)));
            }
        }
    };
    compare(None, &old.manifest, &new.manifest, &WHOLE);
    let before = old.networks();
    for (part, now) in new.networks() {
        let before = before.iter().find(|(name, _)| *name == part).map_or(&Value::Null, |(_, before)| before);
        compare(part, before, now, &NETWORK);
    }
    lines
}

/// What of an engine is worth a line if it differs.
const WHOLE: [(&str, &str); 4] = [
    ("/schema", "schema"),
    ("/producer", "built by"),
    ("/recipe/profile/name", "profile"),
    ("/recipe/profile/sha256", "SHA-256 of the profile"),
];

/// What of each of its networks is.
const NETWORK: [(&str, &str); 5] = [
    ("/built_with/onnxruntime", "ONNX Runtime"),
    ("/precision", "precision"),
    ("/graphs/0/plan/library", "TensorRT for RTX"),
    ("/model/checkpoint_sha256", "SHA-256 of the checkpoint"),
    ("/model/graph_sha256", "SHA-256 of the exported graph"),
];
