//! The positions of a picture's tiles.
//!
//! Tiles are spread evenly: the first starts at one edge of the picture and the last ends at the other edge. So no tile
//! has an edge that the whole picture does not have. If tiles overlap by twice the receptive field, the tiled result
//! equals that of the whole picture.

use serde::Serialize;

use crate::Size;
use crate::error::{Result, TilingError};

/// Longest side of a tile's output, in pixels.
const TILE_OUTPUT_MAXIMUM: u64 = 1 << 20;

/// Overlaps that are larger than the receptive field needs leave at least this many pixels to blend in.
const BLENDED_PIXELS: u32 = 16;

/// How far neighbouring tiles overlap, in input pixels. The real overlap of two tiles may be larger, because tiles are
/// spread evenly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Overlap {
    /// Least number of pixels that two neighbours share.
    pub pixels: u32,
    /// Pixels that are thrown away at each inner border of a tile, because the end of the tile cuts their receptive
    /// field. The rest of the overlap is blended.
    pub margin: u32,
}

impl Overlap {
    /// The overlap that makes tiling exact, if it is at most a quarter of the tile. Otherwise an eighth of the tile,
    /// which is blended.
    pub fn automatic(receptive_field: Option<u32>, tile: Size) -> Self {
        let side = tile.width.min(tile.height);
        let exact = receptive_field.and_then(|radius| {
            let pixels = radius.checked_mul(2)?.checked_add(BLENDED_PIXELS)?;
            (pixels <= side / 4).then_some(Self { pixels, margin: radius })
        });
        exact.unwrap_or(Self { pixels: side / 8, margin: 0 })
    }

    /// The automatic overlap, with the user's values where given. If the user sets no margin, it is as large as the
    /// receptive field, if the overlap has room for that.
    ///
    /// # Errors
    /// [`TilingError`] if the overlap is as large as the tile, or smaller than two margins.
    pub fn choose(pixels: Option<u32>, margin: Option<u32>, receptive_field: Option<u32>, tile: Size) -> Result<Self> {
        let automatic = Self::automatic(receptive_field, tile);
        let chosen = match (pixels, margin) {
            (None, None) => automatic,
            (Some(pixels), None) => Self { pixels, margin: receptive_field.unwrap_or(0).min(pixels / 2) },
            (pixels, Some(margin)) => Self { pixels: pixels.unwrap_or(automatic.pixels), margin },
        };
        chosen.validate(tile)?;
        Ok(chosen)
    }

    fn validate(self, tile: Size) -> Result<()> {
        let side = tile.width.min(tile.height);
        if self.pixels >= side {
            return Err(TilingError::Overlap { overlap: self.pixels, side }.into());
        }
        if u64::from(self.margin) * 2 > u64::from(self.pixels) {
            return Err(TilingError::Margin { margin: self.margin, overlap: self.pixels }.into());
        }
        Ok(())
    }

    fn is_exact(self, receptive_field: Option<u32>) -> bool {
        receptive_field.is_some_and(|radius| self.margin >= radius && self.pixels / 2 >= radius)
    }
}

/// The tiles along one axis. Positions are computed, not stored, so an axis takes the same memory for any picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    length: u32,
    tile: u32,
    margin: u32,
    count: u32,
}

impl Axis {
    fn new(length: u32, tile: u32, overlap: Overlap) -> Self {
        let count = if length <= tile { 1 } else { (length - overlap.pixels).div_ceil(tile - overlap.pixels) };
        Self { length, tile, margin: overlap.margin, count }
    }

    /// The picture's length in pixels.
    pub fn length(&self) -> u32 {
        self.length
    }

    /// A tile's length in pixels.
    pub fn tile(&self) -> u32 {
        self.tile
    }

    /// Pixels that are thrown away at each inner border.
    pub fn margin(&self) -> u32 {
        self.margin
    }

    /// Number of tiles, at least 1.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The first pixel of tile `index`.
    pub fn start(&self, index: u32) -> u32 {
        if self.count == 1 {
            return 0;
        }
        let spread = u64::from(self.length - self.tile);
        // At most `spread`, as index < count.
        (u64::from(index) * spread / u64::from(self.count - 1)) as u32
    }

    /// The pixel after the last pixel of the picture in tile `index`.
    pub fn end(&self, index: u32) -> u32 {
        (self.start(index) + self.tile.min(self.length)).min(self.length)
    }

