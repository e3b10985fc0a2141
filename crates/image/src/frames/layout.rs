//! How the bytes of a frame stand for samples.

use super::{Matrix, PlanarFormat, RawFormat};
use crate::{Colour, Depth, Header, Size};

/// How the bytes of a frame stand for samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameLayout {
    /// Interleaved samples.
    Raw(RawFormat),
    /// Planes of luma and chroma, or of grey. Rows are floats.
    Planar(PlanarFormat, Matrix),
}

impl FrameLayout {
    /// The header of a frame of this size.
    pub fn header(self, size: Size) -> Header {
        Header::new(size, self.colour(), self.depth())
    }

    /// Channels of a row.
    pub fn colour(self) -> Colour {
        match self {
            Self::Raw(format) => format.colour,
            Self::Planar(format, _) => format.colour(),
        }
    }

    /// The depth of a row's samples.
    pub fn depth(self) -> Depth {
        match self {
            Self::Raw(format) => format.depth,
            Self::Planar(..) => Depth::Float,
        }
    }

    /// Bytes of a stored frame; `None` if the number is too large.
    pub fn frame_bytes(self, size: Size) -> Option<u64> {
        match self {
            Self::Raw(_) => self.header(size).bytes(),
            Self::Planar(format, _) => format.frame_bytes(size),
        }
    }
}
