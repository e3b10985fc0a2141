//! Tiles that memory does not hold, in parts.

use parking_lot::Mutex;
use tileforge_image::Size;

use super::tensors::Pair;
use crate::error::Result;
use crate::tiling::{Tiling, cut};

/// A tile in smaller tiles.
pub(super) struct Parts {
    /// The size of the whole tile.
    whole: Size,
    tiling: Tiling,
    /// Of one part. Only one stream is left where tiles run in parts.
    tensors: Mutex<Pair>,
}

impl Parts {
    /// `tensors` are those of one part.
    pub(super) fn new(tensors: Pair, whole: Size, tiling: Tiling) -> Self {
        Self { whole, tiling, tensors: Mutex::new(tensors) }
    }

    /// Whether the result is that of the whole tile, up to rounding.
    pub(super) fn is_exact(&self) -> bool {
        self.tiling.plan().is_exact()
    }

    /// Makes a tile's output of its input, `[channels, height, width]`; `run` runs one part.
    pub(super) fn run(&self, input: &[f32], output: &mut [f32], run: impl Fn(&mut Pair) -> Result<()>) -> Result<()> {
        let mut tensors = self.tensors.lock();
        let part = self.tiling.plan().tile();
        output.fill(0.0);
        for tile in self.tiling.plan().tiles() {
            cut(input, self.whole, tile.x as usize, tile.y as usize, part, tensors.input.as_mut_slice()?);
            run(&mut tensors)?;
            self.tiling.add(tile, tensors.output.as_slice()?, output);
        }
        Ok(())
    }
}
