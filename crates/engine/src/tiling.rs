//! How well an engine's tiles join, measured when the engine was built.

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::validate::rule;

/// How close tiled pictures are to the network's output for the whole picture at once.
///
/// Measured only for networks whose tiles cannot overlap by the whole receptive field.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tiling {
    /// PSNR in dB of tiles of 256×256 pixels with an overlap of 32: the floor for other tiles.
    pub floor_db: f64,
    /// PSNR in dB of one such tile on a slightly smaller picture, which is padded to the tile: the floor for other
    /// tiles on pictures with a side of less than 256.
    pub filled_db: f64,
    /// The measured tiles. Tiles of at least 256×256 need not be measured.
    pub tiles: Vec<MeasuredTile>,
}

/// A tile with an overlap. One tile may be measured with several overlaps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredTile {
    /// Width in input pixels.
    pub width: u32,
    /// Height in input pixels.
    pub height: u32,
    /// Input pixels that neighbouring tiles share.
    pub overlap: u32,
    /// Input pixels that are discarded at each inner border.
    pub margin: u32,
    /// PSNR in dB; the peak is the range of the network's output.
    pub psnr_db: f64,
    /// Whether a picture smaller than the tile comes out no worse than from a tile of 256×256.
    pub fills: bool,
}

/// How much better than the floor a tile must be, in dB, because figures differ from picture to picture.
const MARGIN_DB: f64 = 3.0;

impl Tiling {
    /// The measurements of a tile, one for each overlap.
    pub fn of(&self, width: u32, height: u32) -> impl Iterator<Item = &MeasuredTile> {
        self.tiles.iter().filter(move |tile| (tile.width, tile.height) == (width, height))
    }

    /// Whether a tile may be chosen for its speed. `is_filled`: the picture has a side of less than 256, so a tile of
    /// 256×256 would be padded.
    pub fn reaches(&self, tile: &MeasuredTile, is_filled: bool) -> bool {
        let floor_db = if is_filled { self.filled_db.min(self.floor_db) } else { self.floor_db };
        tile.psnr_db >= floor_db + MARGIN_DB
    }

    /// Checks that the figures are finite, that overlaps and margins are small enough, and that no tile is listed
    /// twice.
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
