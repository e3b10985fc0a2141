//! Vectors of 16 floats, one for each of a block's 4×4 tiles, on every kind of processor.
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
    /// `x · negative` where `x` is negative, and `x · positive` elsewhere.
    unsafe fn scale(x: Self::Vector, negative: Self::Vector, positive: Self::Vector) -> Self::Vector;
    /// Reads 16 floats of each of four rows: vector `j` holds column `j` of each group of four, for the 4×4 tiles.
    unsafe fn columns(rows: [*const f32; 4]) -> [Self::Vector; 4];
    /// Writes what [`Simd::columns`] reads.
    unsafe fn write_columns(columns: [Self::Vector; 4], rows: [*mut f32; 4]);
}
