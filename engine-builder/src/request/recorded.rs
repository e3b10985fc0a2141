//! The recipe that an engine's manifest records.

use super::sources::Sources;
use super::{BuildRequest, PrecisionChoice};
use crate::digests::digest_of;
use crate::recipe::{folder_digest, input_digests, plain_name};
use crate::{ModelFile, Origin, PipelineExtras, Result};
use std::path::Path;
use tileforge_engine::manifest::{Adaptation, CalibrationRecipe, DiffusionRecipe, ProfileRecipe, Recipe};
use tileforge_exporter::lora::Lora;

/// The recipe of an engine, without its profile.
pub(super) fn of(request: &BuildRequest, sources: &Sources, file: Option<&ModelFile>) -> Result<Recipe> {
    let BuildRequest { model, pipeline, calibration, weights, .. } = request;
    let digests = &weights.digests;
    let parent = model.parent().unwrap_or(Path::new(""));
    let folder = if model.is_dir() { model } else { parent };
    let folders: Vec<&Path> = pipeline.config.iter().map(|config| config.as_path()).chain([folder]).collect();
    let opened: Vec<_> = sources.all().into_iter().map(|(_, graph)| &graph.source).collect();
    let known = file.into_iter().flat_map(|file| file.files.keys().map(String::as_str));
    let parts: Vec<&str> = sources.all().into_iter().filter_map(|(part, _)| part).collect();
    let none = PipelineExtras::default();
    let extras = sources.extras().unwrap_or(&none);
    let adaptation = |lora: &Lora| {
        Ok(Adaptation { file: plain_name(&lora.path), scale: lora.scale, digest: digest_of(digests, &lora.path)? })
    };
    let mut inputs = input_digests(known, &folders, &opened, extras, digests)?;
    // The model file is an input, too: it sets precisions, sizes, hyperparameters and calibration.
    if let Some(file) = file {
        inputs.insert(plain_name(&file.path), digest_of(digests, &file.path)?);
    }
    Ok(Recipe {
        model: plain_name(model),
        origin: file.and_then(|file| file.source.as_ref()).map(origin_text),
        inputs,
        component: request.component.clone(),
        hyperparameters: request.hyperparameters.clone(),
        sizes: request.sizes.iter().map(|size| [size.width, size.height]).collect(),
        frames: request.frames,
        diffusion: DiffusionRecipe {
            batch: pipeline.batch,
            tokens: pipeline.tokens.clone(),
            variant: pipeline.variant.clone(),
            adaptations: pipeline.adaptations.iter().map(adaptation).collect::<Result<_>>()?,
            config: pipeline.config.as_deref().map(plain_name),
        },
        foreign: request.foreign.clone(),
        profile: ProfileRecipe::default(),
        // The fastest precision is known after the builds, and is added then.
        precision: match request.precision {
            PrecisionChoice::Only(precision) => Some(precision),
            PrecisionChoice::Stated | PrecisionChoice::Fastest => None,
        },
        calibration: CalibrationRecipe {
            folder: calibration.folder.as_deref().map(|folder| folder_digest(folder, &parts)).transpose()?,
            tiles: calibration.tiles,
            budget_minutes: calibration.budget.minutes,
            range: calibration.range.map(|range| range.name().to_owned()),
            all_layers: calibration.all_layers,
        },
    })
}

fn origin_text(origin: &Origin) -> String {
    match origin {
        Origin::Hub { repository, revision } => format!("{repository}@{revision}"),
        Origin::Folder(address) | Origin::Page(address) => address.clone(),
    }
}
