//! Which instructions a processor has, and what is compiled for each kind of them.
#![allow(unsafe_code)]

#[cfg(target_arch = "aarch64")]
use crate::simd::neon;
use crate::simd::{Simd, Work};
#[cfg(target_arch = "x86_64")]
use crate::simd::{avx2, avx512};

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

    /// [`Simd::BLOCKS`] and [`Simd::ROWS`].
    pub(crate) fn shape(self) -> [usize; 2] {
        const fn of<S: Simd>() -> [usize; 2] {
            [S::BLOCKS, S::ROWS]
        }
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => of::<avx512::Avx512>(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => of::<avx2::Avx2>(),
            #[cfg(target_arch = "aarch64")]
            Self::Neon => of::<neon::Neon>(),
        }
    }

    /// Runs one unit of a work.
    ///
    /// # Safety
    /// This processor has these instructions, and what [`Work::run`] says.
    pub(crate) unsafe fn run<W: Work>(self, work: &W, unit: usize, scratch: &mut [f32]) {
        // SAFETY: as the caller promises.
        unsafe {
            match self {
                #[cfg(target_arch = "x86_64")]
                Self::Avx512 => avx512::Avx512::run(work, unit, scratch),
                #[cfg(target_arch = "x86_64")]
                Self::Avx2 => avx2::Avx2::run(work, unit, scratch),
                #[cfg(target_arch = "aarch64")]
                Self::Neon => neon::Neon::run(work, unit, scratch),
            }
        }
    }
}
