//! What an engine is made of.

use super::super::Failure;
use super::Arguments;
use std::collections::BTreeMap;
use std::path::Path;
use tileforge_engine_builder::{
    Beside, DiffusionOptions, DiffusionSource, Error, GraphFile, ModelFile, Source, SourceOptions, WeightFolders,
};
use tileforge_terminal::{counted_as, report};

/// What an engine is made of: one graph, or one for each of its parts, with what stands beside them. A graph of a model
/// file has its facts beside it.
pub(super) enum Input<'m> {
    One(Box<Made<'m>>),
    Parts(BTreeMap<String, Made<'m>>, Beside),
}

/// A graph's source.
pub(super) struct Made<'m> {
    pub(super) source: Source,
    pub(super) facts: Option<&'m GraphFile>,
}

impl<'m> Input<'m> {
    /// All graphs of a model, or the one that was chosen.
    pub(super) fn of_model(
        model: &'m ModelFile,
        component: Option<&str>,
        options: &SourceOptions,
    ) -> Result<Self, Error> {
        if component.is_none() && model.graphs.len() > 1 {
            let sources = Source::parts_of_model(model, options)?;
            let made = |(name, source)| {
                let facts = model.graphs.get(&name);
                (name, Made { source, facts })
            };
            return Ok(Self::Parts(sources.into_iter().map(made).collect(), Beside::default()));
        }
        let graph = model.graph(component)?;
        Ok(Self::One(Box::new(Made { source: Source::of_model(model, graph, options)?, facts: Some(graph) })))
    }

    /// All graphs of a checkpoint, or that of the task that was chosen; or an exported graph.
    pub(super) fn of_path(path: &Path, options: &SourceOptions) -> Result<Self, Error> {
        let made = |source| Made { source, facts: None };
        if options.task.is_some() || !Source::is_checkpoint(path) {
            return Ok(Self::One(Box::new(made(Source::open(path, options)?))));
        }
        let mut parts = Source::parts_of_checkpoint(path, options)?;
        let only = if parts.len() == 1 { parts.pop_first() } else { None };
        Ok(match only {
            Some((_, source)) => Self::One(Box::new(made(source))),
            None => {
                let parts = parts.into_iter().map(|(name, source)| (name, made(source)));
                Self::Parts(parts.collect(), Beside::default())
            }
        })
    }

    /// All networks of a diffusion pipeline, or the one that was chosen: of a folder, of one file that a folder
    /// describes, or of a model file.
    pub(super) fn of_pipeline(
        arguments: &Arguments,
        file: Option<&'m ModelFile>,
        weights: &WeightFolders,
    ) -> Result<Self, Failure> {
        let Arguments { model, component, chunk, size, frames, set, diffusion, .. } = arguments;
        if !set.is_empty() || chunk.is_some() || frames.is_some() {
            let problem = "--set, --chunk and --frames are for one network, and this is a pipeline";
            return Err(Failure::Usage(problem.into()));
        }
        let options = DiffusionOptions {
            sizes: size.clone(),
            batch: diffusion.batch.map_or(1, usize::from),
            lengths: diffusion.tokens.iter().copied().map(usize::from).collect(),
            adaptations: diffusion.lora.clone(),
            digests: weights.digests.clone(),
        };
        let mut source = match (file, &diffusion.config) {
            (Some(file), None) if diffusion.variant.is_none() => DiffusionSource::of_model(file, weights, &options)?,
            (Some(_), _) => {
                let problem = "--variant and --config are for a pipeline's folder or file, not for a model file";
                return Err(Failure::Usage(problem.into()));
            }
            (None, Some(described)) => DiffusionSource::of_single_file(model, described, &options)?,
            (None, None) => DiffusionSource::open(model, diffusion.variant.as_deref(), &options)?,
        };
        for (lora, count) in diffusion.lora.iter().zip(&source.left_over).filter(|(_, count)| **count > 0) {
            let (one, several) = ("tensor is of a component that is", "tensors are of components that are");
            report(&format!("{}: {} not there", lora.path.display(), counted_as(*count, one, several)));
        }
        let Some(component) = component else {
            let made = |(name, source)| {
                let facts = file.and_then(|file| file.graphs.get(&name));
                (name, Made { source, facts })
            };
            return Ok(Self::Parts(source.parts.into_iter().map(made).collect(), source.beside));
        };
        match source.parts.remove(component) {
            Some(source) => Ok(Self::One(Box::new(Made { source, facts: None }))),
            None => {
                let known = source.parts.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
                Err(Failure::Usage(format!("--component: expected one of {known}, found {component}")))
            }
        }
    }

    /// Whether a part stays in FP32 where the others are in 8 bits for a CPU.
    pub(super) fn keeps_fp32(&self, part: &str) -> bool {
        let is_diffusion = matches!(self, Self::Parts(_, beside) if beside.diffusion.is_some());
        is_diffusion && !DiffusionSource::gains_from_8_bits(part)
    }

    pub(super) fn all(&self) -> Vec<(Option<&str>, &Made<'m>)> {
        match self {
            Self::One(made) => vec![(None, made)],
            Self::Parts(parts, _) => parts.iter().map(|(name, made)| (Some(name.as_str()), made)).collect(),
        }
    }
}
