//! Vectors of 16 floats on every kind of processor. In convolutions, these are the 4×4 tiles of a block.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;

/// Lanes of a vector: the 4×4 tiles of a block, row by row.
pub(crate) const LANES: usize = 16;

/// Channels of results whose weights lie together.
pub(crate) const GROUP: usize = 8;

/// Instructions on vectors of 16 floats. The places of a vector are a block's tiles, so the same step of all of them is
/// one instruction, or a few.
///
/// # Safety
/// All functions need a processor with the implementation's instructions, and pointers to as many floats as they read
/// or write. They are inlined into a function that has these instructions enabled.
pub(crate) trait Simd: Copy {
    /// 16 floats.
    type Vector: Copy;
    /// The blocks that are multiplied together: each weight is read once for all of them.
    const BLOCKS: usize;
    /// The channels of results that are summed at a time, as many as there are registers for. It divides
    /// [`GROUP`].
    const SUMS: usize;
    /// The rows of a matrix that are multiplied together with [`Simd::BLOCKS`] vectors, as many as there are registers
    /// for.
    const ROWS: usize;

    /// Runs a unit of a work in a function of its own, which has the instructions enabled and all registers for itself.
    unsafe fn run<W: Work>(work: &W, unit: usize, scratch: &mut [f32]);

    unsafe fn splat(value: f32) -> Self::Vector;
    unsafe fn load(from: *const f32) -> Self::Vector;
    unsafe fn store(to: *mut f32, vector: Self::Vector);
    unsafe fn add(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    unsafe fn subtract(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    unsafe fn multiply(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `a · b + c`, rounded once.
    unsafe fn multiply_add(a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;
    /// `c − a · b`, rounded once.
    unsafe fn subtract_product(a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;
    /// The greater of each two; `b` where either is no number.
    unsafe fn greater(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// The nearest whole number.
    unsafe fn rounded(x: Self::Vector) -> Self::Vector;
    /// 2 to the power of whole numbers from -126 to 127, and 0 for -127.
    unsafe fn power_of_two(x: Self::Vector) -> Self::Vector;
    /// `x · negative` where `x` is negative, and `x · positive` elsewhere.
    unsafe fn scale(x: Self::Vector, negative: Self::Vector, positive: Self::Vector) -> Self::Vector;
    /// Reads 16 floats of each of four rows: vector `j` holds column `j` of each group of four, for the 4×4 tiles.
    unsafe fn columns(rows: [*const f32; 4]) -> [Self::Vector; 4];
    /// Writes what [`Simd::columns`] reads.
    unsafe fn write_columns(columns: [Self::Vector; 4], rows: [*mut f32; 4]);
}

/// What is computed in units, each with the instructions of a processor.
pub(crate) trait Work: Sync {
    /// Computes a unit.
    ///
    /// # Safety
    /// The processor has the instructions of `S`, whose constants the others are. No other call with this unit runs.
    /// And what the implementation says.
    unsafe fn run<S: Simd, const BLOCKS: usize, const SUMS: usize, const ROWS: usize>(
        &self,
        unit: usize,
        scratch: &mut [f32],
    );
}

/// So many floats and a vector: a step by a power of two would lead to the same lines of the cache again and again.
pub(crate) const fn padded(floats: usize) -> usize {
    floats.saturating_add(LANES)
}

/// Writes the first floats of a vector, `count` or all.
///
/// # Safety
/// The processor has the instructions of `S`, and there is room for them.
#[inline(always)]
pub(crate) unsafe fn store_some<S: Simd>(to: *mut f32, vector: S::Vector, count: usize) {
    // SAFETY: as the caller promises.
    unsafe {
        if count >= LANES {
            S::store(to, vector);
        } else {
            let mut floats = [0.0; LANES];
            S::store(floats.as_mut_ptr(), vector);
            floats.as_ptr().copy_to_nonoverlapping(to, count);
        }
    }
}

/// Reads a vector whose first floats are in memory, `count` or all. The others are 0.
///
/// # Safety
/// The processor has the instructions of `S`, and these floats can be read.
#[inline(always)]
pub(crate) unsafe fn load_some<S: Simd>(from: *const f32, count: usize) -> S::Vector {
    // SAFETY: as the caller promises.
    unsafe {
        if count >= LANES {
            S::load(from)
        } else {
            let mut floats = [0.0; LANES];
            from.copy_to_nonoverlapping(floats.as_mut_ptr(), count);
            S::load(floats.as_ptr())
        }
    }
}
