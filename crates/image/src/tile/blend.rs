//! Blends tiles into finished rows, in memory that does not depend on the picture's height.
//!
//! Tiles arrive row by row. In each tile, the columns that no later tile of its row adds to are finished at once. The
//! other columns wait in a small carry. In a row of tiles, the rows that no later row of tiles adds to are converted to
//! output samples. The other rows wait in a second carry. Only the carries hold float32.

use std::ops::Range;
use std::{mem, thread};

use super::encoding::SampleEncoding;
use super::plan::{Axis, Tile, TilePlan};
use super::window::Blend;
use crate::error::{Error, Result, TilingError};

/// Bands are handed on in pieces of about this many bytes.
const BAND_BYTES: usize = 4 << 20;

/// The maximum working memory. Pictures that need more are too wide and are refused.
const WORKING_BYTES_MAXIMUM: u64 = 4 << 30;

/// Finished rows of the output.
#[derive(Debug)]
pub struct RowBand {
    /// Number of the first row.
    pub first_row: u32,
    /// Samples, interleaved, as [`Depth`](crate::Depth) says.
    pub bytes: Vec<u8>,
}

/// One axis, in output pixels.
#[derive(Clone, Copy)]
struct Scaled {
    axis: Axis,
    scale: u32,
}

impl Scaled {
    fn start(self, index: u32) -> usize {
        (self.axis.start(index) * self.scale) as usize
    }

    fn end(self, index: u32) -> usize {
        (self.axis.end(index) * self.scale) as usize
    }

    /// The pixels that are finished before tile `index` arrives.
    fn settled_before(self, index: u32) -> usize {
        if index == 0 { 0 } else { self.settled(index - 1) }
    }

    fn settled(self, index: u32) -> usize {
        (self.axis.settled(index) * self.scale) as usize
    }

    /// The end of the pixels that earlier tiles left in a carry.
    fn carried_to(self, index: u32) -> usize {
        if index == 0 { 0 } else { self.end(index - 1) }
    }
}

/// Blends tiles into finished rows.
///
/// ```
/// use tileforge_image::tile::{Blend, Blender, Overlap, SampleEncoding, TilePlan};
/// use tileforge_image::{Depth, Size};
///
/// # fn main() -> tileforge_image::Result<()> {
/// let (image, tile) = (Size { width: 100, height: 60 }, Size { width: 64, height: 60 });
/// let plan = TilePlan::new(image, tile, Overlap { pixels: 16, margin: 0 }, 2, None)?;
/// let encoding = SampleEncoding { range: [0.0, 1.0], depth: Depth::Eight };
/// let mut blender = Blender::new(&plan, Blend::Hann, 1, encoding)?;
/// let mut rows = Vec::new();
/// for tile in plan.tiles() {
///     // What a model gave for this tile: one plane of 128×120.
///     let plane = vec![0.2; 128 * 120];
///     blender.push(tile, &[&plane], |band| {
///         rows.extend(band.bytes);
///         Ok::<_, tileforge_image::Error>(())
///     })?;
/// }
/// // Twice the image, and the weights of tiles sum to one everywhere.
/// assert_eq!(rows, vec![51; 200 * 120]);
/// # Ok(()) }
/// ```
pub struct Blender {
    columns: Scaled,
    rows: Scaled,
    blend: Blend,
    channels: usize,
    encoding: SampleEncoding,
    width: usize,
    /// The tile that must come next.
    next: (u32, u32),
    /// Weights of the columns for each tile of a row, the same in every row of tiles.
    column_weights: Vec<Vec<f32>>,
    /// Weights of the rows of the current row of tiles.
    row_weights: Vec<f32>,
    /// `[tile row, channel, column]`: columns of the current row of tiles that the next tile adds to.
    column_carry: Vec<f32>,
    column_carry_width: usize,
    /// `[row modulo, channel, column]`: rows that the next row of tiles adds to.
    row_carry: Vec<f32>,
    row_carry_height: usize,
    /// The rows that the current row of tiles finishes.
    bands: Vec<RowBand>,
    band_rows: usize,
    spare: Vec<Vec<u8>>,
    /// One for each thread that may be used.
    scratch: Vec<Scratch>,
}

