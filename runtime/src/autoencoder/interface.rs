//! The roles of a contract's tensors.

use serde::Serialize;
use tileforge_contract::{Axis, Contract, Extent, Meaning, TensorSpec};
use tileforge_image::Size;

use crate::error::{Error, Result};
use crate::pixels::PixelValues;

/// The direction of an autoencoder's engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Pixels to latents.
    Encode,
    /// Latents to pixels.
    Decode,
}

/// The tensors of one half of an autoencoder.
#[derive(Clone)]
pub(super) struct Interface {
    pub(super) direction: Direction,
    pub(super) input: String,
    pub(super) output: String,
    pub(super) values: PixelValues,
    /// Channels of a latent, without those of its variance.
    pub(super) latent_channels: usize,
    pub(super) scaling: f32,
    pub(super) shift: f32,
    /// Pixels for each latent pixel, along each axis of the picture.
    pub(super) factor: usize,
    /// For clips: how the number of frames follows from the number of latent frames.
    pub(super) frames: Option<Extent>,
}

/// The direction of an autoencoder's engine; `None` for any other engine.
pub fn direction_of(contract: &Contract) -> Option<Direction> {
    Interface::of(contract).ok().map(|interface| interface.direction)
}

/// What the halves of an autoencoder must have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clips {
    /// Channels of a latent, without those of its variance.
    pub latent_channels: usize,
    /// Channels of the pixels.
    pub channels: usize,
    /// Pixels for each latent pixel, along each axis of the picture.
    pub factor: usize,
    /// How frames follow from latent frames; `None` for pictures.
    pub frames: Option<Extent>,
}

impl Clips {
    /// Reads a contract, also of an engine for later chunks; `None` for an engine that is no half of an autoencoder.
    pub fn of(contract: &Contract) -> Option<Self> {
        Interface::of(contract).ok().map(|interface| interface.clips())
    }
}

impl std::fmt::Display for Clips {
    /// "pixels of 3 channels, and latents of 4 channels for 8×8 pixels and 4 · n − 3 frames".
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { latent_channels, channels, factor, frames } = self;
        write!(formatter, "pixels of {channels} channels, and latents of {latent_channels} channels for ")?;
        write!(formatter, "{factor}×{factor} pixels")?;
        frames.map_or(Ok(()), |frames| write!(formatter, " and {frames} frames"))
    }
}

/// Pixels for each latent pixel of an autoencoder's engine, along each axis of a picture.
pub(crate) fn factor_of(contract: &Contract) -> Result<usize> {
    Interface::of(contract).map(|interface| interface.factor)
}

/// Whether its input has an axis of frames.
pub fn is_clip(contract: &Contract) -> bool {
    contract.inputs.iter().any(|input| input.frames().is_some())
}

impl Interface {
    pub(super) fn of(contract: &Contract) -> Result<Self> {
        let own = |tensor: &&TensorSpec| !matches!(tensor.meaning, Meaning::Carried { .. } | Meaning::Cache);
        let (inputs, outputs): (Vec<_>, Vec<_>) =
            (contract.inputs.iter().filter(own).collect(), contract.outputs.iter().filter(own).collect());
        let ([input], [output]) = (inputs.as_slice(), outputs.as_slice()) else {
            return Err(unknown("inputs", "one tensor and caches"));
        };
        match (PixelValues::of(input), &output.meaning, &input.meaning, PixelValues::of(output)) {
            (Some(values), Meaning::LatentDistribution { scaling, shift }, ..) => {
                Self::between(Direction::Encode, [input, output], [input, output], values, [*scaling, *shift])
            }
            (_, _, Meaning::Latent { scaling, shift }, Some(values)) => {
                Self::between(Direction::Decode, [input, output], [output, input], values, [*scaling, *shift])
            }
            _ => Err(unknown(&input.name, "pixels to a latent distribution, or a latent to pixels")),
        }
    }

    fn between(
        direction: Direction,
        [input, output]: [&TensorSpec; 2],
        [pixels, latent]: [&TensorSpec; 2],
        values: PixelValues,
        [scaling, shift]: [f32; 2],
    ) -> Result<Self> {
        for tensor in [pixels, latent] {
            let axes = matches!(
                tensor.axes.as_slice(),
                [Axis::Batch, Axis::Channels(_), Axis::Height(_), Axis::Width(_)]
                    | [Axis::Batch, Axis::Channels(_), Axis::Frames(_), Axis::Height(_), Axis::Width(_)]
            );
            if !axes {
                return Err(unknown(&tensor.name, "[batch, channels, height, width], with frames before the height"));
            }
        }
        let side = |tensor: &TensorSpec| {
            let side = tensor.height().filter(|side| tensor.width() == Some(*side) && side.offset == 0);
            side.map(|side| side.step).ok_or_else(|| unknown(&tensor.name, "a height and a width of one kind"))
        };
        let (large, small) = (side(pixels)?, side(latent)?);
        let factor = large / small.max(1);
        let is_frame_by_frame = latent.frames().is_none_or(|frames| frames == Extent::multiple_of(1));
        if small != 1 || factor == 0 || pixels.frames().is_some() != latent.frames().is_some() || !is_frame_by_frame {
            return Err(unknown(&latent.name, "one latent pixel for several pixels"));
        }
        let channels = latent.channels().unwrap_or(0);
        let latent_channels = if direction == Direction::Encode { channels / 2 } else { channels };
        Ok(Self {
            direction,
            input: input.name.clone(),
            output: output.name.clone(),
            values,
            latent_channels,
            scaling,
            shift,
            factor,
            frames: pixels.frames(),
        })
    }

    /// The properties that the other half must share.
    pub(super) fn clips(&self) -> Clips {
        let Self { latent_channels, factor, frames, .. } = *self;
        Clips { latent_channels, channels: self.values.channels(), factor, frames }
    }

    /// The size of the latent of a picture.
    pub(super) fn latent_of(&self, picture: Size) -> Size {
        let side = |length: u32| length.div_ceil(u32::try_from(self.factor).unwrap_or(u32::MAX));
        Size { width: side(picture.width), height: side(picture.height) }
    }

    /// Channels of the output.
    pub(super) fn planes(&self) -> usize {
        match self.direction {
            Direction::Encode => 2 * self.latent_channels,
            Direction::Decode => self.values.channels(),
        }
    }
}

fn unknown(tensor: &str, expected: &str) -> Error {
    Error::Tensor { tensor: tensor.to_owned(), expected: expected.to_owned(), found: "another contract".into() }
}
