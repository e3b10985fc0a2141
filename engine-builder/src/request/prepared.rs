//! An opened and checked request, and its builds.

use super::sources::{SourceGraph, Sources};
use super::{BuildRequest, Compilation, PrecisionChoice, RequestError, recorded};
use crate::fastest::build_fastest;
use crate::{
    Built, BuiltPipeline, Error, GraphFile, ModelFile, PartOrder, Plans, PrecisionOptions, Profile, Progress, Result,
    Source, build, build_pipeline, portable,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use tileforge_contract::Precision;
use tileforge_engine::manifest::{ProfileRecipe, Recipe};
use tileforge_session::Environment;

/// A checked request: its sources are open, and its options suit them.
pub struct PreparedBuild {
    request: BuildRequest,
    sources: Sources,
    targets: Vec<Target>,
}

/// A profile that an engine is built for, in the precision of each part.
pub struct Target {
    /// The profile as requested.
    stated: Profile,
    /// The profile with the precision of each part, in the order of [`Sources::all`].
    profiles: Vec<Profile>,
    /// The parts that stay in FP32, whatever the requested precision.
    kept: BTreeSet<String>,
    /// The recipe that the engine's manifest records.
    recipe: Recipe,
}

/// A built engine of either kind.
#[derive(Debug)]
pub enum BuiltEngine {
    /// An engine of one network.
    One(Box<Built>),
    /// An engine of several parts.
    Parts(Box<BuiltPipeline>),
}

impl BuiltEngine {
    /// The engine directory.
    pub fn directory(&self) -> &Path {
        match self {
            Self::One(built) => &built.directory,
            Self::Parts(built) => &built.directory,
        }
    }
}

impl PreparedBuild {
    /// Opens what a request names, and checks that its engines can be built here. `progress` receives notes about
    /// unexpected decisions.
    ///
    /// # Errors
    /// [`Error::Request`] for options that contradict each other; a profile, the model or a source cannot be read; an
    /// engine would be portable against [`Compilation`].
    pub fn new(
        request: BuildRequest,
        environment: &Environment,
        plans: &Plans,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let file = is_model_file(&request.model).then(|| ModelFile::read(&request.model)).transpose()?;
        let mut profiles = request.profiles.iter().map(|name| Profile::read(name)).collect::<Result<Vec<_>>>()?;
        if profiles.is_empty() {
            return Err(RequestError::NoProfile.into());
        }
        let recorded =
            profiles.iter().map(|profile| Ok(ProfileRecipe { name: profile.name.clone(), sha256: profile.sha256()? }));
        let recorded = recorded.collect::<Result<Vec<_>>>()?;
        match request.precision {
            PrecisionChoice::Only(precision) => {
                profiles.iter_mut().try_for_each(|profile| profile.set_precision(precision))?;
            }
            PrecisionChoice::Fastest => {
                let elsewhere = profiles.iter().find(|profile| !profile.provider.is_on_processor());
                if let Some(profile) = elsewhere {
                    return Err(RequestError::FastestElsewhere { profile: profile.name.clone() }.into());
                }
            }
            PrecisionChoice::Stated => {}
        }
        let required = match request.compilation {
            Compilation::Required => portable::require_compiled,
            Compilation::Free => |_: &_, _: &_, _: Option<&_>| Ok(()),
            Compilation::Plans => portable::require_plans,
        };
        profiles.iter().try_for_each(|profile| required(environment, profile, plans.program.as_ref()))?;
        let sources = Sources::of(&request, file.as_ref(), environment, progress)?;
        if request.precision == PrecisionChoice::Fastest && matches!(sources, Sources::Parts(..)) {
            return Err(RequestError::FastestOfParts.into());
        }
        let recipe = recorded::of(&request, &sources, file.as_ref())?;
        let target = |(profile, recorded): (&Profile, ProfileRecipe)| {
            let recipe = Recipe { profile: recorded, ..recipe.clone() };
            Target::new(profile, &sources, request.precision == PrecisionChoice::Stated, recipe, progress)
        };
        let targets = profiles.iter().zip(recorded).map(target).collect::<Result<Vec<_>>>()?;
        Ok(Self { request, sources, targets })
    }

    /// The engines to build, one for each profile.
    pub fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// The networks of the engine for a target: the name of the part, if there are several, and the profile with the
    /// part's precision.
    pub(crate) fn parts<'t>(
        &'t self,
        target: &'t Target,
    ) -> impl Iterator<Item = (Option<&'t str>, &'t Source, &'t Profile)> {
        let graphs = self.sources.all().into_iter().zip(&target.profiles);
        graphs.map(|((part, graph), profile)| (part, &graph.source, profile))
    }

    /// The name of the model; for several graphs, the name of the first.
    pub fn name(&self) -> &str {
        self.sources.all().first().map_or("", |(_, graph)| graph.source.name())
    }

    /// Builds one of the engines at `directory`, as [`build`](crate::build()) does.
    ///
    /// # Errors
    /// The errors of [`build`](crate::build()) and [`build_pipeline`](crate::build_pipeline). Then nothing is left
    /// behind, and an older engine stays.
    pub fn build(
        &self,
        target: &Target,
        environment: &Environment,
        plans: &Plans,
        progress: &dyn Progress,
        directory: &Path,
    ) -> Result<BuiltEngine> {
        let recipe = || Some(Box::new(target.recipe.clone()));
        let (parts, extras) = match &self.sources {
            Sources::Parts(parts, extras) => (parts, extras),
            Sources::One(graph) => {
                let profile = target.profiles.first().unwrap_or(&target.stated);
                let options = self.options(self.request.calibration.folder.clone(), graph);
                let order = PartOrder { source: &graph.source, profile: profile.clone(), options };
                if self.request.precision == PrecisionChoice::Fastest {
                    let built = build_fastest(environment, progress, &order, &target.recipe, plans, directory)?;
                    return Ok(BuiltEngine::One(Box::new(built)));
                }
                let make = |order: &PartOrder<'_>| build(environment, progress, order, recipe(), plans, directory);
                let built = match (make(&order), order.in_precision_of(&target.stated)) {
                    (Err(Error::Gate(missed)), Some(stated)) => {
                        let reason = format!("a gate is missed\n{missed}");
                        progress.note(&fallback(&target.stated, None, profile.precision, &reason));
                        make(&stated)?
                    }
                    (built, _) => built?,
                };
                return Ok(BuiltEngine::One(Box::new(built)));
            }
        };
        let mut orders = BTreeMap::new();
        for ((part, graph), profile) in parts.iter().zip(&target.profiles) {
            let options = if target.kept.contains(part) {
                PrecisionOptions::default()
            } else {
                self.options(self.calibration_of(part, parts)?, graph)
            };
            orders.insert(part.clone(), PartOrder { source: &graph.source, profile: profile.clone(), options });
        }
        let built = build_pipeline(environment, progress, &orders, extras, recipe(), plans, directory)?;
        Ok(BuiltEngine::Parts(Box::new(built)))
    }

    /// The folder of a part's calibration data. Each part has its own.
    fn calibration_of(&self, part: &str, parts: &BTreeMap<String, SourceGraph>) -> Result<Option<PathBuf>> {
        let Some(folder) = &self.request.calibration.folder else { return Ok(None) };
        if !parts.keys().any(|part| folder.join(part).is_dir()) {
            let parts = parts.keys().cloned().collect();
            return Err(RequestError::NoFoldersOfParts { folder: folder.clone(), parts }.into());
        }
        Ok(Some(folder.join(part)).filter(|folder| folder.is_dir()))
    }

    fn options(&self, calibration: Option<PathBuf>, graph: &SourceGraph) -> PrecisionOptions {
        let asked = &self.request.calibration;
        let of_model = graph.facts.as_ref().map(|facts| facts.calibration.clone()).unwrap_or_default();
        let tiles = asked.tiles.or(of_model.tiles).map(|tiles| tiles as usize);
        let defaults = PrecisionOptions::default();
        PrecisionOptions {
            calibration,
            calibration_tiles: tiles.unwrap_or(defaults.calibration_tiles),
            budget: asked.budget,
            range: asked.range.or(of_model.range).unwrap_or_default(),
            all_layers: asked.all_layers,
            sensitivity: asked.sensitivity,
        }
    }
}

