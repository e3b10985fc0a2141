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
    /// What every tile must reach to be chosen: PSNR in dB of tiles of 256×256 pixels with an overlap of 32.
    pub floor_db: f64,
    /// What was measured. Tiles that are at least as large as 256×256 need not be.
    pub tiles: Vec<MeasuredTile>,
}

/// A tile, with the least overlap that reaches the floor, or with the best one if none does.
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
}

impl Tiling {
    /// What was measured of a tile.
    pub fn of(&self, width: u32, height: u32) -> Option<&MeasuredTile> {
        self.tiles.iter().find(|tile| (tile.width, tile.height) == (width, height))
    }

    /// Whether a tile reaches the floor; `None` if it was not measured.
    pub fn reaches(&self, width: u32, height: u32) -> Option<bool> {
        self.of(width, height).map(|tile| tile.psnr_db >= self.floor_db)
    }

    /// Checks that the figures are some.
    pub(crate) fn validate(&self) -> Result<()> {
        rule(self.floor_db.is_finite(), || format!("tiling.floor_db: expected a number, found {}", self.floor_db))?;
        self.tiles.iter().enumerate().try_for_each(|(at, tile)| {
            let MeasuredTile { width, height, overlap, margin, psnr_db } = *tile;
            rule(width.min(height) > overlap && overlap / 2 >= margin && psnr_db.is_finite(), || {
                format!(
                    "tiling.tiles.{at}: expected an overlap smaller than the tile, a margin of at most half of it, and \
                     a number of dB, found {width}×{height}, {overlap}, {margin} and {psnr_db}"
                )
            })?;
            rule(self.tiles[..at].iter().all(|other| (other.width, other.height) != (width, height)), || {
                format!("tiling.tiles.{at}: {width}×{height} stands there twice")
            })
        })
    }
}
