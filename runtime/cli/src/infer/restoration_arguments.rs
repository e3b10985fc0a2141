//! The arguments of `runtime infer` for engines that restore films and pictures.

use std::path::PathBuf;

use tileforge_runtime::Result;
use tileforge_runtime::autoencoder::Latent;
use tileforge_runtime::restoration::{ColourCorrection, NoiseOf, Settings, Wanted};
use tileforge_terminal::whole;

/// For engines that restore.
#[derive(clap::Args)]
#[command(next_help_heading = "Restoration")]
pub(super) struct RestorationArguments {
    /// The size of the result: the length of its shorter side, or WIDTHxHEIGHT [default: the largest that the engine
    /// takes in these proportions].
    #[arg(long, value_name = "SIZE", value_parser = str::parse::<Wanted>)]
    size: Option<Wanted>,
    /// The seed of the noise that each batch of frames begins with, as PyTorch draws it on a CPU [default: 42].
    #[arg(long, value_name = "N", conflicts_with = "noise", value_parser = whole::<u64>(..))]
    seed: Option<u64>,
    /// The noise itself: a latent clip, [1, channels, frames, height, width], as .safetensors or .npy.
    #[arg(long, value_name = "FILE")]
    pub(super) noise: Option<PathBuf>,
    /// Frames that each batch shares with the one before it, where both blend [default: 0].
    #[arg(long, value_name = "N", value_parser = whole::<u16>(0..=256))]
    frame_overlap: Option<u16>,
    /// How the result gets the colours of the input: lab, wavelet, wavelet-adaptive, hsv, adain or none [default: lab].
    #[arg(long, value_name = "HOW", value_parser = str::parse::<ColourCorrection>)]
    colour: Option<ColourCorrection>,
}

impl RestorationArguments {
    /// The first option that was given, for engines of other tasks to refuse.
    pub(super) fn given(&self) -> Option<&'static str> {
        let Self { size, seed, noise, frame_overlap, colour } = self;
        [
            (size.is_some(), "--size"),
            (seed.is_some(), "--seed"),
            (noise.is_some(), "--noise"),
            (frame_overlap.is_some(), "--frame-overlap"),
            (colour.is_some(), "--colour"),
        ]
        .into_iter()
        .find_map(|(given, name)| given.then_some(name))
    }

    /// The size of the result.
    pub(super) fn size(&self) -> Wanted {
        self.size.unwrap_or_default()
    }

    /// The options that change an output, as text, for the record of what it was made with.
    pub(super) fn making(&self) -> String {
        let Self { size, seed, noise: _, frame_overlap, colour } = self;
        format!("{size:?} {seed:?} {frame_overlap:?} {colour:?}")
    }

    /// How films and pictures are restored.
    ///
    /// # Errors
    /// The file of the noise cannot be read.
    pub(super) fn settings(&self) -> Result<Settings> {
        let defaults = Settings::default();
        let noise = match (&self.noise, self.seed) {
            (Some(path), _) => NoiseOf::Latent(Latent::read(path)?),
            (None, Some(seed)) => NoiseOf::Seed(seed),
            (None, None) => defaults.noise,
        };
        Ok(Settings {
            wanted: self.size(),
            frame_overlap: self.frame_overlap.map_or(defaults.frame_overlap, usize::from),
            colour: self.colour.unwrap_or(defaults.colour),
            noise,
        })
    }
}
