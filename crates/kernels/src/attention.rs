//! Attention of several heads: `softmax(scale · q · kᵀ + biases) · v`.
#![allow(unsafe_code)]
#![allow(clippy::needless_range_loop, reason = "iterators are not compiled into the loops in all settings")]

use crate::functions::exponential;
use crate::kind::Kind;
use crate::products::Product;
use crate::simd::{LANES, Simd, Work, load_some, padded, store_some};
use crate::units::{Error, RunError, Scratch, Units, product, run_units};

/// Queries of a unit. Its keys and values are brought into another order once for all of them.
const QUERIES: usize = 512;

/// What is added to the scores.
#[derive(Clone, Copy, Debug)]
pub struct Bias<'b> {
    /// The values, in the order of the lengths.
    pub values: &'b [f32],
    /// Samples, heads, queries and keys. Each but the keys may be 1: then all share the values.
    pub lengths: [usize; 4],
}

/// The lengths of attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// Samples of the batch.
    pub samples: usize,
    /// Heads, which attend on their own.
    pub heads: usize,
    /// Tokens that ask.
    pub queries: usize,
    /// Tokens that are attended to.
    pub keys: usize,
    /// Values of a query and of a key, for each head.
    pub width: usize,
    /// Values that are summed, for each head.
    pub value_width: usize,
}

impl Lengths {
    /// The number of values of the queries, of the keys, of the values and of the results.
    fn counts(&self) -> Option<[usize; 4]> {
        let count = |tokens, width| product(&[self.samples, tokens, self.heads, width]);
        let (values, results) = (count(self.keys, self.value_width)?, count(self.queries, self.value_width)?);
        Some([count(self.queries, self.width)?, count(self.keys, self.width)?, values, results])
    }
}

/// Attention of several heads.
#[derive(Clone, Copy, Debug)]
pub struct Attention {
    kind: Kind,
    /// What the products of queries and keys are multiplied by.
    scale: f32,
}

impl Attention {
    /// Attention with a factor for the products of queries and keys.
    ///
    /// # Errors
    /// The processor lacks the instructions.
    pub fn new(scale: f32) -> Result<Self, Error> {
        Ok(Self { kind: Kind::of_this_processor().ok_or(Error::Unsupported)?, scale })
    }

    /// The bytes of scratch memory that each thread needs.
    pub fn scratch_bytes(lengths: &Lengths) -> usize {
        Kind::of_this_processor().map_or(0, |kind| scratch(lengths, kind).saturating_mul(size_of::<f32>()))
    }

    /// Computes the results, which are 0 if there are no keys. Queries and keys are `[samples, tokens, heads, width]`,
    /// values and results `[samples, tokens, heads, value_width]`. `each` calls a function as often as it is told, on
    /// as many threads as it likes. Each call computes a part.
    ///
    /// # Errors
    /// There is no memory for a thread; or those of `each`.
    ///
    /// # Panics
    /// The numbers of values are not those of the lengths, or a bias has others.
    pub fn run<E>(
        &self,
        lengths: &Lengths,
        [queries, keys, values]: [&[f32]; 3],
        biases: &[Bias<'_>],
        results: &mut [f32],
        scratch: &Scratch,
        each: impl FnOnce(usize, &(dyn Fn() + Sync)) -> Result<(), E>,
    ) -> Result<(), RunError<E>> {
        let found = [queries.len(), keys.len(), values.len(), results.len()];
        assert_eq!(lengths.counts(), Some(found), "values of {lengths:?}");
        let Lengths { samples, heads, queries: rows, keys: columns, .. } = *lengths;
        let fits = |bias: &Bias<'_>| {
            let [.., last] = bias.lengths;
            let are_shared =
                bias.lengths.iter().zip([samples, heads, rows]).all(|(found, all)| [1, all].contains(found));
            are_shared && last == columns && product(&bias.lengths) == Some(bias.values.len())
        };
        assert!(biases.iter().all(fits), "biases of {lengths:?}");
        if results.is_empty() || columns == 0 {
            // Sums of nothing.
            results.fill(0.0);
            return Ok(());
        }
        let job = Job {
            lengths: *lengths,
            scale: self.scale,
            queries: queries.as_ptr(),
            keys: keys.as_ptr(),
            values: values.as_ptr(),
            biases,
            results: results.as_mut_ptr(),
        };
        let units = samples * heads * rows.div_ceil(QUERIES);
        // SAFETY: the processor has these instructions, since the kind is one of its; the numbers of values were
        // compared; and the memory is as large as its function says.
        unsafe { run_units(self.kind, &job, units, self::scratch(lengths, self.kind), scratch, each) }
    }
}

