//! The request, and its statistics.

use serde::Serialize;
use tileforge_image::{Limits, Size};
use tileforge_session::Assigned;

use super::colour::ColourCorrection;
use super::fitting::{Fitting, Wanted};
use crate::autoencoder::Latent;
use crate::error::Result;
use crate::frames::FrameStream;

/// The reference's default seed.
const SEED: u64 = 42;

/// The noise that each batch begins with.
#[derive(Clone, Debug, PartialEq)]
pub enum NoiseOf {
    /// The numbers that PyTorch draws on a CPU for a seed. Each batch begins with the same noise.
    Seed(u64),
    /// This noise. Batches have the same number of latent frames.
    Latent(Latent),
}

impl Default for NoiseOf {
    fn default() -> Self {
        Self::Seed(SEED)
    }
}

/// How a film or a picture is restored.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// The size of the result.
    pub wanted: Wanted,
    /// Frames that each batch shares with the batch before; both blend there.
    pub frame_overlap: usize,
    /// How the result gets the colours of its original.
    pub colour: ColourCorrection,
    /// The noise that each batch begins with.
    pub noise: NoiseOf,
}

/// Opens a stream, when its turn comes.
pub(super) type OpenFrames = Box<dyn FnOnce(&Fitting) -> Result<Box<dyn FrameStream>> + Send>;

/// A film to restore. A picture is a film of one frame.
pub struct RestoreRequest {
    pub(super) open: OpenFrames,
    pub(super) settings: Settings,
    pub(super) limits: Limits,
}

impl RestoreRequest {
    /// A stream that `open` opens on another thread. `open` receives the [`Fitting`], which gives the size of results.
    /// Frames are held whole in memory, and refused beyond `limits`.
    pub fn new(
        open: impl FnOnce(&Fitting) -> Result<Box<dyn FrameStream>> + Send + 'static,
        settings: Settings,
        limits: Limits,
    ) -> Self {
        Self { open: Box::new(open), settings, limits }
    }
}

impl std::fmt::Debug for RestoreRequest {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("RestoreRequest").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// Seconds of each stage.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Seconds {
    /// Frames were read and resized.
    pub read: f64,
    /// Clips became latents.
    pub encode: f64,
    /// Latents were restored.
    pub restore: f64,
    /// Latents became clips.
    pub decode: f64,
    /// Colours were corrected, and frames written.
    pub write: f64,
    /// Everything.
    pub total: f64,
}

/// What a film or a picture took.
#[derive(Clone, Debug, Serialize)]
pub struct RestoreStatistics {
    /// Size of the result.
    pub size: Size,
    /// Size in the networks.
    pub network_size: Size,
    /// Frames.
    pub frames: u64,
    /// Batches of frames.
    pub batches: u64,
    /// Tiles of the autoencoder for each batch, encoded and decoded together. With two, the result equals the result
    /// of whole frames.
    pub tiles: u64,
    /// Which providers took the nodes of the transformer.
    pub assigned: Vec<Assigned>,
    /// Seconds of each stage.
    pub seconds: Seconds,
}
