//! What files say beside the pixels.

use crate::Format;
use crate::density::Density;
use crate::exif::Exif;

/// What a file says about a picture, which an output keeps where its format can hold it. It changes no pixel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// What the camera and programs say.
    pub exif: Option<Exif>,
    /// How large the picture is on paper.
    pub density: Option<Density>,
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
