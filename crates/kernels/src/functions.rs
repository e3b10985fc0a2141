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

/// `x · Φ(x)`, where Φ is the distribution function of the standard normal distribution.
///
/// # Safety
/// The processor has the instructions of `S`.
#[inline(always)]
pub(crate) unsafe fn gelu<S: Simd>(x: S::Vector) -> S::Vector {
    /// With `t = 1 / (1 + SLOPE · z)`, `exp(z²) · erfc(z)` is `t` times this polynomial of `t`, to 8e-9, for `z` from 0
    /// to 10.
    const SLOPE: f32 = 0.35;
    const FACTORS: [f32; 10] = [
        0.039_082_11,
        -0.162_732_51,
        0.190_687_36,
        -0.040_434_293,
        0.098_007_84,
        0.139_896_75,
        0.153_408_33,
        0.187_402_25,
        0.197_201_85,
        0.197_480_32,
    ];
    // SAFETY: as the caller promises.
    unsafe {
        // Beyond 20 nothing changes, and the products of infinity with 0 would be no numbers.
        let negative = S::greater(S::splat(-20.0), S::scale(x, S::splat(1.0), S::splat(-1.0)));
        let magnitude = S::subtract(S::splat(0.0), negative);
        let z = S::multiply(magnitude, S::splat(std::f32::consts::FRAC_1_SQRT_2));
        let t = S::divide(S::splat(1.0), S::multiply_add(z, S::splat(SLOPE), S::splat(1.0)));
        let scaled = S::multiply(polynomial::<S, 10>(FACTORS, t), t);
        let power = exponential::<S>(S::subtract_product(z, z, S::splat(0.0)));
        // Half of erfc(|x| / √2): what is above |x|, as a part of 1.
        let above = S::multiply(S::multiply(scaled, power), S::splat(0.5));
        S::multiply_add(negative, above, S::greater(S::splat(0.0), x))
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
