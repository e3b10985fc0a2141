//! The positions of a picture's tiles.
//!
//! Tiles are spread evenly: the first starts at one edge of the picture and the last ends at the other edge. So no
//! tile has an edge that the whole picture does not have. If tiles overlap by twice the receptive field, the tiled
//! result equals the result of the whole picture, and the cut from one tile to the next needs no blending.
//!
//! A network that accepts only multiples of a number works in blocks of that many pixels: a transformer's windows, or
//! pixels that become channels. So tiles begin where blocks of the whole picture begin. The last tile then ends with
//! the last block, less than one block beyond the picture, as the network itself extends the whole picture.

use serde::Serialize;

use crate::Size;
use crate::error::{Result, TilingError};

/// An exact plan is preferred up to this multiple of the cost of an inexact plan.
const PREFERRED_COST: f64 = 1.25;

/// Longest side of a tile's output, in pixels.
const TILE_OUTPUT_MAXIMUM: u64 = 1 << 20;

/// The overlap if twice the receptive field would be too large. A convolution network's output pixel depends far less
/// on distant pixels than on near ones: docs/benchmarks.md has the error by distance.
const NEAR_PIXELS: u32 = 24;

/// The overlap for networks that see the whole picture: the overlap of tiles of 256×256.
const BLENDED_PIXELS: u32 = 32;

/// How far neighbouring tiles overlap, in input pixels. The real overlap of two tiles may be larger, because tiles are
/// spread evenly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Overlap {
    /// The minimum number of pixels that two neighbours share.
    pub pixels: u32,
    /// Pixels that are thrown away at each inner border of a tile, because the end of the tile cuts their receptive
    /// field. The rest of the overlap is blended.
    pub margin: u32,
}

impl Overlap {
    /// The overlap that makes tiling exact, if it is at most a quarter of the tile: twice the receptive field, without
    /// pixels to blend. Otherwise, if the receptive field is bounded, 24 pixels if the tile has room for them. The
    /// outer third at each border is thrown away, since the cut changes it most. If the receptive field is not
    /// bounded, an eighth of the tile, but 32 pixels if the tile has room for them; all of the overlap is blended.
    pub fn automatic(receptive_field: Option<u32>, tile: Size) -> Self {
        let side = tile.width.min(tile.height);
        let Some(radius) = receptive_field else {
            return Self { pixels: (side / 8).max((side / 4).min(BLENDED_PIXELS)), margin: 0 };
        };
        match radius.checked_mul(2) {
            Some(pixels) if pixels <= side / 4 => Self { pixels, margin: radius },
            _ => {
                // The quality of a joint depends on its own width, not on the size of the tile.
                let pixels = (side / 8 * 3).min(NEAR_PIXELS);
                Self { pixels, margin: pixels / 3 }
            }
        }
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
        chosen.validate(tile.width.min(tile.height))?;
        Ok(chosen)
    }

    /// Checks that tiles with this side advance.
    fn validate(self, side: u32) -> Result<()> {
        if self.pixels >= side {
            return Err(TilingError::Overlap { overlap: self.pixels, side }.into());
        }
        if u64::from(self.margin) * 2 > u64::from(self.pixels) {
            return Err(TilingError::Margin { margin: self.margin, overlap: self.pixels }.into());
        }
        Ok(())
    }

    fn is_exact(self, receptive_field: Option<u32>) -> bool {
        // Tiles overlap by at least two margins.
        receptive_field.is_some_and(|radius| self.margin >= radius)
    }
}

/// The tiles along one axis. Positions are computed, not stored, so an axis takes the same memory for any picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    length: u32,
    /// The length of the whole picture as the network extends it.
    whole: u32,
    tile: u32,
    margin: u32,
    count: u32,
    /// Tiles start at multiples of this. `whole` and `tile` are multiples, too.
    multiple: u32,
}

impl Axis {
    /// The fewest tiles that cover the length. A single tile that covers all of it has no overlap.
    fn new(length: u32, tile: u32, overlap: Overlap) -> Result<Self> {
        let count = if length <= tile {
            1
        } else {
            overlap.validate(tile)?;
            (length - overlap.pixels).div_ceil(tile - overlap.pixels)
        };
        Ok(Self { length, whole: length, tile, margin: overlap.margin, count, multiple: 1 })
    }