/// The working memory of a thread.
#[derive(Default)]
struct Scratch {
    /// A row of the tile for each channel, one after the other.
    lines: Vec<f32>,
    bytes: Vec<u8>,
}

/// A row of a tile, and what it is added to.
struct Row<'b> {
    y: usize,
    /// For each channel, the columns that the next tile adds to.
    column_carry: &'b mut [f32],
    /// For each channel, the whole row of the picture, if another row of tiles adds to it.
    row_carry: Option<&'b mut [f32]>,
    /// The finished row of the picture, if this row of tiles finishes it.
    finished: Option<&'b mut [u8]>,
}

/// What is the same for all rows of a tile.
struct Across<'b> {
    encoding: SampleEncoding,
    planes: &'b [&'b [f32]],
    /// Samples of a row of a plane.
    stride: usize,
    /// The first row of the tile.
    top: usize,
    /// The tile's columns that are used, and those of them that no later tile adds to, both in the tile.
    used: Range<usize>,
    settled: usize,
    /// The columns of `used` that earlier tiles left in the carry.
    carried: usize,
    /// The same columns as `used`, in the picture.
    column: usize,
    column_weights: &'b [f32],
    row_weights: &'b [f32],
    /// The rows before this one add to what an earlier row of tiles left.
    carried_to: usize,
    width: usize,
    column_carry_width: usize,
}

impl Across<'_> {
    fn add(&self, row: Row<'_>, scratch: &mut Scratch) {
        let Row { y, column_carry, mut row_carry, finished } = row;
        let (used, settled) = (self.used.len(), self.settled - self.used.start);
        scratch.lines.resize(used * self.planes.len(), 0.0);
        let weights = &self.column_weights[self.used.clone()];
        let weight = self.row_weights[y - self.top];
        for (channel, (plane, line)) in self.planes.iter().zip(scratch.lines.chunks_exact_mut(used)).enumerate() {
            let source = &plane[(y - self.top) * self.stride..][self.used.clone()];
            for (sum, (value, weight)) in line.iter_mut().zip(source.iter().zip(weights)) {
                *sum = value * weight;
            }
            let carry = &mut column_carry[channel * self.column_carry_width..][..self.column_carry_width];
            for (value, carried) in line[..self.carried].iter_mut().zip(carry.iter()) {
                *value += carried;
            }
            carry[..used - settled].copy_from_slice(&line[settled..]);
            // A row that only one row of tiles covers has weight one.
            if let Some(row_carry) = &mut row_carry {
                let carry = &mut row_carry[channel * self.width + self.column..][..settled];
                let carried = y < self.carried_to;
                for (value, carry) in line.iter_mut().zip(carry) {
                    *value = *value * weight + if carried { *carry } else { 0.0 };
                    if finished.is_none() {
                        *carry = *value;
                    }
                }
            }
        }
        if let Some(finished) = finished {
            let rows: Vec<&[f32]> = scratch.lines.chunks_exact(used).map(|line| &line[..settled]).collect();
            let pixel = self.planes.len() * self.encoding.depth.bytes();
            let into = &mut finished[self.column * pixel..][..settled * pixel];
            self.encoding.encode(&rows, into, &mut scratch.bytes);
        }
    }
}

/// A thread for fewer samples would cost more than it saves.
const SAMPLES_OF_A_THREAD: usize = 1 << 20;
/// More threads would wait for the machine's memory.
const THREADS_MAXIMUM: usize = 8;

/// Adds all rows, on as many threads as there are `scratch` if there is enough to add.
fn add_rows(across: &Across<'_>, mut rows: Vec<Row<'_>>, scratch: &mut [Scratch]) {
    let samples = rows.len() * across.used.len() * across.planes.len();
    let threads = (samples / SAMPLES_OF_A_THREAD).clamp(1, scratch.len());
    let of_a_thread = rows.len().div_ceil(threads).max(1);
    thread::scope(|scope| {
        let mut own = None;
        for scratch in scratch.iter_mut().take(threads) {
            let rest = rows.split_off(of_a_thread.min(rows.len()));
            let part = mem::replace(&mut rows, rest);
            let add = move || part.into_iter().for_each(|row| across.add(row, scratch));
            // The last part is this thread's.
            if rows.is_empty() {
                own = Some(add);
                break;
            }
            scope.spawn(add);
        }
        own.into_iter().for_each(|add| add());
    });
}

