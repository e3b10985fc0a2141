//! What an engine's manifest says about how it was ordered.

use super::{Arguments, Input};
use std::path::Path;
use tileforge_engine::digest::FileDigest;
use tileforge_engine::manifest::{Adaptation, CalibrationRecipe, DiffusionRecipe, ProfileRecipe, Recipe};
use tileforge_engine_builder::recipe::{folder_digest, input_digests, plain_name};
use tileforge_engine_builder::{Beside, Error, ModelFile, Origin};
use tileforge_exporter::lora::Lora;
use tileforge_files::Digests;

/// The recipe of an engine for any profile.
pub(super) fn of(
    arguments: &Arguments,
    input: &Input<'_>,
    file: Option<&ModelFile>,
    digests: &Digests,
) -> Result<Recipe, Error> {
    let Arguments { model, diffusion, .. } = arguments;
    let parent = model.parent().unwrap_or(Path::new(""));
    let folder = if model.is_dir() { model } else { parent };
    let folders: Vec<&Path> = diffusion.config.iter().map(|config| config.as_path()).chain([folder]).collect();
    let sources: Vec<_> = input.all().into_iter().map(|(_, made)| &made.source).collect();
    let known = file.into_iter().flat_map(|file| file.files.keys().map(String::as_str));
    let parts: Vec<&str> = input.all().into_iter().filter_map(|(part, _)| part).collect();
    let none = Beside::default();
    let beside = if let Input::Parts(_, beside) = input { beside } else { &none };
    let adaptation = |lora: &Lora| {
        Ok(Adaptation { file: plain_name(&lora.path), scale: lora.scale, digest: digest(digests, &lora.path)? })
    };
    let mut inputs = input_digests(known, &folders, &sources, beside, digests)?;
    // It says more than which weights are taken: precisions, sizes, hyperparameters, calibration.
    if let Some(file) = file {
        inputs.insert(plain_name(&file.path), digest(digests, &file.path)?);
    }
    Ok(Recipe {
        model: plain_name(model),
        origin: file.and_then(|file| file.source.as_ref()).map(origin_text),
        inputs,
        component: arguments.component.clone(),
        hyperparameters: arguments.hyperparameters(),
        sizes: arguments.size.iter().map(|size| [size.width, size.height]).collect(),
        frames: arguments.frames,
        diffusion: DiffusionRecipe {
            batch: diffusion.batch,
            tokens: diffusion.tokens.clone(),
            variant: diffusion.variant.clone(),
            adaptations: diffusion.lora.iter().map(adaptation).collect::<Result<_, Error>>()?,
            config: diffusion.config.as_deref().map(plain_name),
        },
        profile: ProfileRecipe::default(),
        precision: arguments.precision,
        calibration: CalibrationRecipe {
            folder: arguments.calibration.as_deref().map(|folder| folder_digest(folder, &parts)).transpose()?,
            tiles: arguments.calibration_tiles,
            budget_minutes: arguments.calibration_budget,
            range: arguments.range.map(|range| range.name().to_owned()),
            all_layers: arguments.all_layers,
        },
    })
}

fn digest(digests: &Digests, path: &Path) -> Result<FileDigest, Error> {
    let failed = |source| Error::File { path: path.to_owned(), action: "read", source };
    let found = digests.of(path).map_err(failed)?;
    Ok(FileDigest { bytes: found.bytes, sha256: found.sha256 })
}

fn origin_text(origin: &Origin) -> String {
    match origin {
        Origin::Hub { repository, revision } => format!("{repository}@{revision}"),
        Origin::Folder(address) | Origin::Page(address) => address.clone(),
    }
}