    /// The same axis for a network that accepts only sides of at least `minimum` that are multiples of `multiple`.
    /// Tiles start at any pixel if their overlap leaves no room for multiples.
    fn for_sides(self, overlap: Overlap, minimum: u32, multiple: u32) -> Self {
        let multiple = multiple.max(1);
        let rounded = |length: u32| length.checked_next_multiple_of(multiple).unwrap_or(length);
        if self.length <= self.tile {
            return Self { whole: rounded(self.length.max(minimum)), count: 1, ..self };
        }
        // No tile is smaller than the minimum side, so neither is the picture.
        let whole = rounded(self.length);
        let step = self.tile.saturating_sub(overlap.pixels) / multiple * multiple;
        if step == 0 || !self.tile.is_multiple_of(multiple) || !whole.is_multiple_of(multiple) {
            return Self { whole: self.length, ..self };
        }
        Self { whole, count: (whole - self.tile).div_ceil(step) + 1, multiple, ..self }
    }

    /// Whether a tile is longer than the whole picture as the network extends it, and is filled up.
    pub fn is_filled(&self) -> bool {
        self.tile > self.whole
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
        let blocks = u64::from((self.whole - self.tile) / self.multiple);
        // At most `whole - tile`, as index < count.
        (u64::from(index) * blocks / u64::from(self.count - 1)) as u32 * self.multiple
    }

    /// The pixel after the last pixel of the picture in tile `index`.
    pub fn end(&self, index: u32) -> u32 {
        (self.start(index) + self.tile.min(self.length)).min(self.length)
    }

    /// The first pixel that tiles after `index` still add to; after the last tile, the picture's length.
    pub fn settled(&self, index: u32) -> u32 {
        if index + 1 >= self.count { self.length } else { self.start(index + 1) + self.margin }
    }

    /// The largest number of pixels that are covered but not finished after a tile.
    pub fn unsettled_maximum(&self) -> u32 {
        if self.count == 1 {
            return 0;
        }
        // Steps differ by at most one block. The shortest step leaves the most pixels.
        let shortest_step = (self.whole - self.tile) / self.multiple / (self.count - 1) * self.multiple;
        (self.tile - shortest_step).saturating_sub(self.margin)
    }

    /// The largest number of pixels that one tile finishes.
    pub fn settled_maximum(&self) -> u32 {
        self.tile.min(self.length)
    }
}

/// The limits on tiles of a network that accepts any size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnySize {
    /// The maximum number of pixels of a tile.
    pub pixels: u64,
    /// The maximum number of rows of a tile, at least the minimum side: the rows of a tile are kept in the picture's
    /// whole width.
    pub height: u32,
    /// The minimum side.
    pub minimum: u32,
    /// Sides are multiples of this.
    pub multiple: u32,
}

/// The maximum factor between a tile's side and the square tile's side, in both directions: beyond it, the overlap is
/// most of the tile.
const ASPECT: u32 = 4;

/// The number of widths that are tried between the smallest and the largest.
const WIDTHS: u32 = 64;

impl AnySize {
    /// The largest square tile.
    pub fn square(self) -> Size {
        let side = u32::try_from(self.pixels.isqrt()).unwrap_or(u32::MAX);
        let side = (side - side % self.multiple.max(1)).max(self.least());
        Size { width: side, height: side }
    }

    fn least(self) -> u32 {
        let multiple = self.multiple.max(1);
        self.minimum.max(1).checked_next_multiple_of(multiple).unwrap_or(multiple)
    }

    /// Tiles within the limits that divide both sides of a picture evenly, up to the multiple.
    fn fitting(self, size: Size, overlap: Overlap) -> impl Iterator<Item = Size> {
        let square = self.square().width;
        let (least, most) = (square / ASPECT, square.saturating_mul(ASPECT));
        let widths = (0..=WIDTHS).map(move |step| {
            let between = u64::from(most - least) * u64::from(step) / u64::from(WIDTHS);
            least + u32::try_from(between).unwrap_or(u32::MAX)
        });
        widths.filter_map(move |width| {
            let width = self.even(size.width, width, overlap)?;
            let height = u32::try_from(self.pixels / u64::from(width)).unwrap_or(most).min(most);
            let height = height.min(self.height.max(self.least()));
            Some(Size { width, height: self.even(size.height, height, overlap)? })
        })
    }

