//! How well an engine's tiles join, as it was measured when the engine was built.

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::validate::rule;

/// How near tiled pictures are to what the network makes of the whole picture at once.
///
/// Only networks have it whose tiles cannot overlap by all that a pixel depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tiling {
    /// PSNR in dB of tiles of 256×256 pixels with an overlap of 32: what others must reach.
    pub floor_db: f64,
    /// PSNR in dB of one such tile on a picture that it is a little larger than, so that it is filled up: what others
    /// must reach in pictures that have a side of less than 256.
    pub filled_db: f64,
    /// What was measured. Tiles that are at least as large as 256×256 need not be.
    pub tiles: Vec<MeasuredTile>,
}

/// A tile with an overlap. There may be several overlaps of one tile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredTile {
    /// Width in input pixels.
    pub width: u32,
    /// Height in input pixels.
    pub height: u32,
    /// Input pixels that neighbours share.
    pub overlap: u32,
    /// Input pixels that are thrown away at each inner border.
    pub margin: u32,
    /// PSNR in dB; the peak is the range of the network's output.
    pub psnr_db: f64,
    /// A picture that is smaller than the tile comes out of it no worse than out of one of 256×256.
    pub fills: bool,
}

/// How much better than the floor a tile must be: figures differ from picture to picture.
const MARGIN_DB: f64 = 3.0;

impl Tiling {
    /// What was measured of a tile, with each overlap.
    pub fn of(&self, width: u32, height: u32) -> impl Iterator<Item = &MeasuredTile> {
        self.tiles.iter().filter(move |tile| (tile.width, tile.height) == (width, height))
    }

    /// Whether a tile may be chosen for its speed; in a picture that 256×256 fills up or not.
    pub fn reaches(&self, tile: &MeasuredTile, is_filled: bool) -> bool {
        let floor_db = if is_filled { self.filled_db.min(self.floor_db) } else { self.floor_db };
        tile.psnr_db >= floor_db + MARGIN_DB
    }

    /// Checks that the figures are some.
    pub(crate) fn validate(&self) -> Result<()> {
        rule(self.floor_db.is_finite() && self.filled_db.is_finite(), || {
            format!("tiling: expected numbers of dB, found {} and {}", self.floor_db, self.filled_db)
        })?;
        self.tiles.iter().enumerate().try_for_each(|(at, tile)| {
            let MeasuredTile { width, height, overlap, margin, psnr_db, .. } = *tile;
            rule(width.min(height) > overlap && overlap / 2 >= margin && psnr_db.is_finite(), || {
                format!(
                    "tiling.tiles.{at}: expected an overlap smaller than the tile, a margin of at most half of it, and \
                     a number of dB, found {width}×{height}, {overlap}, {margin} and {psnr_db}"
                )
            })?;
            rule(
                self.tiles[..at]
                    .iter()
                    .all(|other| (other.width, other.height, other.overlap) != (width, height, overlap)),
                || format!("tiling.tiles.{at}: {width}×{height} with an overlap of {overlap} stands there twice"),
            )
        })
    }
}
