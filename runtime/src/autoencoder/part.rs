//! Finds the engines of an encoder or a decoder among the parts of an engine.

use tileforge_engine::{Bundle, Engine, Pipeline};

use super::interface::{Direction, direction_of};
use crate::error::{Error, Result};

/// The encoder or the decoder of an autoencoder.
#[derive(Clone, Copy, Debug)]
pub struct AutoencoderPart<'b> {
    /// The engine for pictures, or for the first chunk of a clip.
    pub engine: &'b Engine,
    /// The engine for later chunks of a clip.
    pub next: Option<&'b Engine>,
}

impl<'b> AutoencoderPart<'b> {
    /// Finds the encoder or the decoder among the parts of an engine by their contracts. An engine of one network is
    /// taken without a check.
    ///
    /// # Errors
    /// [`Error::NoPart`]: no part of the engine is one, or several are.
    pub fn of(bundle: &'b Bundle, direction: Direction) -> Result<Self> {
        match bundle {
            Bundle::Engine(engine) => Ok(Self { engine, next: None }),
            Bundle::Pipeline(pipeline) => Self::of_parts(pipeline, direction),
        }
    }

    /// As [`AutoencoderPart::of`], in an engine that has several parts.
    ///
    /// # Errors
    /// As [`AutoencoderPart::of`].
    pub fn of_parts(pipeline: &'b Pipeline, direction: Direction) -> Result<Self> {
        let fitting = pipeline.parts().filter(|(_, part)| direction_of(&part.manifest().contract) == Some(direction));
        let (next, first): (Vec<_>, Vec<_>) =
            fitting.partition(|(_, part)| part.manifest().contract.carried().next().is_some());
        match (first.as_slice(), next.as_slice()) {
            (&[(_, engine)], []) => Ok(Self { engine, next: None }),
            (&[(_, engine)], &[(_, next)]) => Ok(Self { engine, next: Some(next) }),
            _ => Err(Error::NoPart {
                path: pipeline.directory().to_owned(),
                wanted: match direction {
                    Direction::Encode => "encoder of pictures or clips",
                    Direction::Decode => "decoder of pictures or clips",
                },
                found: first.iter().chain(&next).map(|(name, _)| (*name).to_owned()).collect(),
                parts: pipeline.parts().map(|(name, _)| name.to_owned()).collect(),
            }),
        }
    }
}
