//! Winograd's F(4×4, 3×3): 4×4 results of a 3×3 convolution from 6×6 values, by 36 products for each channel.
//!
//! Three linear maps make a convolution a product of each place: of the values (6×6 to 6×6), of the weights (3×3 to
//! 6×6) and of the sums over the channels (6×6 to 4×4). They come from polynomials that are evaluated in the points 0,
//! ±[`A`], ±[`B`] and infinity. These two points give half of the rounding error that the usual 1 and 2 give, and all
//! constants made of them are exact.
//!
//! The work is cut into blocks of 16×16 results. A block's 4×4 tiles are the places of a vector.
#![allow(unsafe_code)]
#![allow(clippy::needless_range_loop, reason = "a column of an array of rows has no iterator")]

use crate::kind::Kind;
use crate::products::products;
use crate::simd::{GROUP, LANES, Simd, Work, padded};
use crate::units::Units;

const A: f64 = 0.75;
const B: f64 = 1.5;
/// Values of a tile, along each axis.
pub(crate) const VALUES: usize = 6;
/// Places of a tile's values.
pub(crate) const PLACES: usize = VALUES * VALUES;
/// Results of a block, along each axis.
pub(crate) const BLOCK: usize = 16;
/// Rows of values that a block needs.
const ROWS: usize = BLOCK + 2;
/// Values of each row that are read: a block needs 18 of them.
const COLUMNS: usize = BLOCK + 4;

/// The map of the weights: a row for each point.
fn of_weights() -> [[f64; 3]; VALUES] {
    let (a2, b2) = (A * A, B * B);
    let at = |point: f64, divisor: f64| [1.0 / divisor, point / divisor, point * point / divisor];
    let (of_a, of_b) = (2.0 * a2 * (a2 - b2), 2.0 * b2 * (b2 - a2));
    [at(0.0, a2 * b2), at(A, of_a), at(-A, of_a), at(B, of_b), at(-B, of_b), [0.0, 0.0, 1.0]]
}

/// Weights of `[outputs, inputs, 3, 3]` as `[place, group of outputs, inputs, output of the group]`. Outputs are filled
/// up with zeros to whole groups.
/// `zeros` gives the memory.
pub(crate) fn transformed<E>(
    weights: &[f32],
    outputs: usize,
    inputs: usize,
    zeros: impl FnOnce(usize) -> Result<Vec<f32>, E>,
) -> Result<Vec<f32>, E> {
    let groups = outputs.div_ceil(GROUP);
    let map = of_weights();
    let mut transformed = zeros(PLACES * groups * inputs * GROUP)?;
    for group in 0..groups {
        for input in 0..inputs {
            // The taps of a group's outputs, side by side.
            let mut taps = [[0.0; GROUP]; 9];
            for (place, output) in (group * GROUP..outputs.min((group + 1) * GROUP)).enumerate() {
                let of_output = &weights[(output * inputs + input) * 9..][..9];
                for (taps, value) in taps.iter_mut().zip(of_output) {
                    taps[place] = f64::from(*value);
                }
            }
            let rows = map.map(|factors| [0, 1, 2].map(|x| weighted(factors, [taps[x], taps[3 + x], taps[6 + x]])));
            for place in 0..PLACES {
                let values = weighted(map[place % VALUES], rows[place / VALUES]);
                let to = ((place * groups + group) * inputs + input) * GROUP;
                for (to, value) in transformed[to..to + GROUP].iter_mut().zip(values) {
                    *to = value as f32;
                }
            }
        }
    }
    Ok(transformed)
}

/// The sums of three numbers with factors, for the outputs of a group.
fn weighted(factors: [f64; 3], values: [[f64; GROUP]; 3]) -> [f64; GROUP] {
    std::array::from_fn(|at| factors[0] * values[0][at] + factors[1] * values[1][at] + factors[2] * values[2][at])
}

/// Some of the channels of a batch.
pub(crate) struct Part {
    /// `samples · channels · height · width` values.
    pub(crate) values: *const f32,
    pub(crate) channels: usize,
}

/// A convolution of one batch, for all units of it.
pub(crate) struct Job<'j> {
    /// The channels of the values, one part after the other: `inputs` in all.
    pub(crate) parts: Vec<Part>,
    /// `samples · outputs · result_height · result_width` results, which nothing else reads or writes.
    pub(crate) results: *mut f32,
    pub(crate) samples: usize,
    pub(crate) inputs: usize,
    pub(crate) outputs: usize,
    pub(crate) height: usize,
    pub(crate) width: usize,
    /// Rows of zeros above the values.
    pub(crate) top: usize,
    /// Columns of zeros before the values.
    pub(crate) left: usize,
    pub(crate) result_height: usize,
    pub(crate) result_width: usize,
    /// Of [`transformed`].
    pub(crate) weights: &'j [f32],
    /// One for each output.
    pub(crate) bias: &'j [f32],
    /// What a result of each output is multiplied by where it is negative, and elsewhere.
    pub(crate) negative: &'j [f32],
    pub(crate) positive: &'j [f32],
}