impl Target {
    /// Takes the precision that suits the model best if `is_free`: the caller has not chosen another.
    fn new(
        profile: &Profile,
        sources: &Sources,
        is_free: bool,
        recipe: Recipe,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let mut kept = BTreeSet::new();
        let of = |(part, graph): (Option<&str>, &SourceGraph)| {
            let mut profile = profile.clone();
            if is_free && let Some(facts) = &graph.facts {
                set_precision(&mut profile, part, facts, progress)?;
            }
            let in_8_bits = profile.precision == Precision::Int8 && profile.provider.is_on_processor();
            if let Some(part) = part.filter(|part| in_8_bits && sources.keeps_fp32(part)) {
                profile.set_precision(Precision::Fp32)?;
                kept.insert(part.to_owned());
            }
            Ok(profile)
        };
        let profiles = sources.all().into_iter().map(of).collect::<Result<_>>()?;
        Ok(Self { stated: profile.clone(), profiles, kept, recipe })
    }

    /// The caller's precision, or else the profile's own.
    pub(crate) fn stated_precision(&self) -> Precision {
        self.stated.precision
    }

    /// The name of its profile.
    pub fn profile(&self) -> &str {
        &self.stated.name
    }

    /// The recipe that the engine's manifest will record.
    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }
}

fn is_model_file(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
}

/// Gives a profile the precision that suits a model's graph best.
fn set_precision(profile: &mut Profile, part: Option<&str>, facts: &GraphFile, progress: &dyn Progress) -> Result<()> {
    let Some(precision) = facts.precision_on(profile.provider) else { return Ok(()) };
    match profile.set_precision(precision) {
        // Not every machine supports the precision that suits the model best.
        Err(Error::Precision { reason, .. }) => {
            progress.note(&fallback(profile, part, precision, &reason));
            Ok(())
        }
        done => done,
    }
}

/// The note that a profile's own precision replaces the model's, and why.
fn fallback(profile: &Profile, part: Option<&str>, of_model: Precision, reason: &str) -> String {
    let part = part.map_or(String::new(), |part| format!("{part}: "));
    format!(
        "{part}{}: {}, as the profile says, instead of the model's {of_model}: {reason}",
        profile.name, profile.precision
    )
}
