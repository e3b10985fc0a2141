//! Restored pictures.

use tileforge::Picture;
use tileforge::restoration::{NoiseOf, Settings};

use super::upload::{FORMAT, PICTURE, SETTINGS, Upload};
use crate::app::App;
use crate::budget::Held;
use crate::failure::{Failure, Result};
use crate::inference::RequestOptions;
use crate::model::Model;
use crate::size::shown;
use crate::watcher::Watcher;

/// The settings that only restored pictures have.
const OWN: [&str; 3] = ["size", "seed", "colour"];

/// Bytes that the networks' input and their result take for each pixel: as floats, as samples, and as a file.
const BYTES_PER_PIXEL: u64 = 20;

/// The settings of a restoration.
pub(super) fn settings(upload: &Upload) -> Result<Settings> {
    upload.check(&[&OWN[..], &SETTINGS, &FORMAT].concat(), &PICTURE)?;
    let defaults = Settings::default();
    let size = upload.text("size").map(|text| text.parse().map_err(|problem| wrong("size", problem)));
    let colour = upload.text("colour").map(|text| text.parse().map_err(|problem| wrong("colour", problem)));
    let not_a_seed = |_| Failure::invalid(format!("seed: expected a whole number from 0 to {}", u64::MAX));
    let seed = upload.text("seed").map(|text| text.parse().map_err(not_a_seed));
    Ok(Settings {
        wanted: size.transpose()?.unwrap_or(defaults.wanted),
        colour: colour.transpose()?.unwrap_or(defaults.colour),
        noise: seed.transpose()?.map_or(defaults.noise, NoiseOf::Seed),
        frame_overlap: defaults.frame_overlap,
    })
}

fn wrong(name: &str, problem: String) -> Failure {
    Failure::invalid(format!("{name}: {problem}"))
}

/// Refuses settings of restored pictures, and unknown ones, for an engine that enlarges.
pub(super) fn check_none(upload: &Upload) -> Result<()> {
    match OWN.into_iter().find(|name| upload.text(name).is_some()) {
        Some(name) => Err(Failure::invalid(format!("{name} is for engines that restore; this one enlarges"))),
        None => upload.check(&[&SETTINGS[..], &FORMAT].concat(), &PICTURE),
    }
}

/// Restores a picture. The memory that this takes is counted towards the request's before it is submitted.
pub(super) async fn restore(
    app: &App,
    model: &Model,
    (picture, held): (Picture, &Held),
    settings: Settings,
    options: RequestOptions,
    watcher: &Watcher,
) -> Result<Picture> {
    let restorer = model.restorer()?;
    let size = restorer.size_of(picture.size(), settings.wanted)?;
    let most = app.limits.megapixels;
    if size.pixels() > u64::from(most) * 1_000_000 {
        let found = shown(size);
        return Err(Failure::invalid(format!("size: expected at most {most} million pixels, found {found}")));
    }
    let pixels = size.pixels() + picture.size().pixels();
    held.add_pixels(pixels, BYTES_PER_PIXEL)?;
    let (terms, _cancel) = options.terms(app);
    watcher.follow(model, restorer.submit(picture, settings, terms)?).await
}
