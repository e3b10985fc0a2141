//! The networks of a pipeline.

use tileforge_image::Size;

use super::denoiser::Denoiser;
use super::settings::Settings;
use super::texts::TextEncoder;
use crate::autoencoder::{Decoder, Encoder, pixels_of};

/// The networks of a pipeline.
pub(super) struct Networks {
    pub(super) texts: Vec<TextEncoder>,
    pub(super) denoiser: Denoiser,
    pub(super) encoder: Option<Encoder>,
    pub(super) decoder: Decoder,
}

impl Networks {
    /// Whether the network also runs without the text. A network that takes the guidance scale needs no second run.
    pub(super) fn is_guided(&self, settings: &Settings) -> bool {
        settings.guidance > 1.0 && !self.denoiser.interface.takes_guidance()
    }

    /// The sizes of pictures that they make, the smallest first.
    pub(super) fn sizes(&self) -> Vec<Size> {
        self.denoiser.latents().into_iter().map(|latent| pixels_of(latent, self.decoder.factor())).collect()
    }
}
