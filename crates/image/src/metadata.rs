//! The metadata of files.

use crate::density::Density;
use crate::exif::Exif;
use crate::{Format, Size};

/// The metadata of a picture. An output keeps it if its format can hold it. It does not change pixels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// The metadata of the camera and of programs.
    pub exif: Option<Exif>,
    /// The picture's size on paper.
    pub density: Option<Density>,
}

impl Metadata {
    /// The metadata of a picture of this size, as the content of an EXIF chunk; `None` if there is none.
    pub(crate) fn exif_chunk(&self, size: Size) -> Option<Vec<u8>> {
        let Self { exif, density } = self;
        if exif.is_none() && density.is_none() {
            return None;
        }
        Some(exif.clone().unwrap_or_default().with_size(size).to_bytes(*density))
    }
}

/// The meaning of a PNG's samples, by the numbers of ITU-T H.273: its chunk `cICP`.
/// <https://www.w3.org/TR/png-3/#cICP-chunk>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodePoints {
    /// The primary colours.
    pub primaries: u8,
    /// The transfer function from samples to light.
    pub transfer: u8,
    /// Samples use all levels.
    pub full_range: bool,
}

impl CodePoints {
    /// The reason why no profile is equivalent; `None` if a profile is.
    pub fn beyond_profiles(self) -> Option<&'static str> {
        match self {
            Self { transfer: 16, .. } => Some("HDR (PQ)"),
            Self { transfer: 18, .. } => Some("HDR (HLG)"),
            Self { full_range: false, .. } => Some("limited range"),
            _ => None,
        }
    }

    /// The information that is lost in a file of this format; `None` if nothing is lost.
    pub fn lost_in(self, format: Format) -> Option<&'static str> {
        if format == Format::Png { None } else { self.beyond_profiles() }
    }
}
