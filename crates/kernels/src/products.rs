//! Sums of products, which all kernels are made of.
#![allow(unsafe_code)]
#![allow(clippy::needless_range_loop, reason = "iterators are not compiled into the loops in all settings")]

use crate::simd::{LANES, Simd, Work};

/// For each of `ROWS` rows of factors and `VECTORS` columns of vectors, the sum of the products over all steps, one
/// after the other. A row's factor is `strides[0]` from that of the row before, and a step's `strides[1]` from that of
/// the step before. A step's vectors lie behind those of the step before.
///
/// # Safety
/// The processor has the instructions of `S`, and the pointers are valid for what is read.
#[inline(always)]
pub(crate) unsafe fn products<S: Simd, const VECTORS: usize, const ROWS: usize>(
    factors: *const f32,
    [of_row, of_step]: [usize; 2],
    vectors: *const f32,
    steps: usize,
) -> [[S::Vector; VECTORS]; ROWS] {
    // SAFETY: as the caller promises.
    unsafe {
        // A pointer for each row: with numbers of floats from the first one, each step would compute all places anew.
        let mut rows = [factors; ROWS];
        for row in 0..ROWS {
            rows[row] = factors.add(row * of_row);
        }
        let mut from = vectors;
        let mut totals = [[S::splat(0.0); VECTORS]; ROWS];
        for step in 0..steps {
            let mut vectors = [S::splat(0.0); VECTORS];
            for place in 0..VECTORS {
                vectors[place] = S::load(from.add(place * LANES));
            }
            for row in 0..ROWS {
                let factor = S::splat(*rows[row].add(step * of_step));
                for place in 0..VECTORS {
                    totals[row][place] = S::multiply_add(factor, vectors[place], totals[row][place]);
                }
            }
            from = from.wrapping_add(VECTORS * LANES);
        }
        totals
    }
}

/// The product of two matrices: rows of factors, and panels of columns. It is a work of one unit, so that it is run by
/// a function of its own ([`Simd::run`]): beside other code, sums would leave their registers.
pub(crate) struct Product {
    /// A row's factors are `of_row` from those of the row before.
    pub(crate) factors: *const f32,
    pub(crate) of_row: usize,
    /// Rows, a multiple of [`Simd::ROWS`].
    pub(crate) rows: usize,
    /// Factors of a row.
    pub(crate) steps: usize,
    /// Panels of [`Simd::BLOCKS`] vectors for each step, one panel behind the other.
    pub(crate) vectors: *const f32,
    /// Their number.
    pub(crate) panels: usize,
    /// Sums. A row's are `of_result` from those of the row before.
    pub(crate) results: *mut f32,
    pub(crate) of_result: usize,
}

// SAFETY: a product is run by one thread.
unsafe impl Sync for Product {}

impl Work for Product {
    /// Computes all results. The pointers must be valid for what the numbers say.
    #[inline(always)]
    unsafe fn run<S: Simd, const BLOCKS: usize, const _SUMS: usize, const ROWS: usize>(
        &self,
        _unit: usize,
        _scratch: &mut [f32],
    ) {
        // SAFETY: as the caller promises.
        unsafe {
            for panel in 0..self.panels {
                let vectors = self.vectors.add(panel * BLOCKS * LANES * self.steps);
                for row in (0..self.rows).step_by(ROWS) {
                    let factors = self.factors.add(row * self.of_row);
                    let sums = products::<S, BLOCKS, ROWS>(factors, [self.of_row, 1], vectors, self.steps);
                    let results = self.results.add(row * self.of_result + panel * BLOCKS * LANES);
                    for row in 0..ROWS {
                        for place in 0..BLOCKS {
                            S::store(results.add(row * self.of_result + place * LANES), sums[row][place]);
                        }
                    }
                }
            }
        }
    }
}
