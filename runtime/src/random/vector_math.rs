//! Logarithm, sine and cosine as PyTorch's vector code computes them on x86-64 with AVX2.
//!
//! PyTorch does not call the C library there. It evaluates the polynomials of the Cephes library (`logf.c`, `sinf.c`,
//! <https://www.netlib.org/cephes/>) in float32, and its compiler contracts products and sums to fused multiply-adds.
//! Results differ from the exact ones in the last bits, so the same bits need the same operations in the same order.
//! [`f32::mul_add`] rounds once on every machine, so these functions give the same bits on every machine.
#![expect(clippy::excessive_precision)] // the digits that the library has

/// ln(x) for normal, positive x.
pub(super) fn ln(x: f32) -> f32 {
    const POLYNOMIAL: [f32; 9] = [
        7.037_683_629_2e-2,
        -1.151_461_031_0e-1,
        1.167_699_874_0e-1,
        -1.242_014_084_6e-1,
        1.424_932_278_7e-1,
        -1.666_805_766_5e-1,
        2.000_071_476_5e-1,
        -2.499_999_399_3e-1,
        3.333_333_117_4e-1,
    ];
    // ln(2), split so that the first part times the exponent is exact.
    const LN_2_HIGH: f32 = 0.693_359_375;
    const LN_2_LOW: f32 = -2.121_944_40e-4;

    // x = mantissa · 2^exponent with mantissa from √½ to √2; then the series in mantissa − 1.
    let bits = x.to_bits();
    let mut exponent = (bits >> 23) as f32 - 126.0;
    let mut mantissa = f32::from_bits((bits & 0x007f_ffff) | 0x3f00_0000);
    if mantissa < std::f32::consts::FRAC_1_SQRT_2 {
        exponent -= 1.0;
        mantissa += mantissa;
    }
    let x = mantissa - 1.0;
    let square = x * x;
    let series = POLYNOMIAL.into_iter().reduce(|sum, coefficient| sum.mul_add(x, coefficient)).unwrap_or_default();
    let tail = (series * x).mul_add(square, exponent * LN_2_LOW);
    let tail = square.mul_add(-0.5, tail);
    exponent.mul_add(LN_2_HIGH, x + tail)
}

/// (sin(x), cos(x)) for x from 0 to 2π.
pub(super) fn sin_cos(x: f32) -> (f32, f32) {
    // π/4 in three parts, so that the reduction loses no bits.
    const QUARTER: [f32; 3] = [-0.785_156_25, -2.418_756_484_985_351_6e-4, -3.774_894_977_445_941e-8];

    // The nearest even number of quarters: what is left lies between −π/4 and π/4.
    let quarters = ((x * (4.0 / std::f64::consts::PI) as f32) as i32 + 1) & !1;
    let x = QUARTER.into_iter().fold(x, |x, part| (quarters as f32).mul_add(part, x));
    let square = x * x;

    let cosine = 2.443_315_711_809_948e-5_f32.mul_add(square, -1.388_731_625_493_765e-3);
    let cosine = cosine.mul_add(square, 4.166_664_568_298_827e-2) * square;
    let cosine = cosine.mul_add(square, -(0.5 * square)) + 1.0;

    let sine = (-1.951_529_589_1e-4_f32).mul_add(square, 8.332_160_873_6e-3);
    let sine = sine.mul_add(square, -1.666_665_461_1e-1) * square;
    let sine = sine.mul_add(x, x);

    match quarters & 6 {
        0 => (sine, cosine),
        2 => (cosine, -sine),
        4 => (-sine, -cosine),
        _ => (-cosine, sine),
    }
}

#[cfg(test)]
mod tests {
    use super::{ln, sin_cos};

    #[test]
    fn values_are_near_the_exact_ones() {
        for step in 1..=4096_u32 {
            let part = step as f32 / 4096.0;
            assert!((f64::from(ln(part)) - f64::from(part).ln()).abs() < 1e-6, "ln({part})");
            let angle = part * std::f32::consts::TAU;
            let (sine, cosine) = sin_cos(angle);
            assert!((f64::from(sine) - f64::from(angle).sin()).abs() < 2e-7, "sin({angle})");
            assert!((f64::from(cosine) - f64::from(angle).cos()).abs() < 2e-7, "cos({angle})");
        }
    }
}
