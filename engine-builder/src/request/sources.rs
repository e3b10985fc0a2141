//! The graphs that a path stands for.

use super::BuildRequest;
use super::problem::RequestError;
use crate::{
    DiffusionOptions, DiffusionSource, Error, GraphFile, ModelFile, PipelineExtras, Progress, Result, Source,
    SourceOptions, restoration,
};
use std::collections::BTreeMap;
use std::path::Path;
use tileforge_exporter::foreign;
use tileforge_session::Environment;

/// Whether a path names a graph, by its extension.
fn is_graph(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "onnx")
}

/// The sources of an engine: one graph, or one for each part with the files beside the parts.
pub(super) enum Sources {
    One(Box<SourceGraph>),
    Parts(BTreeMap<String, SourceGraph>, PipelineExtras),
}

/// A graph's source, with the graph's facts if it comes from a model file.
pub(super) struct SourceGraph {
    pub(super) source: Source,
    pub(super) facts: Option<GraphFile>,
}

impl Sources {
    /// The sources that the request names. `file` is the model file, if the request names one.
    pub(super) fn of(
        request: &BuildRequest,
        file: Option<&ModelFile>,
        environment: &Environment,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let component = request.component.as_deref();
        let is_pipeline = match file {
            // A single graph of a pipeline is built as of any other model.
            Some(file) => component.is_none() && DiffusionSource::is_one_of_models(file),
            None => request.pipeline.config.is_some() || DiffusionSource::is_one(&request.model),
        };
        if is_pipeline {
            return Self::of_pipeline(request, file, progress);
        }
        if let Some(option) = request.pipeline.given() {
            return Err(RequestError::OfPipelines(option).into());
        }
        let is_foreign = is_graph(&request.model) && foreign::is_foreign(&request.model)?;
        if !is_foreign && !request.foreign.is_empty() {
            return Err(RequestError::OfForeignFiles.into());
        }
        let mut options = SourceOptions {
            task: None,
            hyperparameters: request.hyperparameters.clone(),
            weights: request.weights.clone(),
            sizes: request.sizes.clone(),
            frames: request.frames.map(usize::from),
        };
        if is_foreign {
            if component.is_some() || !request.hyperparameters.is_empty() {
                return Err(Error::input(&request.model, "components and hyperparameters are for checkpoints"));
            }
            let source = Source::of_foreign(&request.model, &request.foreign, &options, environment, progress)?;
            return Ok(Self::One(Box::new(SourceGraph { source, facts: None })));
        }
        match file {
            Some(file) => Self::of_model(file, component, &options),
            None => {
                let task = |name: &str| name.parse().map_err(|reason| Error::Component { reason });
                options.task = component.map(task).transpose()?;
                Self::of_path(&request.model, &options)
            }
        }
    }

    /// All graphs of a model, or the chosen one.
    fn of_model(model: &ModelFile, component: Option<&str>, options: &SourceOptions) -> Result<Self> {
        if component.is_none() && model.graphs.len() > 1 {
            let sources = Source::parts_of_model(model, options)?;
            let (sources, extras) = match &model.restoration {
                Some(restoration) => restoration::of_model(model, restoration, sources, &options.weights)?,
                None => (sources, PipelineExtras::default()),
            };
            let graph = |(name, source)| {
                let facts = model.graphs.get(&name).cloned();
                (name, SourceGraph { source, facts })
            };
            return Ok(Self::Parts(sources.into_iter().map(graph).collect(), extras));
        }
        let facts = model.graph(component)?;
        let source = Source::of_model(model, facts, options)?;
        Ok(Self::One(Box::new(SourceGraph { source, facts: Some(facts.clone()) })))
    }

    /// All graphs of a checkpoint, or the graph of the chosen task; or an exported graph.
    fn of_path(path: &Path, options: &SourceOptions) -> Result<Self> {
        let graph = |source| SourceGraph { source, facts: None };
        if options.task.is_some() || !Source::is_checkpoint(path) {
            return Ok(Self::One(Box::new(graph(Source::open(path, options)?))));
        }
        let mut parts = Source::parts_of_checkpoint(path, options)?;
        let only = if parts.len() == 1 { parts.pop_first() } else { None };
        Ok(match only {
            Some((_, source)) => Self::One(Box::new(graph(source))),
            None => {
                let parts = parts.into_iter().map(|(name, source)| (name, graph(source)));
                Self::Parts(parts.collect(), PipelineExtras::default())
            }
        })
    }

    /// All networks of a diffusion pipeline, or the chosen one. The source is a folder, a single file that a folder
    /// describes, or a model file.
    fn of_pipeline(request: &BuildRequest, file: Option<&ModelFile>, progress: &dyn Progress) -> Result<Self> {
        let BuildRequest { model, component, hyperparameters, sizes, frames, pipeline, weights, .. } = request;
        if !hyperparameters.is_empty() || frames.is_some() {
            return Err(RequestError::OfOneNetwork.into());
        }
        let options = DiffusionOptions {
            sizes: sizes.clone(),
            batch: pipeline.batch.map_or(1, usize::from),
            lengths: pipeline.tokens.iter().copied().map(usize::from).collect(),
            adaptations: pipeline.adaptations.clone(),
            digests: weights.digests.clone(),
        };
        let mut source = match (file, &pipeline.config) {
            (Some(file), None) if pipeline.variant.is_none() => DiffusionSource::of_model(file, weights, &options)?,
            (Some(_), _) => return Err(RequestError::OfFolders.into()),
            (None, Some(described)) => DiffusionSource::of_single_file(model, described, &options)?,
            (None, None) => DiffusionSource::open(model, pipeline.variant.as_deref(), &options)?,
        };
        for (lora, count) in pipeline.adaptations.iter().zip(&source.left_over).filter(|(_, count)| **count > 0) {
            let of =
                if *count == 1 { "tensor is of a component that is" } else { "tensors are of components that are" };
            progress.note(&format!("{}: {count} {of} not there", lora.path.display()));
        }
        let Some(component) = component else {
            let graph = |(name, source)| {
                let facts = file.and_then(|file| file.graphs.get(&name)).cloned();
                (name, SourceGraph { source, facts })
            };
            return Ok(Self::Parts(source.parts.into_iter().map(graph).collect(), source.extras));
        };
        match source.parts.remove(component) {
            Some(source) => Ok(Self::One(Box::new(SourceGraph { source, facts: None }))),
            None => {
                let known = source.parts.into_keys().collect();
                Err(RequestError::NoSuchPart { found: component.clone(), known }.into())
            }
        }
    }

    /// Whether a part stays in FP32 where the others are in 8 bits for a CPU.
    pub(super) fn keeps_fp32(&self, part: &str) -> bool {
        let is_diffusion = self.extras().is_some_and(|extras| extras.diffusion.is_some());
        is_diffusion && !DiffusionSource::gains_from_8_bits(part)
    }

    /// The files and facts beside the parts of an engine with several parts.
    pub(super) fn extras(&self) -> Option<&PipelineExtras> {
        match self {
            Self::One(_) => None,
            Self::Parts(_, extras) => Some(extras),
        }
    }

    /// All graphs, with the names of their parts.
    pub(super) fn all(&self) -> Vec<(Option<&str>, &SourceGraph)> {
        match self {
            Self::One(graph) => vec![(None, graph)],
            Self::Parts(parts, _) => parts.iter().map(|(name, graph)| (Some(name.as_str()), graph)).collect(),
        }
    }
}