// SAFETY: no two units write the same results, and nothing writes what they read.
unsafe impl Sync for Job<'_> {}

/// A block of results.
#[derive(Clone, Copy)]
struct Block {
    sample: usize,
    /// Its first row and column of results.
    y: usize,
    x: usize,
    /// Whether all that is read for it are values.
    is_inside: bool,
    /// The first of the rows and columns that are read for it and are values, and that after the last.
    rows: (usize, usize),
    columns: (usize, usize),
}

impl Job<'_> {
    fn blocks_across(&self) -> usize {
        self.result_width.div_ceil(BLOCK)
    }

    pub(crate) fn blocks(&self) -> usize {
        self.samples * self.result_height.div_ceil(BLOCK) * self.blocks_across()
    }

    fn block(&self, number: usize) -> Option<Block> {
        if number >= self.blocks() {
            return None;
        }
        let across = self.blocks_across();
        let (row, x) = (number / across, number % across);
        let down = self.result_height.div_ceil(BLOCK);
        let (y, x) = (row % down * BLOCK, x * BLOCK);
        let within = |at: usize, pad: usize, length: usize, read: usize| {
            (pad.saturating_sub(at), (length + pad).saturating_sub(at).min(read))
        };
        let rows = within(y, self.top, self.height, ROWS);
        let columns = within(x, self.left, self.width, COLUMNS);
        let is_inside = rows == (0, ROWS) && columns == (0, COLUMNS);
        Some(Block { sample: row / down, y, x, is_inside, rows, columns })
    }

    fn padded_outputs(&self) -> usize {
        self.weights.len() / (PLACES * self.inputs)
    }
}

/// An array of an expression's values for the numbers 0 to 3, or 0 to 5. The compiler does not inline closures into
/// functions whose instructions most processors lack.
macro_rules! each {
    (4, $number:ident => $value:expr) => {
        each!([0, 1, 2, 3], $number => $value)
    };
    (6, $number:ident => $value:expr) => {
        each!([0, 1, 2, 3, 4, 5], $number => $value)
    };
    ([$($numbers:literal),+], $number:ident => $value:expr) => {
        [$({
            let $number = $numbers;
            $value
        }),+]
    };
}

/// The floats between two places in the scratch memory, of so many channels.
fn step(channels: usize, lanes: usize) -> usize {
    padded(channels * lanes)
}

/// The floats of scratch memory that a unit needs for so many channels, with those of outputs filled up to groups.
pub(crate) fn scratch(inputs: usize, outputs: usize, blocks: usize) -> usize {
    let lanes = blocks * LANES;
    PLACES * (step(inputs, lanes) + step(outputs.next_multiple_of(GROUP), lanes))
        + blocks * ROWS * COLUMNS
        + BLOCK * BLOCK
}

impl Units for Job<'_> {
    unsafe fn unit(&self, kind: Kind, unit: usize, scratch: &mut [f32]) {
        // SAFETY: as the caller promises.
        unsafe { kind.run(self, unit, scratch) }
    }
}

