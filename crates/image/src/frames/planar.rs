//! Frames of planes: how many samples each plane has, and how they are stored.

use crate::{Colour, Size};

/// Where chroma samples lie among luma samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Siting {
    /// At every second luma sample, from the first one on.
    OnFirst,
    /// Between two luma samples.
    Between,
}

/// How chroma is sampled along one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Subsampling {
    /// Luma samples for each chroma sample: 1 or 2.
    pub(super) factor: usize,
    pub(super) siting: Siting,
}

pub(super) const FULL: Subsampling = Subsampling { factor: 1, siting: Siting::OnFirst };
pub(super) const HALF_ON_FIRST: Subsampling = Subsampling { factor: 2, siting: Siting::OnFirst };
pub(super) const HALF_BETWEEN: Subsampling = Subsampling { factor: 2, siting: Siting::Between };

/// How the samples of a frame of planes are stored: luma and chroma, or grey alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanarFormat {
    /// Chroma sampling across and down; `None`: grey.
    pub(super) chroma: Option<[Subsampling; 2]>,
    /// Bits of a sample, 8 to 16. Above 8 bits, a sample takes two bytes, the low one first.
    pub(super) bits: u32,
    /// Samples use the full range, not 16 … 235 (luma) and 16 … 240 (chroma) of 255.
    pub(super) full_range: bool,
}

/// Where the chroma samples of 4:2:0 and 4:2:2 frames lie, by ffmpeg's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChromaLocation {
    /// At the left, between two lines: MPEG-2 and later, and the default.
    Left,
    /// In the middle of four luma samples: JPEG and MPEG-1.
    Center,
    /// On the first luma sample: BT.2020 and DV.
    TopLeft,
}

/// How many samples the chroma planes have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChromaSampling {
    /// 4:2:0: half across and half down.
    Quarter,
    /// 4:2:2: half across.
    Half,
    /// 4:4:4: as many as luma has.
    Full,
    /// No chroma: grey.
    None,
}

impl PlanarFormat {
    /// The format with samples of `bits` bits, 8 to 16; above 8 bits, the low byte comes first.
    pub fn new(sampling: ChromaSampling, bits: u32, full_range: bool, location: ChromaLocation) -> Self {
        let across = if location == ChromaLocation::Center { HALF_BETWEEN } else { HALF_ON_FIRST };
        let down = if location == ChromaLocation::TopLeft { HALF_ON_FIRST } else { HALF_BETWEEN };
        let chroma = match sampling {
            ChromaSampling::Quarter => Some([across, down]),
            ChromaSampling::Half => Some([across, FULL]),
            ChromaSampling::Full => Some([FULL, FULL]),
            ChromaSampling::None => None,
        };
        Self { chroma, bits: bits.clamp(8, 16), full_range }
    }

    /// Channels of its rows: red, green and blue, or grey.
    pub(super) fn colour(self) -> Colour {
        if self.chroma.is_some() { Colour::Rgb } else { Colour::Grey }
    }

    pub(super) fn sample_bytes(self) -> usize {
        if self.bits > 8 { 2 } else { 1 }
    }

    /// Width and height of each chroma plane.
    pub(super) fn chroma_size(self, size: Size) -> Option<[usize; 2]> {
        let [across, down] = self.chroma?;
        Some([(size.width as usize).div_ceil(across.factor), (size.height as usize).div_ceil(down.factor)])
    }

    /// Bytes of a frame; `None` if the number is too large.
    pub(super) fn frame_bytes(self, size: Size) -> Option<u64> {
        let chroma = self
            .chroma_size(size)
            .map_or(Some(0), |[width, height]| (width as u64).checked_mul(height as u64)?.checked_mul(2));
        size.pixels().checked_add(chroma?)?.checked_mul(self.sample_bytes() as u64)
    }
}
