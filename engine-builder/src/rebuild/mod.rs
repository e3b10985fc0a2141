//! Rebuilds engines from their manifests.

mod missing;

pub use missing::{Ingredient, Unrecorded};

use crate::recipe::{changed_profile, changes};
use crate::request::{BuildRequest, BuiltEngine, CalibrationRequest, Compilation, PipelineRequest, PreparedBuild};
use crate::{CalibrationBudget, Error, Plans, Progress, RangeMethod, Result, WeightFolders};
use serde_json::Value;
use std::path::{Path, PathBuf};
use tileforge_engine::manifest::{Adaptation, CalibrationRecipe, Recipe};
use tileforge_engine::rebuild::Predecessor;
use tileforge_exporter::lora::Lora;
use tileforge_image::Size;
use tileforge_session::Environment;

/// A rebuild of an engine. Fields without a value follow its manifest.
#[derive(Clone, Debug, Default)]
pub struct RebuildRequest {
    /// The directory of the engine. Only its manifests are read.
    pub engine: PathBuf,
    /// The directory of the new engine; `None`: it replaces the older engine in one step.
    pub output: Option<PathBuf>,
    /// The model file, checkpoint, folder or graph that the engine was made of.
    pub model: Option<PathBuf>,
    /// The folder that describes a single-file pipeline.
    pub config: Option<PathBuf>,
    /// All adaptations that were merged into the weights, in order.
    pub adaptations: Vec<Lora>,
    /// A profile, changed or not.
    pub profile: Option<String>,
    /// The folder of the calibration data.
    pub calibration: Option<PathBuf>,
    /// Whether to continue if a file differs from the recorded one, or if the manifest does not record it. A note
    /// reports this.
    pub allows_changed_source: bool,
    /// Whether the new engine may be portable. It may also be portable if its predecessor was, unless compilation is
    /// required.
    pub compilation: Compilation,
    /// Folders to search by name for what the engine was made of, before the folders of weights.
    pub folders: Vec<PathBuf>,
    /// The folders of weights.
    pub weights: WeightFolders,
}

/// A rebuilt engine.
#[derive(Debug)]
pub struct Rebuilt {
    /// The new engine.
    pub engine: BuiltEngine,
    /// The name of its model.
    pub name: String,
    /// The differences from the older engine, a line for each; or one line that there are none.
    pub differences: Vec<String>,
}

/// Rebuilds an engine.
///
/// # Errors
/// [`Error::Unrecorded`] and [`Error::Ingredient`]; [`Error::ChangedSource`], before anything is built, if the inputs
/// are not those that the engine was made of; the errors of [`PreparedBuild`].
pub fn rebuild(
    request: &RebuildRequest,
    environment: &Environment,
    plans: &Plans,
    progress: &dyn Progress,
) -> Result<Rebuilt> {
    let old = Predecessor::read(&request.engine)?;
    let output = match &request.output {
        Some(output) => output,
        None if old.can_be_replaced() => &request.engine,
        None => return Err(request.unrecorded(Unrecorded::Files { schema: old.schema })),
    };
    if old.recipe.is_none() {
        progress.note(&format!("{}: {}", request.engine.display(), unknown_text(&old)));
    }
    let prepared = PreparedBuild::new(request.build_request(&old)?, environment, plans, progress)?;
    // The request names one profile.
    let [target] = prepared.targets() else { return Err(request.unrecorded(Unrecorded::Profile)) };
    request.check(&old, target.recipe(), progress)?;
    let engine = prepared.build(target, environment, plans, progress, output)?;
    let differences = differences(&old, &Predecessor::read(output)?);
    Ok(Rebuilt { engine, name: prepared.name().to_owned(), differences })
}

/// Whether the older engine had no compiled parts.
fn was_portable(old: &Predecessor) -> bool {
    let is_portable = |network: &Value| network.pointer("/target/portable") == Some(&Value::Bool(true));
    old.networks().iter().any(|(_, network)| is_portable(network))
}

/// The note about what a manifest without a recipe does not record.
fn unknown_text(old: &Predecessor) -> String {
    let several = old.precision().is_none();
    format!(
        "its manifest, of schema {}, has no recipe: sizes, hyperparameters, adaptations and options of calibration{} \
         are those of the profile and the model, as in a build without options",
        old.schema,
        if several { ", and the precision of each part," } else { "" }
    )
}

impl RebuildRequest {
    fn unrecorded(&self, missing: Unrecorded) -> Error {
        Error::Unrecorded { engine: self.engine.clone(), missing }
    }

