//! What a picture is, without its pixels.

use crate::{Colour, Depth, Size};

/// What a picture is, without its pixels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Width and height.
    pub size: Size,
    /// Channels, interleaved in each row.
    pub colour: Colour,
    /// Bits of a sample.
    pub depth: Depth,
    /// The ICC profile that says what the samples mean.
    pub icc_profile: Option<Vec<u8>>,
}

impl Header {
    /// Bytes of all rows, where they can be counted.
    pub fn bytes(&self) -> Option<u64> {
        (self.row_bytes()? as u64).checked_mul(self.size.height.into())
    }

    /// Bytes of one row, where they can be counted.
    pub fn row_bytes(&self) -> Option<usize> {
        let pixel = self.colour.channels() * self.depth.bytes();
        usize::try_from(self.size.width).ok()?.checked_mul(pixel)
    }
}
