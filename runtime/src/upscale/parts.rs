//! Tiles that memory does not hold, in parts.

use std::sync::Arc;

use parking_lot::Mutex;
use tileforge_image::Size;

use super::model::Model;
use super::tensors::Pair;
use crate::error::Result;
use crate::tiling::{Tiling, cut};

/// A tile in smaller tiles, which another model runs.
pub(super) struct Parts {
    model: Arc<Model>,
    /// The size of the whole tile.
    whole: Size,
    tiling: Tiling,
    /// Of one part. Only one stream is left where tiles run in parts.
    tensors: Mutex<Pair>,
}

impl Parts {
    pub(super) fn new(model: Arc<Model>, whole: Size, tiling: Tiling) -> Result<Self> {
        let tensors = Mutex::new(model.make(1)?);
        Ok(Self { model, whole, tiling, tensors })
    }

    /// What runs the parts.
    pub(super) fn model(&self) -> &Model {
        &self.model
    }

    /// Whether the result is that of the whole tile, up to rounding.
    pub(super) fn is_exact(&self) -> bool {
        self.tiling.plan().is_exact()
    }

    /// Runs a tile, `[channels, height, width]`, in parts on a stream.
    pub(super) fn run(&self, stream: usize, input: &[f32], output: &mut [f32]) -> Result<()> {
        let mut tensors = self.tensors.lock();
        let part = self.tiling.plan().tile();
        output.fill(0.0);
        for tile in self.tiling.plan().tiles() {
            cut(input, self.whole, tile.x as usize, tile.y as usize, part, tensors.input.as_mut_slice()?);
            self.model.run(&mut tensors, 1, stream, 1)?;
            self.tiling.add(tile, tensors.output.as_slice()?, output);
        }
        Ok(())
    }
}
