//! A picture's header: everything but the pixels.

use crate::{CodePoints, Colour, Depth, Metadata, Size};

/// All properties of a picture except its pixels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Width and height.
    pub size: Size,
    /// Channels, interleaved in each row.
    pub colour: Colour,
    /// Bits of a sample.
    pub depth: Depth,
    /// The ICC profile, which defines the colours of the samples.
    pub icc_profile: Option<Vec<u8>>,
    /// A PNG's colour description by numbers. If an equivalent profile exists, `icc_profile` holds it.
    pub code_points: Option<CodePoints>,
    /// The metadata.
    pub metadata: Metadata,
}

impl Header {
    /// The header of a picture without a profile and metadata.
    pub fn new(size: Size, colour: Colour, depth: Depth) -> Self {
        Self { size, colour, depth, icc_profile: None, code_points: None, metadata: Metadata::default() }
    }

    /// Red, green and blue of 8 bits, without a profile.
    pub fn of_levels(size: Size) -> Self {
        Self::new(size, Colour::Rgb, Depth::Eight)
    }

    /// Bytes of all rows; `None` if the number is too large.
    pub fn bytes(&self) -> Option<u64> {
        (self.row_bytes()? as u64).checked_mul(self.size.height.into())
    }

    /// Bytes of one row; `None` if the number is too large.
    pub fn row_bytes(&self) -> Option<usize> {
        let pixel = self.colour.channels() * self.depth.bytes();
        usize::try_from(self.size.width).ok()?.checked_mul(pixel)
    }
}
