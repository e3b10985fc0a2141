//! 64-bit Arm: a vector is four registers, one for each row of tiles.
#![allow(unsafe_op_in_unsafe_fn, reason = "each function is one or a few instructions")]

use std::arch::aarch64::*;

use super::{Simd, Work};

#[derive(Clone, Copy)]
pub(crate) struct Neon;

#[inline(always)]
unsafe fn scale(x: float32x4_t, negative: float32x4_t, positive: float32x4_t) -> float32x4_t {
    vmulq_f32(x, vbslq_f32(vcltzq_f32(x), negative, positive))
}

#[inline(always)]
unsafe fn greater(a: float32x4_t, b: float32x4_t) -> float32x4_t {
    vbslq_f32(vcgtq_f32(a, b), a, b)
}

#[inline(always)]
unsafe fn power_of_two(x: float32x4_t) -> float32x4_t {
    vreinterpretq_f32_s32(vshlq_n_s32::<23>(vaddq_s32(vcvtnq_s32_f32(x), vdupq_n_s32(127))))
}

/// Applies a function of registers to all four.
macro_rules! each {
    ($function:expr, $($vector:ident),+) => {
        [$function($($vector[0]),+), $function($($vector[1]),+), $function($($vector[2]),+), $function($($vector[3]),+)]
    };
}

impl Simd for Neon {
    type Vector = [float32x4_t; 4];
    const BLOCKS: usize = 1;
    const SUMS: usize = 4;
    const ROWS: usize = 6;

    #[inline(never)]
    unsafe fn run<W: Work>(work: &W, unit: usize, scratch: &mut [f32]) {
        work.run::<Self, { Self::BLOCKS }, { Self::SUMS }, { Self::ROWS }>(unit, scratch);
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> [float32x4_t; 4] {
        [vdupq_n_f32(value); 4]
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> [float32x4_t; 4] {
        [vld1q_f32(from), vld1q_f32(from.add(4)), vld1q_f32(from.add(8)), vld1q_f32(from.add(12))]
    }

    #[inline(always)]
    unsafe fn store(to: *mut f32, vector: [float32x4_t; 4]) {
        for (row, register) in vector.into_iter().enumerate() {
            vst1q_f32(to.add(4 * row), register);
        }
    }

    #[inline(always)]
    unsafe fn add(a: [float32x4_t; 4], b: [float32x4_t; 4]) -> [float32x4_t; 4] {
        each!(vaddq_f32, a, b)
    }

    #[inline(always)]
    unsafe fn subtract(a: [float32x4_t; 4], b: [float32x4_t; 4]) -> [float32x4_t; 4] {
        each!(vsubq_f32, a, b)
    }

    #[inline(always)]
    unsafe fn multiply(a: [float32x4_t; 4], b: [float32x4_t; 4]) -> [float32x4_t; 4] {
        each!(vmulq_f32, a, b)
    }

    #[inline(always)]
    unsafe fn multiply_add(a: [float32x4_t; 4], b: [float32x4_t; 4], c: [float32x4_t; 4]) -> [float32x4_t; 4] {
        each!(vfmaq_f32, c, a, b)
    }

    #[inline(always)]
    unsafe fn subtract_product(a: [float32x4_t; 4], b: [float32x4_t; 4], c: [float32x4_t; 4]) -> [float32x4_t; 4] {
        each!(vfmsq_f32, c, a, b)
    }

    #[inline(always)]
    unsafe fn greater(a: [float32x4_t; 4], b: [float32x4_t; 4]) -> [float32x4_t; 4] {
        each!(greater, a, b)
    }

    #[inline(always)]
    unsafe fn rounded(x: [float32x4_t; 4]) -> [float32x4_t; 4] {
        each!(vrndnq_f32, x)
    }

    #[inline(always)]
    unsafe fn power_of_two(x: [float32x4_t; 4]) -> [float32x4_t; 4] {
        each!(power_of_two, x)
    }

    #[inline(always)]
    unsafe fn scale(x: [float32x4_t; 4], negative: [float32x4_t; 4], positive: [float32x4_t; 4]) -> [float32x4_t; 4] {
        each!(scale, x, negative, positive)
    }

    #[inline(always)]
    unsafe fn columns(rows: [*const f32; 4]) -> [[float32x4_t; 4]; 4] {
        let (a, b, c, d) = (vld4q_f32(rows[0]), vld4q_f32(rows[1]), vld4q_f32(rows[2]), vld4q_f32(rows[3]));
        [[a.0, b.0, c.0, d.0], [a.1, b.1, c.1, d.1], [a.2, b.2, c.2, d.2], [a.3, b.3, c.3, d.3]]
    }

    #[inline(always)]
    unsafe fn write_columns(columns: [[float32x4_t; 4]; 4], rows: [*mut f32; 4]) {
        let [c0, c1, c2, c3] = columns;
        for (place, row) in rows.into_iter().enumerate() {
            vst4q_f32(row, float32x4x4_t(c0[place], c1[place], c2[place], c3[place]));
        }
    }
}
