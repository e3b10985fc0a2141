//! AVX2 with FMA: a vector is two registers, of two rows of tiles each.
#![allow(unsafe_op_in_unsafe_fn, reason = "each function is one or a few instructions")]

use std::arch::x86_64::*;

use super::{Simd, Work};

#[derive(Clone, Copy)]
pub(crate) struct Avx2;

/// Exchanges rows and columns of the 4×4 floats in each half of four registers.
#[inline(always)]
unsafe fn transposed(rows: [__m256; 4]) -> [__m256; 4] {
    let [r0, r1, r2, r3] = rows;
    let (a, b) = (_mm256_unpacklo_ps(r0, r1), _mm256_unpackhi_ps(r0, r1));
    let (c, d) = (_mm256_unpacklo_ps(r2, r3), _mm256_unpackhi_ps(r2, r3));
    [
        _mm256_shuffle_ps::<0b01_00_01_00>(a, c),
        _mm256_shuffle_ps::<0b11_10_11_10>(a, c),
        _mm256_shuffle_ps::<0b01_00_01_00>(b, d),
        _mm256_shuffle_ps::<0b11_10_11_10>(b, d),
    ]
}

/// The columns of two rows of 16 floats: each half of a register is of one row.
#[inline(always)]
unsafe fn two_rows(upper: *const f32, lower: *const f32) -> [__m256; 4] {
    transposed([
        _mm256_loadu2_m128(lower, upper),
        _mm256_loadu2_m128(lower.add(4), upper.add(4)),
        _mm256_loadu2_m128(lower.add(8), upper.add(8)),
        _mm256_loadu2_m128(lower.add(12), upper.add(12)),
    ])
}

#[inline(always)]
unsafe fn power_of_two(x: __m256) -> __m256 {
    let exponent = _mm256_add_epi32(_mm256_cvtps_epi32(x), _mm256_set1_epi32(127));
    _mm256_castsi256_ps(_mm256_slli_epi32::<23>(exponent))
}

/// Applies an instruction to both registers.
macro_rules! both {
    ($instruction:ident($($vector:ident),+)) => {
        [$instruction($($vector[0]),+), $instruction($($vector[1]),+)]
    };
}

impl Simd for Avx2 {
    type Vector = [__m256; 2];
    const BLOCKS: usize = 1;
    const SUMS: usize = 4;
    const ROWS: usize = 6;

    #[target_feature(enable = "avx2,fma")]
    #[inline(never)]
    unsafe fn run<W: Work>(work: &W, unit: usize, scratch: &mut [f32]) {
        work.run::<Self, { Self::BLOCKS }, { Self::SUMS }, { Self::ROWS }>(unit, scratch);
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> [__m256; 2] {
        [_mm256_set1_ps(value); 2]
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> [__m256; 2] {
        [_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))]
    }

    #[inline(always)]
    unsafe fn store(to: *mut f32, vector: [__m256; 2]) {
        _mm256_storeu_ps(to, vector[0]);
        _mm256_storeu_ps(to.add(8), vector[1]);
    }

    #[inline(always)]
    unsafe fn add(a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        both!(_mm256_add_ps(a, b))
    }

    #[inline(always)]
    unsafe fn subtract(a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        both!(_mm256_sub_ps(a, b))
    }

    #[inline(always)]
    unsafe fn multiply(a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        both!(_mm256_mul_ps(a, b))
    }

    #[inline(always)]
    unsafe fn multiply_add(a: [__m256; 2], b: [__m256; 2], c: [__m256; 2]) -> [__m256; 2] {
        both!(_mm256_fmadd_ps(a, b, c))
    }

    #[inline(always)]
    unsafe fn subtract_product(a: [__m256; 2], b: [__m256; 2], c: [__m256; 2]) -> [__m256; 2] {
        both!(_mm256_fnmadd_ps(a, b, c))
    }

    #[inline(always)]
    unsafe fn greater(a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        both!(_mm256_max_ps(a, b))
    }

    #[inline(always)]
    unsafe fn rounded(x: [__m256; 2]) -> [__m256; 2] {
        let [a, b] = x;
        const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
        [_mm256_round_ps::<NEAREST>(a), _mm256_round_ps::<NEAREST>(b)]
    }

    #[inline(always)]
    unsafe fn power_of_two(x: [__m256; 2]) -> [__m256; 2] {
        both!(power_of_two(x))
    }

    #[inline(always)]
    unsafe fn scale(x: [__m256; 2], negative: [__m256; 2], positive: [__m256; 2]) -> [__m256; 2] {
        let zero = _mm256_setzero_ps();
        let is_negative = [_mm256_cmp_ps::<_CMP_LT_OQ>(x[0], zero), _mm256_cmp_ps::<_CMP_LT_OQ>(x[1], zero)];
        let slopes = both!(_mm256_blendv_ps(positive, negative, is_negative));
        both!(_mm256_mul_ps(x, slopes))
    }

    #[inline(always)]
    unsafe fn columns(rows: [*const f32; 4]) -> [[__m256; 2]; 4] {
        let [a0, a1, a2, a3] = two_rows(rows[0], rows[1]);
        let [b0, b1, b2, b3] = two_rows(rows[2], rows[3]);
        [[a0, b0], [a1, b1], [a2, b2], [a3, b3]]
    }

    #[inline(always)]
    unsafe fn write_columns(columns: [[__m256; 2]; 4], rows: [*mut f32; 4]) {
        for pair in 0..2 {
            let [c0, c1, c2, c3] = columns;
            let groups = transposed([c0[pair], c1[pair], c2[pair], c3[pair]]);
            for (x, group) in groups.into_iter().enumerate() {
                _mm256_storeu2_m128(rows[2 * pair + 1].add(4 * x), rows[2 * pair].add(4 * x), group);
            }
        }
    }
}