    /// The first pixel that later tiles than `index` still add to; after the last tile the picture's length.
    pub fn settled(&self, index: u32) -> u32 {
        if index + 1 >= self.count { self.length } else { self.start(index + 1) + self.margin }
    }

    /// The largest number of pixels that are covered but not finished after a tile.
    pub fn unsettled_maximum(&self) -> u32 {
        if self.count == 1 {
            return 0;
        }
        // Steps differ by at most one. The shortest step leaves the most pixels.
        let shortest_step = (self.length - self.tile) / (self.count - 1);
        (self.tile - shortest_step).saturating_sub(self.margin)
    }

    /// The largest number of pixels that one tile finishes.
    pub fn settled_maximum(&self) -> u32 {
        self.tile.min(self.length)
    }
}

/// One tile of a [`TilePlan`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    /// Its number in the row of tiles, from 0.
    pub column: u32,
    /// The number of its row of tiles, from 0.
    pub row: u32,
    /// The first column of the picture that it covers.
    pub x: u32,
    /// The first row of the picture that it covers.
    pub y: u32,
}

/// All tiles of a picture.
///
/// ```
/// use tileforge_image::Size;
/// use tileforge_image::tile::{Overlap, TilePlan};
///
/// # fn main() -> tileforge_image::Result<()> {
/// let (image, tile) = (Size { width: 1000, height: 600 }, Size { width: 256, height: 256 });
/// // A model that sees 18 pixels to each side, and makes four pixels of one along each axis.
/// let overlap = Overlap::automatic(Some(18), tile);
/// let plan = TilePlan::new(image, tile, overlap, 4, Some(18))?;
/// assert_eq!((plan.columns().count(), plan.rows().count()), (5, 3));
/// assert!(plan.is_exact());
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TilePlan {
    columns: Axis,
    rows: Axis,
    tile: Size,
    overlap: Overlap,
    scale: u32,
    /// Whether the overlap covers the receptive field.
    overlap_is_exact: bool,
    /// The size that the network takes the whole picture with.
    whole: Size,
}

impl TilePlan {
    /// Plans tiles of size `tile` for a picture of `size` and an output that is `scale` times as large.
    ///
    /// # Errors
    /// [`TilingError`] for sizes of zero, outputs larger than any format allows, and overlaps that do not suit the
    /// tile.
    pub fn new(size: Size, tile: Size, overlap: Overlap, scale: u32, receptive_field: Option<u32>) -> Result<Self> {
        if [size.width, size.height, tile.width, tile.height, scale].contains(&0) {
            return Err(TilingError::Zero { picture: size, tile, scale }.into());
        }
        let side = u64::from(tile.width.max(tile.height)) * u64::from(scale);
        if side > TILE_OUTPUT_MAXIMUM {
            return Err(TilingError::TileTooLarge { side, most: TILE_OUTPUT_MAXIMUM }.into());
        }
        size.scaled(scale)?;
        overlap.validate(tile)?;
        let columns = Axis::new(size.width, tile.width, overlap);
        let rows = Axis::new(size.height, tile.height, overlap);
        let overlap_is_exact = overlap.is_exact(receptive_field);
        Ok(Self { columns, rows, tile, overlap, scale, overlap_is_exact, whole: size })
    }

    /// The same plan for a network that takes sides of at least `minimum` that are multiples of `multiple` only, so
    /// that it extends some pictures itself.
    #[must_use]
    pub fn for_sides(mut self, minimum: u32, multiple: u32) -> Self {
        let side = |length: u32| {
            let length = length.max(minimum);
            length.checked_next_multiple_of(multiple.max(1)).unwrap_or(length)
        };
        self.whole = Size { width: side(self.columns.length), height: side(self.rows.length) };
        self
    }

    /// The plan that takes least time; plans that are exact are preferred, then those that differ from the network on
    /// the whole picture only where tiles are filled up. Each candidate comes with the seconds that
    /// one of its tiles takes, or with `None`. Without times, every pixel of every tile counts the same, and of equal
    /// plans the one with the largest tile is taken.
    ///
    /// # Errors
    /// The last candidate's error if none gives a plan; [`TilingError`] if there is no candidate.
    pub fn best(candidates: impl IntoIterator<Item = (Result<Self>, Option<f64>)>) -> Result<Self> {
        let mut best: Result<(Self, f64)> = Err(TilingError::NoShape.into());
        for (candidate, seconds) in candidates {
            let cost = |plan: &Self| plan.count() as f64 * seconds.unwrap_or(plan.tile.pixels() as f64);
            let candidate = candidate.map(|plan| (plan, cost(&plan)));
            let better = match (&best, &candidate) {
                (Ok((best, least)), Ok((candidate, cost))) => {
                    let doubts = |plan: &Self| [!plan.is_exact(), !plan.cuts_nothing()];
                    let order = doubts(candidate).cmp(&doubts(best)).then(cost.total_cmp(least));
                    order.then(best.tile.pixels().cmp(&candidate.tile.pixels())).is_lt()
                }
                (Ok(_), Err(_)) => false,
                (Err(_), _) => true,
            };
            if better {
                best = candidate;
            }
        }
        best.map(|(plan, _)| plan)
    }

