//! What runs tiles of one size.

use std::sync::Arc;

use parking_lot::Mutex;
use tileforge_image::Size;

use crate::error::{Error, Result};
use crate::host::{Group, Made, Network, Ticket, Values};
use crate::tiling::{Tiling, cut};

/// What runs tiles of one size.
pub(super) struct Tiled {
    pub(super) tile: Size,
    pub(super) group: Arc<Group>,
    /// How tiles run in parts, if memory does not hold them.
    parts: Mutex<Option<Arc<InParts>>>,
}

/// How tiles that memory does not hold run in parts.
pub(super) struct InParts {
    tiling: Tiling,
    /// What runs the parts.
    part: Arc<Tiled>,
}

/// The result of the runs of one tile.
pub(super) struct TileMade {
    /// `[channels, height · scale, width · scale]`.
    pub(super) output: Vec<f32>,
    /// The runs.
    pub(super) runs: Vec<Made>,
    /// Whether the result equals the whole tile's, up to rounding.
    pub(super) exact: bool,
}

impl Tiled {
    pub(super) fn new(tile: Size, group: Arc<Group>) -> Self {
        Self { tile, group, parts: Mutex::default() }
    }

    pub(super) fn in_parts(&self) -> Option<Arc<InParts>> {
        self.parts.lock().clone()
    }

    /// Makes tiles run in parts from now on.
    pub(super) fn run_in_parts(&self, part: Arc<Self>, tiling: Tiling) {
        *self.parts.lock() = Some(Arc::new(InParts { tiling, part }));
    }

    /// The size of a run: the tile's, or its parts'.
    pub(super) fn run_size(&self) -> Size {
        self.in_parts().map_or(self.tile, |parts| parts.part.tile)
    }
}

impl InParts {
    /// The size of a part.
    pub(super) fn size(&self) -> Size {
        self.part.tile
    }

    /// Computes a tile's output from its input, `[channels, height, width]`, part by part.
    pub(super) fn run(
        &self,
        network: &Network,
        ticket: &Ticket,
        whole: Size,
        input: &[f32],
        planes: usize,
    ) -> Result<TileMade> {
        let part = self.part.tile;
        let mut output = self.tiling.canvas(planes);
        let mut runs = Vec::new();
        let channels = input.len() / whole.pixels().max(1) as usize;
        for tile in self.tiling.plan().tiles() {
            let mut values = vec![0.0; channels * part.pixels() as usize];
            cut(input, whole, tile.x as usize, tile.y as usize, part, &mut values);
            let made = network.run(ticket, &self.part.group, vec![vec![Values::F32(values)]])?.pop();
            let mut made = made.ok_or_else(|| Error::internal("parts"))?;
            let values = std::mem::take(&mut made.outputs).pop().ok_or_else(|| Error::internal("parts"))?;
            self.tiling.add(tile, &values.into_f32()?, &mut output);
            runs.push(made);
        }
        Ok(TileMade { output, runs, exact: self.tiling.plan().is_exact() })
    }
}
