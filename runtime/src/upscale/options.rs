//! How pictures are cut and run.

use tileforge_image::tile::Blend;
use tileforge_image::{Alpha, Size};
use tileforge_session::Placement;

/// How pictures are cut and run.
#[derive(Clone, Debug, Default)]
pub struct UpscaleOptions {
    /// Where the engine runs.
    pub placement: Placement,
    /// Images in one run: a batch size of one of the engine's graphs; `None`: the largest. Left-over images run in
    /// smaller batches.
    pub batch: Option<usize>,
    /// The tile's size in input pixels, one of the engine's; `None`: the best for each picture.
    pub tile: Option<Size>,
    /// Overlap of neighbouring tiles in input pixels; `None`: [`automatic`](tileforge_image::tile::Overlap::automatic).
    pub overlap: Option<u32>,
    /// Pixels discarded at each inner border of a tile; `None`: see
    /// [`choose`](tileforge_image::tile::Overlap::choose).
    pub margin: Option<u32>,
    /// The transition from one tile to the next.
    pub blend: Blend,
    /// How transparency is enlarged.
    pub alpha: Alpha,
}