impl Work for Job<'_> {
    /// Computes the blocks `unit · BLOCKS` to `(unit + 1) · BLOCKS`. The job's pointers must be valid for what its
    /// sizes say, and the scratch memory of [`scratch`] floats at least.
    #[inline(always)]
    unsafe fn run<S: Simd, const BLOCKS: usize, const SUMS: usize, const _ROWS: usize>(
        &self,
        unit: usize,
        scratch: &mut [f32],
    ) {
        let (inputs, outputs) = (self.inputs, self.padded_outputs());
        let lanes = BLOCKS * LANES;
        let (of_values, of_sums) = (step(inputs, lanes), step(outputs, lanes));
        let (values, rest) = scratch.split_at_mut(PLACES * of_values);
        let (sums, rest) = rest.split_at_mut(PLACES * of_sums);
        let (windows, rest) = rest.split_at_mut(BLOCKS * ROWS * COLUMNS);
        let written = &mut rest[..BLOCK * BLOCK];
        let blocks = each_block::<BLOCKS>(self, unit);
        for (block, window) in blocks.into_iter().flatten().zip(windows.chunks_exact_mut(ROWS * COLUMNS)) {
            if !block.is_inside {
                window.fill(0.0);
            }
        }
        // Blocks of a unit are neighbours, and so are their rows of a channel.
        let channels = self.parts.iter().flat_map(|part| (0..part.channels).map(move |channel| (part, channel)));
        for (input, (part, channel)) in channels.enumerate() {
            for (place, block) in blocks.iter().enumerate() {
                let Some(block) = block else { break };
                let window = &mut windows[place * ROWS * COLUMNS..][..ROWS * COLUMNS];
                let mapped = &mut values[input * lanes + place * LANES..];
                let start = (block.sample * part.channels + channel) * self.height * self.width;
                // SAFETY: the block is one of the job's, and the channel one of the part's. `values` has room for all
                // places of all channels.
                unsafe { read::<S>(self, block, part.values.add(start), window, mapped, of_values) };
            }
        }
        for place in 0..PLACES {
            let weights = &self.weights[place * outputs * inputs..][..outputs * inputs];
            let values = &values[place * of_values..][..inputs * lanes];
            let sums = &mut sums[place * of_sums..][..outputs * lanes];
            // SAFETY: as the caller promises; the slices are of the sizes that it needs.
            unsafe { multiply::<S, BLOCKS, SUMS>(weights, values, sums, inputs) };
        }
        for output in 0..self.outputs {
            for (place, block) in blocks.iter().enumerate() {
                let Some(block) = block else { break };
                let sums = &sums[output * lanes + place * LANES..];
                // SAFETY: the block is one of the job's, and `sums` holds all places of all channels.
                unsafe { write::<S>(self, block, output, sums, of_sums, written) };
            }
        }
    }
}

/// The blocks of a unit. The last unit may have fewer.
#[inline(always)]
fn each_block<const BLOCKS: usize>(job: &Job<'_>, unit: usize) -> [Option<Block>; BLOCKS] {
    std::array::from_fn(|place| job.block(unit * BLOCKS + place))
}

/// Maps a channel's values of a block. Those of one place are 16 floats, and `step` from those of the next place.
///
/// # Safety
/// As [`Work::run`]. `values` are those of a channel of the block's sample, and `mapped` has room for all places. The
/// window of a block that is not inside begins as zeros.
#[inline(always)]
unsafe fn read<S: Simd>(
    job: &Job<'_>,
    block: &Block,
    values: *const f32,
    window: &mut [f32],
    mapped: &mut [f32],
    step: usize,
) {
    debug_assert!(mapped.len() >= (PLACES - 1) * step + LANES);
    // SAFETY: `is_inside` says that all rows and columns of the window are values of this channel; otherwise, those
    // that are were copied into the window.
    unsafe {
        let to = mapped.as_mut_ptr();
        let (from, stride) = if block.is_inside {
            (values.add((block.y - job.top) * job.width + block.x - job.left), job.width)
        } else {
            let [rows, columns] = [&block.rows, &block.columns].map(|range| range.0..range.1);
            for row in rows.filter(|_| !columns.is_empty()) {
                let from = (block.y + row - job.top) * job.width + block.x + columns.start - job.left;
                let to = window.as_mut_ptr().add(row * COLUMNS + columns.start);
                values.add(from).copy_to_nonoverlapping(to, columns.len());
            }
            (window.as_ptr(), COLUMNS)
        };
        // Not a loop over an array that starts with zeros: those would be written each time.
        let half = each!(6, y => {
            let rows = each!(4, tile => from.add((4 * tile + y) * stride));
            let [v0, v1, v2, v3] = S::columns(rows);
            let [v4, v5, ..] = S::columns(each!(4, tile => rows[tile].add(4)));
            of_values::<S>([v0, v1, v2, v3, v4, v5])
        });
        for x in 0..VALUES {
            let column = of_values::<S>(each!(6, y => half[y][x]));
            for (y, vector) in column.into_iter().enumerate() {
                S::store(to.add((y * VALUES + x) * step), vector);
            }
        }
    }
}

/// The map of values along one axis.
#[inline(always)]
unsafe fn of_values<S: Simd>(v: [S::Vector; VALUES]) -> [S::Vector; VALUES] {
    const A2: f32 = (A * A) as f32;
    const B2: f32 = (B * B) as f32;
    // SAFETY: as the caller promises.
    unsafe {
        let (a, b, a2, b2) = (S::splat(A as f32), S::splat(B as f32), S::splat(A2), S::splat(B2));
        let (sum, product) = (S::splat(A2 + B2), S::splat(A2 * B2));
        let even_a = S::subtract_product(b2, v[2], v[4]);
        let odd_a = S::multiply(a, S::subtract_product(b2, v[1], v[3]));
        let even_b = S::subtract_product(a2, v[2], v[4]);
        let odd_b = S::multiply(b, S::subtract_product(a2, v[1], v[3]));
        [
            S::multiply_add(product, v[0], S::subtract_product(sum, v[2], v[4])),
            S::add(even_a, odd_a),
            S::subtract(even_a, odd_a),
            S::add(even_b, odd_b),
            S::subtract(even_b, odd_b),
            S::multiply_add(product, v[1], S::subtract_product(sum, v[3], v[5])),
        ]
    }
}