    /// The tiles along the width.
    pub fn columns(&self) -> &Axis {
        &self.columns
    }

    /// The tiles along the height.
    pub fn rows(&self) -> &Axis {
        &self.rows
    }

    /// The size of every tile, in input pixels.
    pub fn tile(&self) -> Size {
        self.tile
    }

    /// The overlap that the plan was made with.
    pub fn overlap(&self) -> Overlap {
        self.overlap
    }

    /// Output pixels for each input pixel, along each axis.
    pub fn scale(&self) -> u32 {
        self.scale
    }

    /// Whether the tiled output equals that of the network on the whole picture, up to the engine's rounding.
    ///
    /// A tile that is larger than the picture is filled up with mirrored pixels. The network itself extends its input
    /// in another way at the borders, mostly by zeros within each layer, so the output near the borders differs.
    pub fn is_exact(&self) -> bool {
        self.cuts_nothing() && self.tile.width <= self.whole.width && self.tile.height <= self.whole.height
    }

    /// Whether no inner border of a tile is within a receptive field.
    fn cuts_nothing(&self) -> bool {
        self.overlap_is_exact || self.count() == 1
    }

    /// Number of tiles.
    pub fn count(&self) -> u64 {
        u64::from(self.columns.count) * u64::from(self.rows.count)
    }