impl Blender {
    /// A blender for the tiles of `plan` with `channels` planes each.
    ///
    /// # Errors
    /// [`Error::Tiling`] for an image so wide that its rows do not fit in memory.
    pub fn new(plan: &TilePlan, blend: Blend, channels: usize, encoding: SampleEncoding) -> Result<Self> {
        let threads = thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAXIMUM);
        let scale = plan.scale();
        let (columns, rows) = (*plan.columns(), *plan.rows());
        let width = columns.length() as usize * scale as usize;
        let column_carry_width = columns.unsettled_maximum() as usize * scale as usize;
        let row_carry_height = rows.unsettled_maximum() as usize * scale as usize;
        let tile_height = rows.settled_maximum() as usize * scale as usize;

        let product = |factors: &[usize]| factors.iter().map(|&factor| factor as u64).try_fold(1_u64, u64::checked_mul);
        let parts = [
            product(&[4, row_carry_height, channels, width]),
            product(&[4, tile_height, channels, column_carry_width]),
            product(&[4, columns.count() as usize, columns.settled_maximum() as usize, scale as usize]),
            // One band is blended while the previous one is encoded.
            product(&[2, tile_height, channels, width, encoding.depth.bytes()]),
        ];
        let working_bytes = parts.into_iter().try_fold(0_u64, |sum, part| sum.checked_add(part?));
        if working_bytes.is_none_or(|bytes| bytes > WORKING_BYTES_MAXIMUM) {
            return Err(TilingError::Memory { width, most: WORKING_BYTES_MAXIMUM }.into());
        }
        Ok(Self {
            columns: Scaled { axis: columns, scale },
            rows: Scaled { axis: rows, scale },
            blend,
            channels,
            encoding,
            width,
            next: (0, 0),
            column_weights: (0..columns.count()).map(|column| columns.window(column, scale, blend)).collect(),
            row_weights: Vec::new(),
            column_carry: vec![0.0; tile_height * channels * column_carry_width],
            column_carry_width,
            row_carry: vec![0.0; row_carry_height * channels * width],
            row_carry_height,
            bands: Vec::new(),
            band_rows: (BAND_BYTES / (width * channels * encoding.depth.bytes())).max(1),
            spare: Vec::new(),
            scratch: (0..threads).map(|_| Scratch::default()).collect(),
        })
    }

    /// Takes back the bytes of a band, to use them for a later band.
    pub fn recycle(&mut self, bytes: Vec<u8>) {
        self.spare.push(bytes);
    }

    /// Whether all rows have been handed on.
    pub fn is_complete(&self) -> bool {
        self.next.1 == self.rows.axis.count()
    }

    /// The number of bands that one row of tiles finishes. The first and the last row of tiles may differ.
    pub fn bands_of_a_row(&self) -> usize {
        let rows = &self.rows.axis;
        let finished = if rows.count() == 1 { rows.length() } else { rows.start(1) };
        (finished as usize * self.rows.scale as usize).div_ceil(self.band_rows)
    }

    /// Adds the next tile, in the order of [`TilePlan::tiles`]: one plane for each channel, each `[height, width]` of
    /// a whole tile's output. After the last tile of a row, `sink` receives the finished rows.
    ///
    /// # Errors
    /// [`Error::NotFinite`] for values that are not finite; [`Error::Tiling`] for a tile that is out of order, or
    /// planes of another size; any error of `sink`.
    pub fn push<E: From<Error>>(
        &mut self,
        tile: Tile,
        planes: &[&[f32]],
        mut sink: impl FnMut(RowBand) -> Result<(), E>,
    ) -> Result<(), E> {
        self.check(tile, planes)?;
        if tile.column == 0 {
            self.begin_row(tile.row);
        }
        self.add(tile, planes);
        self.next = (tile.column + 1, tile.row);
        if self.next.0 == self.columns.axis.count() {
            self.next = (0, tile.row + 1);
            self.bands.drain(..).try_for_each(&mut sink)?;
        }
        Ok(())
    }

    fn check(&self, tile: Tile, planes: &[&[f32]]) -> Result<()> {
        let plane = (self.columns.axis.tile() * self.columns.scale) as usize
            * (self.rows.axis.tile() * self.rows.scale) as usize;
        if (tile.column, tile.row) != self.next
            || planes.len() != self.channels
            || planes.iter().any(|p| p.len() != plane)
        {
            return Err(TilingError::OutOfTurn.into());
        }
        if !planes.iter().all(|plane| is_finite(plane)) {
            return Err(Error::NotFinite { x: tile.x, y: tile.y });
        }
        Ok(())
    }

    fn begin_row(&mut self, row: u32) {
        self.row_weights = self.rows.axis.window(row, self.rows.scale, self.blend);
        let row_bytes = self.width * self.channels * self.encoding.depth.bytes();
        let (mut from, to) = (self.rows.settled_before(row), self.rows.settled(row));
        while from < to {
            let rows = self.band_rows.min(to - from);
            let mut bytes = self.spare.pop().unwrap_or_default();
            bytes.resize(rows * row_bytes, 0);
            self.bands.push(RowBand { first_row: from as u32, bytes });
            from += rows;
        }
    }

    fn add(&mut self, tile: Tile, planes: &[&[f32]]) {
        let left = self.columns.start(tile.column);
        let from = self.columns.settled_before(tile.column);
        let top = self.rows.start(tile.row);
        let (first, settled, end) =
            (self.rows.settled_before(tile.row), self.rows.settled(tile.row), self.rows.end(tile.row));
        let carried_to = self.rows.carried_to(tile.row).clamp(first, end);
        let across = Across {
            encoding: self.encoding,
            planes,
            stride: (self.columns.axis.tile() * self.columns.scale) as usize,
            top,
            used: from - left..self.columns.end(tile.column) - left,
            settled: self.columns.settled(tile.column) - left,
            carried: self.columns.carried_to(tile.column).saturating_sub(from),
            column: from,
            column_weights: &self.column_weights[tile.column as usize],
            row_weights: &self.row_weights,
            carried_to,
            width: self.width,
            column_carry_width: self.column_carry_width,
        };
        let row_bytes = self.width * self.channels * self.encoding.depth.bytes();
        let mut finished = self.bands.iter_mut().flat_map(|band| band.bytes.chunks_exact_mut(row_bytes));
        let mut column_carry = self.column_carry.as_mut_slice();
        let column_length = self.channels * self.column_carry_width;
        skip(&mut column_carry, (first - top) * column_length);
        // Two rows share a place in the carry only if the first of them leaves it before the other arrives.
        for part in [first..carried_to, carried_to..end] {
            let mut row_carry: Vec<Option<&mut [f32]>> =
                self.row_carry.chunks_exact_mut(self.channels * self.width).map(Some).collect();
            let rows = part.map(|y| {
                let is_finished = y < settled;
                let waits_or_carried = !is_finished || y < carried_to;
                let place = waits_or_carried.then(|| row_carry[y % self.row_carry_height].take());
                Row {
                    y,
                    column_carry: skip(&mut column_carry, column_length),
                    row_carry: place.flatten(),
                    finished: if is_finished { finished.next() } else { None },
                }
            });
            let rows = rows.collect();
            add_rows(&across, rows, &mut self.scratch);
        }
    }
}