/// The map of sums along one axis.
#[inline(always)]
unsafe fn of_sums<S: Simd>(v: [S::Vector; VALUES]) -> [S::Vector; 4] {
    const A2: f32 = (A * A) as f32;
    const B2: f32 = (B * B) as f32;
    // SAFETY: as the caller promises.
    unsafe {
        let (a, b, a2, b2) = (S::splat(A as f32), S::splat(B as f32), S::splat(A2), S::splat(B2));
        let (a3, b3) = (S::splat(A2 * A as f32), S::splat(B2 * B as f32));
        let (sum_a, difference_a) = (S::add(v[1], v[2]), S::subtract(v[1], v[2]));
        let (sum_b, difference_b) = (S::add(v[3], v[4]), S::subtract(v[3], v[4]));
        [
            S::add(v[0], S::add(sum_a, sum_b)),
            S::multiply_add(a, difference_a, S::multiply(b, difference_b)),
            S::multiply_add(a2, sum_a, S::multiply(b2, sum_b)),
            S::multiply_add(a3, difference_a, S::multiply_add(b3, difference_b, v[5])),
        ]
    }
}

/// Sums the products over the channels, at one place of all tiles.
///
/// # Safety
/// As [`Work::run`], and `values` holds `inputs` times `BLOCKS` vectors, `sums` as many for each output of `weights`.
#[inline(always)]
unsafe fn multiply<S: Simd, const BLOCKS: usize, const SUMS: usize>(
    weights: &[f32],
    values: &[f32],
    sums: &mut [f32],
    inputs: usize,
) {
    let groups = weights.len() / (inputs * GROUP);
    for group in 0..groups {
        for part in (0..GROUP).step_by(SUMS) {
            // SAFETY: the pointers stay within the slices, which are of the sizes that the caller promises.
            unsafe {
                let weight = weights.as_ptr().add(group * inputs * GROUP + part);
                let totals = products::<S, BLOCKS, SUMS>(weight, [1, GROUP], values.as_ptr(), inputs);
                let mut to = sums.as_mut_ptr().add((group * GROUP + part) * BLOCKS * LANES);
                for totals in totals {
                    for total in totals {
                        S::store(to, total);
                        to = to.wrapping_add(LANES);
                    }
                }
            }
        }
    }
}

/// Maps the sums of a block to its results of one output, and writes them. The sums of one place are `step` from those
/// of the next.
///
/// # Safety
/// As [`Work::run`].
#[inline(always)]
unsafe fn write<S: Simd>(job: &Job<'_>, block: &Block, output: usize, sums: &[f32], step: usize, written: &mut [f32]) {
    let (height, width) = (job.result_height, job.result_width);
    let (rows, columns) = ((height - block.y).min(BLOCK), (width - block.x).min(BLOCK));
    let is_whole = rows == BLOCK && columns == BLOCK;
    let start = (block.sample * job.outputs + output) * height * width + block.y * width + block.x;
    debug_assert!(sums.len() >= (PLACES - 1) * step + LANES);
    // SAFETY: the sums of all places of this output lie in `sums`; a block that is not whole is written to `written`,
    // and the rows and columns of it that are results are copied.
    unsafe {
        let from = sums.as_ptr();
        let (to, stride) = if is_whole { (job.results.add(start), width) } else { (written.as_mut_ptr(), BLOCK) };
        let half = each!(6, x => of_sums::<S>(each!(6, y => S::load(from.add((y * VALUES + x) * step)))));
        let bias = S::splat(job.bias[output]);
        let (negative, positive) = (S::splat(job.negative[output]), S::splat(job.positive[output]));
        for y in 0..4 {
            let row = of_sums::<S>(each!(6, x => half[x][y]));
            let row = each!(4, x => S::scale(S::add(row[x], bias), negative, positive));
            S::write_columns(row, each!(4, tile => to.add((4 * tile + y) * stride)));
        }
        if !is_whole {
            for row in 0..rows {
                let from = written.as_ptr().add(row * BLOCK);
                from.copy_to_nonoverlapping(job.results.add(start + row * width), columns);
            }
        }
    }
}