/// The floats of scratch memory of each purpose: keys, values, scores, queries, results.
fn parts(lengths: &Lengths, vectors: usize, rows: usize) -> [usize; 5] {
    let whole = |length: usize| length.next_multiple_of(vectors * LANES);
    [
        whole(lengths.keys).saturating_mul(lengths.width),
        whole(lengths.value_width).saturating_mul(lengths.keys),
        step(lengths.keys, vectors).saturating_mul(rows),
        lengths.width.saturating_mul(rows),
        whole(lengths.value_width).saturating_mul(rows),
    ]
}

/// The floats between the scores of two queries.
fn step(keys: usize, vectors: usize) -> usize {
    padded(keys.next_multiple_of(vectors * LANES))
}

/// The floats of scratch memory of a unit.
fn scratch(lengths: &Lengths, kind: Kind) -> usize {
    let [vectors, rows] = kind.shape();
    parts(lengths, vectors, rows).into_iter().fold(0, usize::saturating_add)
}

/// A run.
struct Job<'j> {
    lengths: Lengths,
    scale: f32,
    queries: *const f32,
    keys: *const f32,
    values: *const f32,
    biases: &'j [Bias<'j>],
    /// Nothing else reads or writes them.
    results: *mut f32,
}

// SAFETY: no two units write the same results, and nothing writes what they read.
unsafe impl Sync for Job<'_> {}

impl Units for Job<'_> {
    unsafe fn unit(&self, kind: Kind, unit: usize, scratch: &mut [f32]) {
        // SAFETY: as the caller promises.
        unsafe { kind.run(self, unit, scratch) }
    }
}

impl Work for Job<'_> {
    /// Computes some queries of one head of a sample. The job's pointers must be valid for what its lengths say, and
    /// the scratch memory of [`scratch`] floats at least.
    #[inline(always)]
    unsafe fn run<S: Simd, const BLOCKS: usize, const _SUMS: usize, const ROWS: usize>(
        &self,
        unit: usize,
        scratch: &mut [f32],
    ) {
        let Lengths { heads, queries, keys, width, value_width, .. } = self.lengths;
        let chunks = queries.div_ceil(QUERIES);
        let (sample, head, first) = (unit / chunks / heads, unit / chunks % heads, unit % chunks * QUERIES);
        let [of_keys, of_values, of_scores, of_rows, _] = parts(&self.lengths, BLOCKS, ROWS);
        let (panels_of_keys, rest) = scratch.split_at_mut(of_keys);
        let (panels_of_values, rest) = rest.split_at_mut(of_values);
        let (scores, rest) = rest.split_at_mut(of_scores);
        let (rows, sums) = rest.split_at_mut(of_rows);
        let (whole, step) = (BLOCKS * LANES, step(keys, BLOCKS));
        let of_result = value_width.next_multiple_of(whole);
        // SAFETY: as the caller promises: the unit's tokens are some of the values', and the scratch memory has room.
        unsafe {
            for panel in 0..keys.div_ceil(whole) {
                let to = &mut panels_of_keys[panel * whole * width..][..whole * width];
                for place in 0..whole {
                    let key = panel * whole + place;
                    if key < keys {
                        let from = self.token(self.keys, [sample, key, head], keys, width);
                        for at in 0..width {
                            *to.as_mut_ptr().add(at * whole + place) = *from.add(at);
                        }
                    } else {
                        for at in 0..width {
                            to[at * whole + place] = 0.0;
                        }
                    }
                }
            }
            for panel in 0..value_width.div_ceil(whole) {
                let kept = whole.min(value_width - panel * whole);
                for key in 0..keys {
                    let from = self.token(self.values, [sample, key, head], keys, value_width).add(panel * whole);
                    copy::<S>(from, panels_of_values.as_mut_ptr().add((panel * keys + key) * whole), kept);
                }
            }
            for query in (first..queries.min(first + QUERIES)).step_by(ROWS) {
                let count = ROWS.min(queries.min(first + QUERIES) - query);
                for row in 0..ROWS {
                    let to = &mut rows[row * width..][..width];
                    if row < count {
                        let from = self.token(self.queries, [sample, query + row, head], queries, width);
                        for at in 0..width {
                            to[at] = *from.add(at) * self.scale;
                        }
                    } else {
                        to.fill(0.0);
                    }
                }
                let products = Product {
                    factors: rows.as_ptr(),
                    of_row: width,
                    rows: ROWS,
                    steps: width,
                    vectors: panels_of_keys.as_ptr(),
                    panels: keys.div_ceil(whole),
                    results: scores.as_mut_ptr(),
                    of_result: step,
                };
                S::run(&products, 0, &mut []);
                let mut totals = [0.0; ROWS];
                for row in 0..count {
                    let scores = &mut scores[row * step..][..keys.next_multiple_of(LANES)];
                    scores[keys..].fill(f32::NEG_INFINITY);
                    for bias in self.biases {
                        let row = self.row_of(bias, [sample, head, query + row]);
                        for at in (0..keys).step_by(LANES) {
                            let to = scores.as_mut_ptr().add(at);
                            S::store(to, S::add(S::load(to), load_some::<S>(row.add(at), keys - at)));
                        }
                    }
                    totals[row] = shares::<S>(scores);
                }
                let products = Product {
                    factors: scores.as_ptr(),
                    of_row: step,
                    rows: ROWS,
                    steps: keys,
                    vectors: panels_of_values.as_ptr(),
                    panels: value_width.div_ceil(whole),
                    results: sums.as_mut_ptr(),
                    of_result,
                };
                S::run(&products, 0, &mut []);
                for row in 0..count {
                    let to = ((sample * queries + query + row) * heads + head) * value_width;
                    let share = S::splat(1.0 / totals[row]);
                    for at in (0..value_width).step_by(LANES) {
                        let sum = S::load(sums.as_ptr().add(row * of_result + at));
                        store_some::<S>(self.results.add(to + at), S::multiply(sum, share), value_width - at);
                    }
                }
            }
        }
    }
}

