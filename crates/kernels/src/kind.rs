//! Which instructions a processor has, and the convolution that is compiled for each kind of them.
#![allow(unsafe_code)]

use crate::simd::Simd;
#[cfg(target_arch = "aarch64")]
use crate::simd::neon;
#[cfg(target_arch = "x86_64")]
use crate::simd::{avx2, avx512};
use crate::winograd::{Job, run};

/// Whether this processor has instructions that the kernels are written for: AVX2 with FMA, AVX-512, or those of every
/// 64-bit Arm processor.
pub fn is_supported() -> bool {
    Kind::of_this_processor().is_some()
}

/// The instructions of a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "aarch64")]
    Neon,
}

impl Kind {
    /// The best of this processor.
    pub(crate) fn of_this_processor() -> Option<Self> {
        Self::all().first().copied()
    }

    /// All that this processor has, the best first.
    pub(crate) fn all() -> Vec<Self> {
        #[cfg(target_arch = "x86_64")]
        let all = [
            (Self::Avx512, is_x86_feature_detected!("avx512f")),
            (Self::Avx2, is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")),
        ];
        #[cfg(target_arch = "aarch64")]
        let all = [(Self::Neon, true)];
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let all = [];
        all.into_iter().filter(|(_, is_here)| *is_here).map(|(kind, _)| kind).collect()
    }

    /// The blocks of a unit of work.
    pub(crate) fn blocks(self) -> usize {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => avx512::Avx512::BLOCKS,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => avx2::Avx2::BLOCKS,
            #[cfg(target_arch = "aarch64")]
            Self::Neon => neon::Neon::BLOCKS,
        }
    }

    /// Runs one unit of a convolution.
    ///
    /// # Safety
    /// This processor has these instructions, and the job's pointers are valid as [`Job`] says.
    pub(crate) unsafe fn run(self, job: &Job<'_>, unit: usize, scratch: &mut [f32]) {
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx512f")]
        unsafe fn avx512(job: &Job<'_>, unit: usize, scratch: &mut [f32]) {
            // SAFETY: as the caller promises.
            unsafe { run::<avx512::Avx512, { avx512::Avx512::BLOCKS }, { avx512::Avx512::SUMS }>(job, unit, scratch) }
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma")]
        unsafe fn avx2(job: &Job<'_>, unit: usize, scratch: &mut [f32]) {
            // SAFETY: as the caller promises.
            unsafe { run::<avx2::Avx2, { avx2::Avx2::BLOCKS }, { avx2::Avx2::SUMS }>(job, unit, scratch) }
        }
        // SAFETY: as the caller promises.
        unsafe {
            match self {
                #[cfg(target_arch = "x86_64")]
                Self::Avx512 => avx512(job, unit, scratch),
                #[cfg(target_arch = "x86_64")]
                Self::Avx2 => avx2(job, unit, scratch),
                #[cfg(target_arch = "aarch64")]
                Self::Neon => run::<neon::Neon, { neon::Neon::BLOCKS }, { neon::Neon::SUMS }>(job, unit, scratch),
            }
        }
    }
}