    /// The request for the same build.
    fn build_request(&self, old: &Predecessor) -> Result<BuildRequest> {
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
            Some(model) => model.clone(),
            None if is_known => self.find(&recipe.model, None, Ingredient::Model, recipe.origin.as_deref())?,
            None => return Err(self.unrecorded(Unrecorded::Model)),
        };
        let near = model.parent().map(Path::to_owned);
        let found = |name: &str, ingredient| self.find(name, near.as_deref(), ingredient, None);
        let diffusion = &recipe.diffusion;
        let config = match (&self.config, &diffusion.config) {
            (Some(config), _) => Some(config.clone()),
            (None, Some(name)) => Some(found(name, Ingredient::Config)?),
            (None, None) => None,
        };
        let adaptations = if self.adaptations.is_empty() {
            let of = |one: &Adaptation| Ok(Lora { path: found(&one.file, Ingredient::Adaptation)?, scale: one.scale });
            diffusion.adaptations.iter().map(of).collect::<Result<_>>()?
        } else {
            self.adaptations.clone()
        };
        let folder = match (&self.calibration, &recipe.calibration.folder) {
            (Some(folder), _) => Some(folder.clone()),
            (None, Some(folder)) => Some(found(&folder.name, Ingredient::Calibration)?),
            (None, None) if !is_known && old.was_calibrated_on_a_folder() && !self.allows_changed_source => {
                return Err(self.unrecorded(Unrecorded::Calibration));
            }
            (None, None) => None,
        };
        let profile = self.profile.clone().or_else(|| old.profile().map(str::to_owned));
        let profile = profile.ok_or_else(|| self.unrecorded(Unrecorded::Profile))?;
        let range = recipe.calibration.range.as_deref().map(str::parse::<RangeMethod>).transpose();
        let manifest = self.engine.join(tileforge_engine::MANIFEST_FILE);
        let range = range.map_err(|reason| Error::input(&manifest, format!("recipe.calibration.range: {reason}")))?;
        let compilation = match self.compilation {
            Compilation::Plans if was_portable(old) => Compilation::Free,
            asked => asked,
        };
        Ok(BuildRequest {
            model,
            component: recipe.component,
            hyperparameters: recipe.hyperparameters,
            sizes: recipe.sizes.iter().map(|&[width, height]| Size { width, height }).collect(),
            frames: recipe.frames,
            pipeline: PipelineRequest {
                batch: recipe.diffusion.batch,
                tokens: recipe.diffusion.tokens,
                variant: recipe.diffusion.variant,
                adaptations,
                config,
            },
            profiles: vec![profile],
            foreign: recipe.foreign,
            precision: recipe.precision.into(),
            calibration: CalibrationRequest {
                folder,
                tiles: recipe.calibration.tiles,
                budget: CalibrationBudget { minutes: recipe.calibration.budget_minutes },
                range,
                all_layers: recipe.calibration.all_layers,
                sensitivity: false,
            },
            compilation,
            weights: self.weights.clone(),
        })
    }

    /// Compares the opened inputs with the recorded inputs of the older engine.
    fn check(&self, old: &Predecessor, recipe: &Recipe, progress: &dyn Progress) -> Result<()> {
        let mut changes = changes(old, recipe);
        // A profile that the caller names is used in its present form.
        changes.extend(changed_profile(old, recipe).filter(|_| self.profile.is_none()));
        if changes.is_empty() {
            if old.inputs().is_empty() {
                progress.note("  its manifest has no digest of what it was made of, so nothing was compared");
            }
            return Ok(());
        }
        if !self.allows_changed_source {
            return Err(Error::ChangedSource { changes });
        }
        changes.iter().for_each(|change| progress.note(&format!("  changed since it was made: {change}")));
        Ok(())
    }

    /// The file or folder of this name: in `near`, in the current folder, or in the folders of models and weights.
    fn find(&self, name: &str, near: Option<&Path>, ingredient: Ingredient, origin: Option<&str>) -> Result<PathBuf> {
        let near = near.into_iter().map(Path::to_owned);
        let all = near.chain([PathBuf::new()]).chain(self.folders.clone()).chain(self.weights.folders.clone());
        let mut folders: Vec<PathBuf> = Vec::new();
        all.for_each(|folder| {
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        });
        let found = folders.iter().map(|folder| folder.join(name)).find(|path| path.exists());
        found.ok_or_else(|| Error::Ingredient {
            name: name.into(),
            ingredient,
            origin: origin.map(str::to_owned),
            folders,
        })
    }
}

/// The differences between an engine and its rebuild, a line for each.
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
            // A value that the older manifest does not record has not changed.
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

/// The values of an engine whose differences are listed.
const WHOLE: [(&str, &str); 4] = [
    ("/schema", "schema"),
    ("/producer", "built by"),
    ("/recipe/profile/name", "profile"),
    ("/recipe/profile/sha256", "SHA-256 of the profile"),
];

/// The values of each of its networks whose differences are listed.
const NETWORK: [(&str, &str); 5] = [
    ("/built_with/onnxruntime", "ONNX Runtime"),
    ("/precision", "precision"),
    ("/graphs/0/plan/library", "TensorRT for RTX"),
    ("/model/checkpoint_sha256", "SHA-256 of the checkpoint"),
    ("/model/graph_sha256", "SHA-256 of the exported graph"),
];
