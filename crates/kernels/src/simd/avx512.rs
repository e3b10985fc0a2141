//! AVX-512: a vector is one register.
#![allow(unsafe_op_in_unsafe_fn, reason = "each function is one or a few instructions")]

use std::arch::x86_64::*;

use super::{Simd, Work};

#[derive(Clone, Copy)]
pub(crate) struct Avx512;

/// The lower halves of two vectors, and the upper halves.
#[inline(always)]
unsafe fn halves(a: __m512, b: __m512) -> (__m512, __m512) {
    (_mm512_shuffle_f32x4::<0b01_00_01_00>(a, b), _mm512_shuffle_f32x4::<0b11_10_11_10>(a, b))
}

impl Simd for Avx512 {
    type Vector = __m512;
    const BLOCKS: usize = 2;
    const SUMS: usize = 8;
    const ROWS: usize = 12;

    #[target_feature(enable = "avx512f")]
    #[inline(never)]
    unsafe fn run<W: Work>(work: &W, unit: usize, scratch: &mut [f32]) {
        work.run::<Self, { Self::BLOCKS }, { Self::SUMS }, { Self::ROWS }>(unit, scratch);
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> __m512 {
        _mm512_set1_ps(value)
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> __m512 {
        _mm512_loadu_ps(from)
    }

    #[inline(always)]
    unsafe fn store(to: *mut f32, vector: __m512) {
        _mm512_storeu_ps(to, vector);
    }

    #[inline(always)]
    unsafe fn add(a: __m512, b: __m512) -> __m512 {
        _mm512_add_ps(a, b)
    }

    #[inline(always)]
    unsafe fn subtract(a: __m512, b: __m512) -> __m512 {
        _mm512_sub_ps(a, b)
    }

    #[inline(always)]
    unsafe fn multiply(a: __m512, b: __m512) -> __m512 {
        _mm512_mul_ps(a, b)
    }

    #[inline(always)]
    unsafe fn multiply_add(a: __m512, b: __m512, c: __m512) -> __m512 {
        _mm512_fmadd_ps(a, b, c)
    }

    #[inline(always)]
    unsafe fn subtract_product(a: __m512, b: __m512, c: __m512) -> __m512 {
        _mm512_fnmadd_ps(a, b, c)
    }

    #[inline(always)]
    unsafe fn greater(a: __m512, b: __m512) -> __m512 {
        _mm512_max_ps(a, b)
    }

    #[inline(always)]
    unsafe fn rounded(x: __m512) -> __m512 {
        _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(x)
    }

    #[inline(always)]
    unsafe fn power_of_two(x: __m512) -> __m512 {
        let exponent = _mm512_add_epi32(_mm512_cvtps_epi32(x), _mm512_set1_epi32(127));
        _mm512_castsi512_ps(_mm512_slli_epi32::<23>(exponent))
    }

    #[inline(always)]
    unsafe fn scale(x: __m512, negative: __m512, positive: __m512) -> __m512 {
        let is_negative = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(x, _mm512_setzero_ps());
        _mm512_mul_ps(x, _mm512_mask_blend_ps(is_negative, positive, negative))
    }

    #[inline(always)]
    unsafe fn columns(rows: [*const f32; 4]) -> [__m512; 4] {
        let (r0, r1) = (_mm512_loadu_ps(rows[0]), _mm512_loadu_ps(rows[1]));
        let (r2, r3) = (_mm512_loadu_ps(rows[2]), _mm512_loadu_ps(rows[3]));
        let first = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29);
        let second = _mm512_setr_epi32(2, 6, 10, 14, 18, 22, 26, 30, 3, 7, 11, 15, 19, 23, 27, 31);
        let (c0, c1) = halves(_mm512_permutex2var_ps(r0, first, r1), _mm512_permutex2var_ps(r2, first, r3));
        let (c2, c3) = halves(_mm512_permutex2var_ps(r0, second, r1), _mm512_permutex2var_ps(r2, second, r3));
        [c0, c1, c2, c3]
    }

    #[inline(always)]
    unsafe fn write_columns(columns: [__m512; 4], rows: [*mut f32; 4]) {
        let [c0, c1, c2, c3] = columns;
        let ((a0, a1), (b0, b1)) = (halves(c0, c1), halves(c2, c3));
        let even = _mm512_setr_epi32(0, 8, 16, 24, 1, 9, 17, 25, 2, 10, 18, 26, 3, 11, 19, 27);
        let odd = _mm512_setr_epi32(4, 12, 20, 28, 5, 13, 21, 29, 6, 14, 22, 30, 7, 15, 23, 31);
        _mm512_storeu_ps(rows[0], _mm512_permutex2var_ps(a0, even, b0));
        _mm512_storeu_ps(rows[1], _mm512_permutex2var_ps(a0, odd, b0));
        _mm512_storeu_ps(rows[2], _mm512_permutex2var_ps(a1, even, b1));
        _mm512_storeu_ps(rows[3], _mm512_permutex2var_ps(a1, odd, b1));
    }
}