    /// The length of the fewest tiles that cover `length`, each at most `most` long; `None` if there is none.
    fn even(self, length: u32, most: u32, overlap: Overlap) -> Option<u32> {
        let multiple = self.multiple.max(1);
        let most = most - most % multiple;
        let axis = Axis::new(length, most, overlap).ok().filter(|_| most >= self.least())?;
        let Axis { whole, count, .. } = axis.for_sides(overlap, self.minimum, multiple);
        let shared = overlap.pixels.checked_next_multiple_of(multiple)?;
        let covered = u64::from(whole) + u64::from(count - 1) * u64::from(shared);
        let even = covered.div_ceil(u64::from(count)).checked_next_multiple_of(multiple.into())?;
        Some(u32::try_from(even).ok()?.clamp(self.least(), most))
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
    /// Whether the ends of tiles, which the cut changes most, are thrown away.
    is_near: bool,
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
        let columns = Axis::new(size.width, tile.width, overlap)?;
        let rows = Axis::new(size.height, tile.height, overlap)?;
        let overlap_is_exact = overlap.is_exact(receptive_field);
        let is_near = receptive_field.is_some() && overlap.margin >= NEAR_PIXELS / 3;
        Ok(Self { columns, rows, tile, overlap, scale, overlap_is_exact, is_near })
    }

    /// Plans tiles for a network that accepts any size. All tiles of a picture have the size that computes the fewest
    /// pixels. A picture within these limits is one tile, unless one of its sides is longer than
    /// four times the square tile's.
    ///
    /// # Errors
    /// As [`TilePlan::new`]; [`TilingError::TooFewPixels`] if the smallest tile has more pixels than allowed.
    pub fn fitted(
        size: Size,
        sides: AnySize,
        overlap: Overlap,
        scale: u32,
        receptive_field: Option<u32>,
    ) -> Result<Self> {
        overlap.validate(sides.square().width)?;
        let plan = |tile| Self::new(size, tile, overlap, scale, receptive_field);
        let plans = sides.fitting(size, overlap).map(|tile| Ok(plan(tile)?.for_sides(sides.minimum, sides.multiple)));
        let plans = plans.collect::<Result<Vec<_>>>()?;
        // Among plans with equal pixels, the plan with fewer tiles; then the plan with lower tiles, which keep fewer
        // rows.
        let best = plans.into_iter().min_by_key(|plan| (plan.pixels(), plan.count(), plan.tile.height));
        let least = sides.least();
        let too_few = TilingError::TooFewPixels { pixels: sides.pixels, least: Size { width: least, height: least } };
        Ok(best.ok_or(too_few)?)
    }

    /// The same plan for a network that accepts only sides of at least `minimum` that are multiples of `multiple`. The
    /// network extends other pictures itself, and works in blocks of `multiple` pixels. Tiles begin with a block.
    #[must_use]
    pub fn for_sides(mut self, minimum: u32, multiple: u32) -> Self {
        self.columns = self.columns.for_sides(self.overlap, minimum, multiple);
        self.rows = self.rows.for_sides(self.overlap, minimum, multiple);
        self
    }