impl Job<'_> {
    /// The values of a token of a sample, for a head.
    ///
    /// # Safety
    /// The place is one of the values'.
    #[inline(always)]
    unsafe fn token(
        &self,
        values: *const f32,
        [sample, token, head]: [usize; 3],
        tokens: usize,
        width: usize,
    ) -> *const f32 {
        // SAFETY: as the caller promises.
        unsafe { values.add(((sample * tokens + token) * self.lengths.heads + head) * width) }
    }

    /// The values of a bias for one query.
    ///
    /// # Safety
    /// The bias has the lengths that it states, and the place is one of the job's.
    #[inline(always)]
    unsafe fn row_of(&self, bias: &Bias<'_>, place: [usize; 3]) -> *const f32 {
        let mut row = 0;
        for axis in 0..3 {
            let length = bias.lengths[axis];
            row = row * length + if length == 1 { 0 } else { place[axis] };
        }
        // SAFETY: as the caller promises.
        unsafe { bias.values.as_ptr().add(row * bias.lengths[3]) }
    }
}

/// Copies floats: a call of a function takes longer than these few.
///
/// # Safety
/// The processor has the instructions of `S`. The floats can be read, and there is room for them.
#[inline(always)]
unsafe fn copy<S: Simd>(from: *const f32, to: *mut f32, count: usize) {
    // SAFETY: as the caller promises.
    unsafe {
        if count < LANES {
            for at in 0..count {
                *to.add(at) = *from.add(at);
            }
            return;
        }
        for at in (0..count - LANES).step_by(LANES) {
            S::store(to.add(at), S::load(from.add(at)));
        }
        S::store(to.add(count - LANES), S::load(from.add(count - LANES)));
    }
}

/// Replaces scores by their exponentials, over that of the greatest one, and returns the sum.
///
/// # Safety
/// The processor has the instructions of `S`. The scores are whole vectors.
#[inline(always)]
unsafe fn shares<S: Simd>(scores: &mut [f32]) -> f32 {
    // SAFETY: as the caller promises.
    unsafe {
        let mut greatest = S::splat(f32::NEG_INFINITY);
        for at in (0..scores.len()).step_by(LANES) {
            greatest = S::greater(greatest, S::load(scores.as_ptr().add(at)));
        }
        let mut lanes = [0.0; LANES];
        S::store(lanes.as_mut_ptr(), greatest);
        let greatest = S::splat(lanes.into_iter().fold(f32::NEG_INFINITY, f32::max));
        let mut total = S::splat(0.0);
        for at in (0..scores.len()).step_by(LANES) {
            let to = scores.as_mut_ptr().add(at);
            let share = exponential::<S>(S::subtract(S::load(to), greatest));
            S::store(to, share);
            total = S::add(total, share);
        }
        S::store(lanes.as_mut_ptr(), total);
        lanes.into_iter().sum()
    }
}

#[cfg(test)]
mod tests;