/// Takes the first `length` elements off.
fn skip<'s, T>(slice: &mut &'s mut [T], length: usize) -> &'s mut [T] {
    let (first, rest) = mem::take(slice).split_at_mut(length);
    *slice = rest;
    first
}

/// Whether no value is infinite or NaN.
fn is_finite(values: &[f32]) -> bool {
    // Zero times a finite number is zero, and zero times NaN or infinity is NaN, so the sums need no branches. Several
    // sums do not wait for each other.
    let (chunks, rest) = values.as_chunks::<16>();
    let mut sums = [0.0_f32; 16];
    for chunk in chunks {
        sums.iter_mut().zip(chunk).for_each(|(sum, value)| *sum += value * 0.0);
    }
    sums.iter().chain(rest).map(|value| value * 0.0).sum::<f32>() == 0.0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::plan::Overlap;
    use super::*;
    use crate::{Depth, Size};

    const EIGHT: SampleEncoding = SampleEncoding { range: [0.0, 1.0], depth: Depth::Eight };
    const SIXTEEN: SampleEncoding = SampleEncoding { range: [0.0, 1.0], depth: Depth::Sixteen };

    /// Cuts the picture `image(x, y, channel)` into tiles, blends them and returns the samples.
    fn blended(
        plan: &TilePlan,
        blend: Blend,
        channels: usize,
        encoding: SampleEncoding,
        image: impl Fn(u32, u32, usize) -> f32,
    ) -> Vec<u8> {
        let mut blender = Blender::new(plan, blend, channels, encoding).unwrap();
        let (scale, mut bytes, mut next_row) = (plan.scale(), Vec::new(), 0);
        let tile_size = plan.tile().scaled(scale).unwrap();
        for tile in plan.tiles() {
            let planes: Vec<Vec<f32>> = (0..channels)
                .map(|channel| {
                    let rows = 0..tile_size.height;
                    rows.flat_map(|y| (0..tile_size.width).map(move |x| (x, y)))
                        .map(|(x, y)| image(tile.x * scale + x, tile.y * scale + y, channel))
                        .collect()
                })
                .collect();
            let planes: Vec<&[f32]> = planes.iter().map(Vec::as_slice).collect();
            let mut given_back = Vec::new();
            assert!(!blender.is_complete());
            blender
                .push(tile, &planes, |band| {
                    assert_eq!(band.first_row, next_row);
                    let row_bytes = (plan.columns().length() * scale) as usize * channels * encoding.depth.bytes();
                    next_row += (band.bytes.len() / row_bytes) as u32;
                    bytes.extend_from_slice(&band.bytes);
                    given_back.push(band.bytes);
                    Ok::<_, Error>(())
                })
                .unwrap();
            given_back.into_iter().for_each(|bytes| blender.recycle(bytes));
        }
        assert!(blender.is_complete());
        bytes
    }

    fn level(x: u32, y: u32, channel: usize) -> u8 {
        (x.wrapping_mul(31) ^ y.wrapping_mul(17)).wrapping_add(channel as u32 * 85) as u8
    }

    /// Large enough for several threads, whatever this machine has: each part of the rows is computed alone.
    #[test]
    fn threads_change_no_sample() {
        let (image, tile) = (Size { width: 700, height: 900 }, Size { width: 512, height: 640 });
        let plan = TilePlan::new(image, tile, Overlap { pixels: 64, margin: 16 }, 2, None).unwrap();
        let value = |x: u32, y: u32, channel: usize| f32::from(level(x, y, channel)) / 255.0;
        let bytes = blended(&plan, Blend::Hann, 3, EIGHT, value);
        for (place, sample) in bytes.iter().enumerate() {
            let (pixel, channel) = (place / 3, place % 3);
            let (x, y) = ((pixel % 1400) as u32, (pixel / 1400) as u32);
            assert_eq!(*sample, level(x, y, channel), "{x} {y}");
        }
    }

    #[test]
    fn nan_is_refused() {
        let size = Size { width: 2, height: 2 };
        let plan = TilePlan::new(size, size, Overlap { pixels: 0, margin: 0 }, 1, None).unwrap();
        let mut blender = Blender::new(&plan, Blend::Hann, 1, EIGHT).unwrap();
        let tile = plan.tiles().next().unwrap();
        let result = blender.push(tile, &[&[0.0, 0.0, f32::NAN, 0.0]], |_| Ok::<_, Error>(()));
        assert!(matches!(result, Err(Error::NotFinite { .. })));
        for place in 0..40 {
            for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let mut values = [f32::MAX; 40];
                assert!(is_finite(&values));
                values[place] = value;
                assert!(!is_finite(&values), "{place} {value}");
            }
        }
    }

    #[test]
    fn neighbours_fade_into_each_other_along_both_axes() {
        let tile = Size { width: 4, height: 4 };
        let overlap = Overlap { pixels: 2, margin: 0 };
        for size in [Size { width: 6, height: 4 }, Size { width: 4, height: 6 }] {
            let plan = TilePlan::new(size, tile, overlap, 1, None).unwrap();
            let mut blender = Blender::new(&plan, Blend::Linear, 1, EIGHT).unwrap();
            let mut found = Vec::new();
            for (tile, value) in plan.tiles().zip([0.0, 1.0]) {
                blender
                    .push(tile, &[&[value; 16]], |band| {
                        found.extend(band.bytes);
                        Ok::<_, Error>(())
                    })
                    .unwrap();
            }
            let faded = [0, 0, 64, 191, 255, 255];
            let expected: Vec<u8> = match size.width {
                6 => faded.repeat(4),
                _ => faded.iter().flat_map(|level| [*level; 4]).collect(),
            };
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn tiles_out_of_turn_and_planes_of_another_size_are_refused() {
        let (size, tile) = (Size { width: 4, height: 2 }, Size { width: 2, height: 2 });
        let plan = TilePlan::new(size, tile, Overlap { pixels: 0, margin: 0 }, 1, None).unwrap();
        let [first, second] = [0, 1].map(|number| plan.tiles().nth(number).unwrap());
        let plane: &[f32] = &[0.0; 4];
        let pushed = |tile, planes: &[&[f32]]| {
            let mut blender = Blender::new(&plan, Blend::Hann, 2, EIGHT).unwrap();
            blender.push(tile, planes, |_| Ok::<_, Error>(()))
        };
        assert!(pushed(first, &[plane, plane]).is_ok());
        for (tile, planes) in [
            (second, &[plane, plane][..]),
            (first, &[plane]),
            (first, &[plane, &plane[..3]]),
            (first, &[plane, plane, plane]),
        ] {
            let refused = pushed(tile, planes);
            assert!(matches!(refused, Err(Error::Tiling(TilingError::OutOfTurn))), "{refused:?}");
        }
    }

    #[test]
    fn rows_are_handed_on_in_pieces_of_four_mebibytes() {
        let tile = Size { width: 2000, height: 3000 };
        let bands = |height, scale| {
            let overlap = Overlap { pixels: 16, margin: 0 };
            let plan = TilePlan::new(Size { height, ..tile }, tile, overlap, scale, None).unwrap();
            Blender::new(&plan, Blend::Hann, 3, EIGHT).unwrap().bands_of_a_row()
        };
        // A piece has 699 rows of 6000 bytes.
        assert_eq!(bands(3000, 1), 5);
        // A piece has 349 rows of 12000 bytes. The second row of tiles begins at row 2984 of the input.
        assert_eq!(bands(5984, 2), 18);
    }

    #[test]
    fn an_image_that_is_too_wide_is_refused() {
        let size = Size { width: 400_000_000, height: 1 };
        let tile = Size { width: 256, height: 256 };
        let plan = TilePlan::new(size, tile, Overlap { pixels: 32, margin: 0 }, 4, None).unwrap();
        assert!(Blender::new(&plan, Blend::Hann, 3, EIGHT).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn tiles_of_one_image_blend_to_that_image(
            width in 1_u32..90, height in 1_u32..90, tile in 1_u32..40, pixels in 0_u32..39, margin in 0_u32..20,
            scale in 1_u32..3, channels in 1_usize..4, sixteen: bool,
            blend in proptest::sample::select(&[Blend::Hann, Blend::Cosine, Blend::Linear, Blend::None][..]),
        ) {
            let pixels = pixels.min(tile - 1);
            let overlap = Overlap { pixels, margin: margin.min(pixels / 2) };
            let size = Size { width, height };
            let plan = TilePlan::new(size, Size { width: tile, height: tile }, overlap, scale, None).unwrap();
            let encoding = if sixteen { SIXTEEN } else { EIGHT };
            let found = blended(&plan, blend, channels, encoding, |x, y, c| f32::from(level(x, y, c)) / 255.0);
            let expected = (0..height * scale).flat_map(|y| (0..width * scale).flat_map(move |x| {
                (0..channels).map(move |channel| level(x, y, channel))
            }));
            let found: Vec<u8> = if sixteen {
                // 257 · level, up to the rounding of the blend.
                let (pairs, _) = found.as_chunks::<2>();
                pairs.iter().map(|pair| ((u32::from(u16::from_be_bytes(*pair)) + 128) / 257) as u8).collect()
            } else {
                found
            };
            prop_assert!(expected.eq(found));
        }
    }
}
