//! What files say beside the pixels.

use crate::density::Density;
use crate::exif::Exif;
use crate::{Format, Size};

/// What a file says about a picture, which an output keeps where its format can hold it. It changes no pixel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// What the camera and programs say.
    pub exif: Option<Exif>,
    /// How large the picture is on paper.
    pub density: Option<Density>,
}

impl Metadata {
    /// What a picture of this size says, as the content of an EXIF chunk; `None` if it says nothing.
    pub(crate) fn exif_chunk(&self, size: Size) -> Option<Vec<u8>> {
        let Self { exif, density } = self;
        if exif.is_none() && density.is_none() {
            return None;
        }
        Some(exif.clone().unwrap_or_default().with_size(size).to_bytes(*density))
    }
}

/// What the samples of a PNG mean, by the numbers of ITU-T H.273: its chunk `cICP`.
/// <https://www.w3.org/TR/png-3/#cICP-chunk>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodePoints {
    /// Which primary colours there are.
    pub primaries: u8,
    /// How samples become light.
    pub transfer: u8,
    /// Samples use all levels.
    pub full_range: bool,
}

impl CodePoints {
    /// Why no profile says the same; `None` if one does.
    pub fn beyond_profiles(self) -> Option<&'static str> {
        match self {
            Self { transfer: 16, .. } => Some("HDR (PQ)"),
            Self { transfer: 18, .. } => Some("HDR (HLG)"),
            Self { full_range: false, .. } => Some("limited range"),
            _ => None,
        }
    }

    /// What is lost in a file of this format; `None` if nothing is.
    pub fn lost_in(self, format: Format) -> Option<&'static str> {
        if format == Format::Png { None } else { self.beyond_profiles() }
    }
}
