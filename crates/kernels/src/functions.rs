//! Functions of vectors.
#![allow(unsafe_code)]
#![allow(clippy::needless_range_loop, reason = "iterators are not compiled into the loops in all settings")]

use crate::simd::Simd;

/// The exponential of numbers that are not positive. It is 0 where it would be less than about 1e-38.
///
/// # Safety
/// The processor has the instructions of `S`.
#[inline(always)]
pub(crate) unsafe fn exponential<S: Simd>(x: S::Vector) -> S::Vector {
    /// −127 · ln 2: the power of 2 is 0 there.
    const LEAST: f32 = -88.029_69;
    /// ln 2 in two parts: products of the first with whole numbers up to 127 are exact.
    const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
    /// `exp(r)` is `1 + r + r²` times this polynomial, to 3e-9, where `|r|` is at most half of ln 2.
    const FACTORS: [f32; 5] = [0.001_381_459_8, 0.008_368_717, 0.041_668_39, 0.166_665_21, 0.499_999_94];
    // SAFETY: as the caller promises.
    unsafe {
        let x = S::greater(S::splat(LEAST), x);
        let whole = S::rounded(S::multiply(x, S::splat(std::f32::consts::LOG2_E)));
        let rest = S::subtract_product(whole, S::splat(LN_2[0]), x);
        let rest = S::subtract_product(whole, S::splat(LN_2[1]), rest);
        let value = polynomial::<S, 5>(FACTORS, rest);
        let value = S::multiply_add(S::multiply(value, rest), rest, S::add(rest, S::splat(1.0)));
        S::multiply(value, S::power_of_two(whole))
    }
}

/// A polynomial; the factor of the highest power comes first.
#[inline(always)]
unsafe fn polynomial<S: Simd, const FACTORS: usize>(factors: [f32; FACTORS], x: S::Vector) -> S::Vector {
    // SAFETY: as the caller promises.
    unsafe {
        let mut value = S::splat(factors[0]);
        for power in 1..FACTORS {
            value = S::multiply_add(value, x, S::splat(factors[power]));
        }
        value
    }
}