    /// The tiles, row by row.
    ///
    /// ```
    /// use tileforge_image::Size;
    /// use tileforge_image::tile::{Overlap, TilePlan};
    ///
    /// # fn main() -> tileforge_image::Result<()> {
    /// let (image, tile) = (Size { width: 100, height: 60 }, Size { width: 64, height: 64 });
    /// let plan = TilePlan::new(image, tile, Overlap { pixels: 16, margin: 0 }, 4, None)?;
    /// // The first tile begins at one edge of the image, and the last tile ends at the other.
    /// assert_eq!(plan.tiles().map(|tile| (tile.x, tile.y)).collect::<Vec<_>>(), [(0, 0), (36, 0)]);
    /// # Ok(()) }
    /// ```
    pub fn tiles(&self) -> impl Iterator<Item = Tile> + use<> {
        let Self { columns, rows, .. } = *self;
        (0..rows.count).flat_map(move |row| {
            (0..columns.count).map(move |column| Tile { column, row, x: columns.start(column), y: rows.start(row) })
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SQUARE: Size = Size { width: 256, height: 256 };

    #[test]
    fn the_automatic_overlap_is_exact_where_it_fits_in_a_quarter() {
        assert_eq!(Overlap::automatic(Some(18), SQUARE), Overlap { pixels: 52, margin: 18 });
        assert_eq!(Overlap::automatic(Some(24), SQUARE), Overlap { pixels: 64, margin: 24 });
        assert_eq!(Overlap::automatic(Some(25), SQUARE), Overlap { pixels: 32, margin: 0 });
        assert_eq!(Overlap::automatic(None, SQUARE), Overlap { pixels: 32, margin: 0 });
        assert_eq!(Overlap::automatic(Some(u32::MAX), SQUARE), Overlap { pixels: 32, margin: 0 });
    }

    #[test]
    fn what_the_user_sets_is_kept_or_refused() {
        let choose = |pixels, margin| Overlap::choose(pixels, margin, Some(18), SQUARE);
        assert_eq!(choose(Some(20), None).unwrap(), Overlap { pixels: 20, margin: 10 });
        assert_eq!(choose(Some(80), None).unwrap(), Overlap { pixels: 80, margin: 18 });
        assert_eq!(choose(None, Some(4)).unwrap(), Overlap { pixels: 52, margin: 4 });
        assert!(choose(Some(256), None).is_err());
        assert!(choose(Some(20), Some(11)).is_err());
    }

    #[test]
    fn a_plan_is_exact_only_when_no_receptive_field_is_cut() {
        let exact = |length, pixels, margin, radius| {
            let size = Size { width: length, height: 256 };
            TilePlan::new(size, SQUARE, Overlap { pixels, margin }, 4, radius).unwrap().is_exact()
        };
        assert!(exact(1000, 52, 18, Some(18)));
        assert!(!exact(1000, 52, 17, Some(18)));
        assert!(!exact(1000, 52, 18, None));
        assert!(exact(256, 0, 0, None));
    }

    #[test]
    fn a_plan_that_fills_a_tile_up_is_exact_only_where_the_network_does_the_same() {
        let plan = |width, height| {
            let size = Size { width, height };
            TilePlan::new(size, SQUARE, Overlap { pixels: 52, margin: 18 }, 4, Some(18)).unwrap()
        };
        assert!(!plan(64, 65).is_exact() && !plan(1000, 255).is_exact() && plan(256, 1000).is_exact());
        // A network for multiples of 8, and one that takes nothing smaller.
        assert!(plan(250, 249).for_sides(8, 8).is_exact() && !plan(250, 248).for_sides(8, 8).is_exact());
        assert!(plan(64, 65).for_sides(256, 8).is_exact());
    }

    #[test]
    fn the_least_work_is_chosen_and_what_is_exact_before_it() {
        let tile = |width, height| Size { width, height };
        let best = |width, height, radius| {
            let plan = |tile| TilePlan::new(Size { width, height }, tile, Overlap::automatic(radius, tile), 4, radius);
            let best = TilePlan::best([tile(256, 256), tile(64, 64), tile(128, 64)].map(|tile| (plan(tile), None)))
                .unwrap()
                .tile();
            (best.width, best.height)
        };
        assert_eq!(best(64, 64, Some(18)), (64, 64));
        assert_eq!(best(65, 60, Some(18)), (128, 64));
        assert_eq!(best(60, 65, Some(18)), (256, 256));
        // Smaller tiles would have less to compute, but their overlap does not cover the receptive field.
        assert_eq!(best(1000, 10, Some(18)), (256, 256));
        assert_eq!(best(1000, 10, None), (128, 64));
        assert!(TilePlan::best([]).is_err());
        let measured = [(tile(64, 64), 1.0), (tile(256, 256), 9.0)].map(|(tile, seconds)| {
            let size = Size { width: 256, height: 256 };
            (TilePlan::new(size, tile, Overlap::automatic(None, tile), 4, None), Some(seconds))
        });
        assert_eq!(TilePlan::best(measured).unwrap().tile(), tile(256, 256));
    }

    proptest! {
        #[test]
        fn tiles_lie_inside_and_cover_in_order(
            length in 1_u32..2000, tile in 1_u32..300, overlap in 0_u32..299, margin in 0_u32..150,
        ) {
            let pixels = overlap.min(tile - 1);
            let axis = Axis::new(length, tile, Overlap { pixels, margin: margin.min(pixels / 2) });
            prop_assert_eq!(axis.start(0), 0);
            prop_assert_eq!(axis.end(axis.count() - 1), length);
            for index in 0..axis.count() {
                prop_assert!(axis.start(index) < axis.end(index) && axis.end(index) <= length);
                prop_assert!(axis.settled(index) > axis.start(index));
                if index > 0 {
                    prop_assert!(axis.start(index) > axis.start(index - 1));
                    prop_assert!(axis.end(index - 1) - axis.start(index) >= pixels);
                    prop_assert!(axis.settled(index) > axis.settled(index - 1));
                }
                prop_assert!(axis.end(index).saturating_sub(axis.settled(index)) <= axis.unsettled_maximum());
            }
        }

        #[test]
        fn no_size_makes_planning_panic(
            width: u32, height: u32, tile_width: u32, tile_height: u32, pixels: u32, margin: u32,
            scale: u32, radius: Option<u32>,
        ) {
            let tile = Size { width: tile_width, height: tile_height };
            let _ = Overlap::automatic(radius, tile);
            let _ = Overlap::choose(Some(pixels), None, radius, tile);
            if let Ok(plan) = TilePlan::new(Size { width, height }, tile, Overlap { pixels, margin }, scale, radius) {
                prop_assert!(plan.count() > 0);
                let last = plan.columns().count() - 1;
                prop_assert_eq!(plan.columns().end(last), width);
                let _ = plan.columns().unsettled_maximum();
            }
        }
    }
}