    /// The plan that takes the least time. Exact plans are preferred, then plans that differ from the network on the
    /// whole picture only where tiles are filled up. But a plan whose joints hardly differ from the whole picture
    /// (docs/benchmarks.md has figures) comes first if it saves more than a fifth of the time.
    ///
    /// Each candidate comes with the seconds that one of its tiles takes, or with `None`. Without times, the cost is
    /// the number of pixels of all tiles, and among equal plans the one with the largest tile is taken.
    ///
    /// # Errors
    /// The last candidate's error if none gives a plan; [`TilingError`] if there is no candidate.
    pub fn best(candidates: impl IntoIterator<Item = (Result<Self>, Option<f64>)>) -> Result<Self> {
        let (mut plans, mut error) = (Vec::new(), TilingError::NoShape.into());
        for (candidate, seconds) in candidates {
            match candidate {
                Ok(plan) => {
                    let pixels = plan.pixels() as f64;
                    plans.push((plan, seconds.map_or(pixels, |seconds| plan.count() as f64 * seconds)));
                }
                Err(refused) => error = refused,
            }
        }
        let joins_well = |plan: &Self| plan.cuts_nothing() || plan.is_near;
        let costs = plans.iter().filter(|(plan, _)| joins_well(plan)).map(|(_, cost)| *cost);
        let dearest = costs.fold(f64::INFINITY, f64::min) * PREFERRED_COST;
        let rank = |(plan, cost): &(Self, f64)| {
            (joins_well(plan) && *cost > dearest, !plan.is_exact(), !plan.cuts_nothing(), *cost)
        };
        let order = |one: &(Self, f64), other: &(Self, f64)| {
            let (a, b) = (rank(one), rank(other));
            let order = (a.0, a.1, a.2).cmp(&(b.0, b.1, b.2)).then(a.3.total_cmp(&b.3));
            order.then(other.0.tile.pixels().cmp(&one.0.tile.pixels()))
        };
        plans.into_iter().min_by(order).map(|(plan, _)| plan).ok_or(error)
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

    /// Whether the tiled output equals the network's output for the whole picture, up to the engine's rounding.
    ///
    /// A tile that is larger than the picture is filled up with mirrored pixels. The network itself extends its input
    /// in another way at the borders, mostly by zeros within each layer, so the output near the borders differs.
    pub fn is_exact(&self) -> bool {
        self.cuts_nothing() && !self.columns.is_filled() && !self.rows.is_filled()
    }

    /// Whether no inner border of a tile is within a receptive field.
    fn cuts_nothing(&self) -> bool {
        self.overlap_is_exact || self.count() == 1
    }

    /// Number of tiles.
    pub fn count(&self) -> u64 {
        u64::from(self.columns.count) * u64::from(self.rows.count)
    }

    /// Input pixels of all tiles together.
    pub fn pixels(&self) -> u64 {
        self.count().saturating_mul(self.tile.pixels())
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
        assert_eq!(Overlap::automatic(Some(18), SQUARE), Overlap { pixels: 36, margin: 18 });
        assert_eq!(Overlap::automatic(Some(32), SQUARE), Overlap { pixels: 64, margin: 32 });
        assert_eq!(Overlap::automatic(Some(33), SQUARE), Overlap { pixels: 24, margin: 8 });
        assert_eq!(Overlap::automatic(Some(33), Size { width: 64, height: 256 }), Overlap { pixels: 24, margin: 8 });
        let unbounded = [64, 128, 256, 512].map(|side| Overlap::automatic(None, Size { width: side, height: 512 }));
        assert_eq!(unbounded.map(|overlap| overlap.pixels), [16, 32, 32, 64]);
        assert_eq!(Overlap::automatic(Some(u32::MAX), SQUARE), Overlap { pixels: 24, margin: 8 });
    }

    #[test]
    fn what_the_user_sets_is_kept_or_refused() {
        let choose = |pixels, margin| Overlap::choose(pixels, margin, Some(18), SQUARE);
        assert_eq!(choose(Some(20), None).unwrap(), Overlap { pixels: 20, margin: 10 });
        assert_eq!(choose(Some(80), None).unwrap(), Overlap { pixels: 80, margin: 18 });
        assert_eq!(choose(None, Some(4)).unwrap(), Overlap { pixels: 36, margin: 4 });
        assert!(choose(Some(256), None).is_err());
        assert!(choose(Some(20), Some(11)).is_err());
    }

    #[test]
    fn no_more_pixels_wait_than_the_shortest_step_leaves() {
        let waiting = |length, pixels, margin| Axis::new(length, 40, Overlap { pixels, margin }).unwrap();
        // Steps of 30, so 10 pixels of a tile are covered again, and 3 of these are thrown away.
        assert_eq!(waiting(100, 10, 3).unsettled_maximum(), 7);
        // Steps of 22 and 23.
        assert_eq!(waiting(85, 10, 0).unsettled_maximum(), 18);
        assert_eq!(waiting(40, 10, 3).unsettled_maximum(), 0);
    }

    #[test]
    fn some_tile_that_divides_a_large_picture_has_nearly_all_pixels_that_are_allowed() {
        let picture = Size { width: 4000, height: 4000 };
        let tiles = any_size(256).fitting(picture, Overlap { pixels: 0, margin: 0 });
        let most = tiles.map(Size::pixels).max().unwrap();
        assert!((62_000..=65_536).contains(&most), "{most}");
        // With few rows, they are wide.
        let flat = AnySize { height: 64, ..any_size(256) };
        let most = flat.fitting(picture, Overlap { pixels: 0, margin: 0 }).map(Size::pixels).max().unwrap();
        assert!((60_000..=65_536).contains(&most), "{most}");
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
        // A network for multiples of 8 with a minimum of 8.
        assert!(plan(250, 249).for_sides(8, 8).is_exact() && !plan(250, 248).for_sides(8, 8).is_exact());
        assert!(plan(64, 65).for_sides(256, 8).is_exact());
    }

    #[test]
    fn tiles_begin_with_blocks_and_end_with_the_last_one() {
        let axis = |length, overlap, multiple| {
            let overlap = Overlap { pixels: overlap, margin: 0 };
            let axis = Axis::new(length, 64, overlap).unwrap().for_sides(overlap, 1, multiple);
            ((0..axis.count()).map(|index| axis.start(index)).collect::<Vec<_>>(), axis.is_filled())
        };
        assert_eq!(axis(100, 8, 1), (vec![0, 36], false));
        // The whole picture has 104 pixels in the network, as 13 blocks.
        assert_eq!(axis(100, 8, 8), (vec![0, 40], false));
        assert_eq!(axis(65, 8, 8), (vec![0, 8], false));
        assert_eq!(axis(170, 8, 8), (vec![0, 56, 112], false));
        // An overlap that is no multiple leaves shorter steps.
        assert_eq!(axis(170, 10, 8), (vec![0, 32, 72, 112], false));
        assert_eq!((axis(57, 8, 8), axis(56, 8, 8)), ((vec![0], false), (vec![0], true)));
        // No room for blocks, and tiles that are none.
        assert_eq!(axis(66, 60, 8), (vec![0, 2], false));
        assert_eq!(axis(100, 8, 7), (vec![0, 36], false));
    }

    #[test]
    fn the_least_work_is_chosen_and_what_is_exact_before_it() {
        let tile = |width, height| Size { width, height };
        let best = |width, height, radius| {
            let plan = |tile| TilePlan::new(Size { width, height }, tile, Overlap::automatic(radius, tile), 4, radius);
            // The smaller tiles have no room for an overlap of 24 pixels.
            let best = TilePlan::best([tile(256, 256), tile(32, 32), tile(64, 32)].map(|tile| (plan(tile), None)))
                .unwrap()
                .tile();
            (best.width, best.height)
        };
        assert_eq!(best(32, 32, Some(18)), (32, 32));
        assert_eq!(best(33, 30, Some(18)), (64, 32));
        assert_eq!(best(30, 33, Some(18)), (256, 256));
        // Smaller tiles would have less to compute, but their overlap does not cover the receptive field.
        assert_eq!(best(1000, 10, Some(18)), (256, 256));
        assert_eq!(best(1000, 10, None), (64, 32));
        // Tiles of this picture hardly differ at their joints, and save half of the work.
        let size = Size { width: 1280, height: 720 };
        let plan = |tile| TilePlan::new(size, tile, Overlap::automatic(Some(96), tile), 4, Some(96));
        let plans = [tile(1024, 1024), tile(672, 400), tile(64, 64)].map(|tile| (plan(tile), None));
        assert_eq!(TilePlan::best(plans).unwrap().tile(), tile(672, 400));
        assert!(TilePlan::best([]).is_err());
        let measured = [(tile(64, 64), 1.0), (tile(256, 256), 9.0)].map(|(tile, seconds)| {
            let size = Size { width: 256, height: 256 };
            (TilePlan::new(size, tile, Overlap::automatic(None, tile), 4, None), Some(seconds))
        });
        assert_eq!(TilePlan::best(measured).unwrap().tile(), tile(256, 256));
    }

    #[test]
    fn measured_times_count_for_every_tile_and_a_quarter_is_given_for_exactness() {
        let size = Size { width: 512, height: 512 };
        let plan = |side, overlap, radius| {
            TilePlan::new(size, Size { width: side, height: side }, overlap, 4, Some(radius)).unwrap()
        };
        let fastest = |plans: [(TilePlan, f64); 2]| {
            let plans = plans.map(|(plan, seconds)| (Ok(plan), Some(seconds)));
            TilePlan::best(plans).unwrap().tile().width
        };
        // 4 tiles of 10 seconds, and 1 tile of 45 seconds.
        let [four, one] = [256, 512].map(|side| plan(side, Overlap { pixels: 0, margin: 0 }, 0));
        assert_eq!((four.count(), one.count()), (4, 1));
        assert_eq!(fastest([(one, 45.0), (four, 10.0)]), 256);
        assert_eq!(fastest([(one, 35.0), (four, 10.0)]), 512);
        // Joints that hardly differ, and exact ones that take longer.
        let near = plan(300, Overlap { pixels: 24, margin: 8 }, 18);
        let exact = plan(310, Overlap { pixels: 36, margin: 18 }, 18);
        assert_eq!((near.count(), exact.count()), (4, 4));
        assert_eq!(fastest([(near, 100.0), (exact, 125.0)]), 310);
        assert_eq!(fastest([(near, 100.0), (exact, 126.0)]), 300);
    }

    /// The limits of profiles/cpu.yaml.
    fn any_size(side: u64) -> AnySize {
        AnySize { pixels: side * side, height: u32::MAX, minimum: 1, multiple: 1 }
    }

    #[test]
    fn tiles_of_any_size_compute_little_more_than_the_picture() {
        let share = |width, height, side, radius| {
            let (size, sides) = (Size { width, height }, any_size(side));
            let overlap = Overlap::automatic(Some(radius), sides.square());
            let plan = TilePlan::fitted(size, sides, overlap, 4, Some(radius)).unwrap();
            assert!(plan.tile().pixels() <= sides.pixels);
            assert_eq!(plan.is_exact(), radius == 18 || plan.count() == 1, "{plan:?}");
            plan.pixels() as f64 / size.pixels() as f64
        };
        for (width, height) in [(512, 512), (1280, 720), (1920, 1080), (3840, 2160)] {
            for side in [512, 640] {
                let [exact, near] = [18, 96].map(|radius| share(width, height, side, radius));
                assert!(exact <= 1.15 && near <= 1.15, "{width}×{height} in {side}²: {exact}, {near}");
            }
            assert!(share(width, height, 360, 96) <= 1.15, "{width}×{height}");
        }
    }

    #[test]
    fn tiles_of_any_size_are_at_most_four_times_as_long_as_the_square() {
        let size = Size { width: 10_000, height: 10_000 };
        let sides: Vec<_> = any_size(256).fitting(size, Overlap { pixels: 0, margin: 0 }).collect();
        let extent = |of: fn(&Size) -> u32| (sides.iter().map(of).min(), sides.iter().map(of).max());
        assert_eq!(extent(|tile| tile.width), (Some(64), Some(1000)));
        assert_eq!(extent(|tile| tile.height), (Some(65), Some(1000)));
    }

    #[test]
    fn a_small_picture_is_one_tile_of_its_own_size() {
        let tile = |width, height, sides| {
            let overlap = Overlap::automatic(Some(18), any_size(256).square());
            let plan = TilePlan::fitted(Size { width, height }, sides, overlap, 4, Some(18)).unwrap();
            assert_eq!(plan.count(), 1);
            (plan.tile().width, plan.tile().height, plan.is_exact())
        };
        assert_eq!(tile(1, 1, any_size(256)), (1, 1, true));
        assert_eq!(tile(512, 128, any_size(256)), (512, 128, true));
        // A network for multiples of 16, and one that takes nothing smaller than 32, extend the picture themselves.
        assert_eq!(tile(65, 60, AnySize { multiple: 16, ..any_size(256) }), (80, 64, true));
        assert_eq!(tile(10, 60, AnySize { minimum: 32, ..any_size(256) }), (32, 60, true));
    }

    #[test]
    fn a_wide_picture_gets_low_tiles() {
        let (size, sides) = (Size { width: 16384, height: 16384 }, AnySize { height: 256, ..any_size(640) });
        let overlap = Overlap::automatic(Some(18), sides.square());
        let plan = TilePlan::fitted(size, sides, overlap, 4, Some(18)).unwrap();
        assert!(plan.tile().height <= 256 && plan.tile().width > 1024, "{}", plan.tile());
        let share = plan.pixels() as f64 / size.pixels() as f64;
        assert!(share < 1.25, "{share}");
    }

    #[test]
    fn limits_that_hold_no_tile_are_refused() {
        let size = Size { width: 100, height: 100 };
        let fitted = |sides, pixels| TilePlan::fitted(size, sides, Overlap { pixels, margin: 0 }, 4, None);
        assert!(matches!(
            fitted(AnySize { minimum: 32, ..any_size(16) }, 8),
            Err(crate::Error::Tiling(TilingError::TooFewPixels { pixels: 256, .. }))
        ));
        assert!(matches!(fitted(any_size(64), 64), Err(crate::Error::Tiling(TilingError::Overlap { side: 64, .. }))));
    }

    proptest! {
        #[test]
        fn tiles_of_any_size_keep_their_limits(
            width in 1_u32..5000, height in 1_u32..5000, side in 1_u64..300, minimum in 1_u32..64,
            multiple in 1_u32..40, radius in proptest::option::of(0_u32..100), scale in 1_u32..5, rows in 1_u32..600,
        ) {
            let size = Size { width, height };
            let sides = AnySize { pixels: side * side, height: rows, minimum, multiple };
            let overlap = Overlap::automatic(radius, sides.square());
            let Ok(plan) = TilePlan::fitted(size, sides, overlap, scale, radius) else {
                // The least tile has too many pixels, or so few rows that they all overlap.
                prop_assert!(side < u64::from(minimum + multiple) || rows <= overlap.pixels + multiple);
                return Ok(());
            };
            let tile = plan.tile();
            prop_assert!(tile.pixels() <= sides.pixels);
            prop_assert!(tile.height <= rows.max(minimum.next_multiple_of(multiple)));
            for (tile, axis) in [(tile.width, plan.columns()), (tile.height, plan.rows())] {
                prop_assert!(tile % multiple == 0 && tile >= minimum);
                // Only what the network extends itself is filled up.
                let filled = minimum.max(axis.length()).next_multiple_of(multiple);
                prop_assert!(tile <= filled);
                prop_assert_eq!(axis.end(axis.count() - 1), axis.length());
            }
        }

        #[test]
        fn tiles_lie_inside_and_cover_in_order(
            length in 1_u32..2000, tile in 1_u32..300, overlap in 0_u32..299, margin in 0_u32..150,
        ) {
            let pixels = overlap.min(tile - 1);
            let axis = Axis::new(length, tile, Overlap { pixels, margin: margin.min(pixels / 2) }).unwrap();
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
        fn tiles_of_blocks_cover_in_order(
            length in 1_u32..2000, blocks in 1_u32..20, multiple in 1_u32..40, overlap in 0_u32..300,
            minimum in 1_u32..100,
        ) {
            let tile = blocks * multiple;
            let overlap = Overlap { pixels: overlap.min(tile - 1), margin: 0 };
            let axis = Axis::new(length, tile, overlap).unwrap().for_sides(overlap, minimum, multiple);
            prop_assert_eq!((axis.start(0), axis.end(axis.count() - 1)), (0, length));
            let aligned = tile - overlap.pixels >= multiple;
            for index in 0..axis.count() {
                prop_assert!(!aligned || axis.start(index).is_multiple_of(multiple));
                prop_assert!(axis.start(index) < axis.end(index) && axis.end(index) <= length);
                if index > 0 {
                    prop_assert!(axis.start(index) > axis.start(index - 1));
                    prop_assert!(axis.start(index - 1) + tile >= axis.start(index) + overlap.pixels);
                    // Beyond the picture, a tile has only what the network adds to the whole picture.
                    prop_assert!(axis.start(index) + tile < length + multiple);
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
            let sides = AnySize { pixels: tile.pixels(), height: margin, minimum: tile_width, multiple: tile_height };
            let _ = TilePlan::fitted(Size { width, height }, sides, Overlap { pixels, margin }, scale, radius);
            if let Ok(plan) = TilePlan::new(Size { width, height }, tile, Overlap { pixels, margin }, scale, radius) {
                prop_assert!(plan.count() > 0);
                let last = plan.columns().count() - 1;
                prop_assert_eq!(plan.columns().end(last), width);
                let _ = plan.columns().unsettled_maximum();
                let plan = plan.for_sides(pixels, margin);
                prop_assert_eq!(plan.columns().end(plan.columns().count() - 1), width);
                let _ = (plan.columns().unsettled_maximum(), plan.is_exact(), plan.tiles().take(3).count());
            }
        }
    }
}
