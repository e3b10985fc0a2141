//! The record in a PNG of how it was made.

use std::path::Path;

use serde::{Deserialize, Serialize};
use tileforge_image::png_text;
use tileforge_runtime::diffusion::Settings;

use super::super::failure::Failure;

/// The keyword of the text.
pub(super) const KEYWORD: &str = "tileforge";

/// How a picture was made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Record {
    /// The name of the engine.
    pub(super) engine: String,
    /// The SHA-256 of the engine's manifest, which has the digests of all of its files.
    pub(super) engine_sha256: String,
    /// The number of the picture in its run, from 1.
    pub(super) picture: usize,
    /// The SHA-256 of the file that it started from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) image_sha256: Option<String>,
    /// The SHA-256 of the mask's file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) mask_sha256: Option<String>,
    /// The SHA-256 of the file of its noise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) latents_sha256: Option<String>,
    /// Everything else.
    pub(super) settings: Settings,
}

impl Record {
    /// Reads the record of a PNG.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let refused = |problem: String| Failure::Usage(format!("{}: {problem}", path.display()));
        let text = png_text(path, KEYWORD)?;
        let text = text.ok_or_else(|| {
            refused("expected a PNG that `runtime generate` wrote, found one without settings".into())
        })?;
        serde_json::from_str(&text).map_err(|error| refused(format!("its settings cannot be read: {error}")))
    }

    /// What differs between this record and a new run's; empty if the run gives the same picture.
    pub(super) fn differences(&self, new: &Self) -> Vec<&'static str> {
        [
            (self.engine_sha256 == new.engine_sha256, "the engine"),
            (self.image_sha256 == new.image_sha256, "the picture to start from"),
            (self.mask_sha256 == new.mask_sha256, "the mask"),
            (self.latents_sha256 == new.latents_sha256, "the noise"),
        ]
        .into_iter()
        .filter_map(|(same, what)| (!same).then_some(what))
        .collect()
    }
}
