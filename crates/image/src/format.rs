//! File formats, by the endings of names.

use std::path::Path;

use serde::Serialize;

use crate::error::{Error, Result};

/// A file format for pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Read by rows (interlaced pictures whole) and written by rows; 8 and 16 bits.
    Png,
    /// Read by strips or rows of tiles, written by strips, as BigTIFF from 4 GB on; 8 and 16 bits, and floats.
    Tiff,
    /// Whole in memory; 8 bits, no alpha, at most 65,535 pixels a side. Written with quality 95 by default.
    Jpeg,
    /// Whole in memory; 8 bits, at most 16,383 pixels a side. Written lossless.
    WebP,
}

impl Format {
    /// The format for a file name's ending.
    ///
    /// # Errors
    /// [`Error::Image`] for another ending.
    pub fn of_name(path: &Path) -> Result<Self> {
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        match ending.to_ascii_lowercase().as_str() {
            "png" => Ok(Self::Png),
            "jpg" | "jpeg" => Ok(Self::Jpeg),
            "webp" => Ok(Self::WebP),
            "tif" | "tiff" => Ok(Self::Tiff),
            _ => Err(Error::image(path, "expected a name that ends in .png, .jpg, .jpeg, .webp, .tif or .tiff")),
        }
    }

    /// Longest side of a picture.
    pub fn side_maximum(self) -> u32 {
        match self {
            Self::Png | Self::Tiff => i32::MAX as u32,
            Self::Jpeg => 65_535,
            Self::WebP => 16_383,
        }
    }

    /// The name that users know.
    pub fn name(self) -> &'static str {
        match self {
            Self::Png => "PNG",
            Self::Tiff => "TIFF",
            Self::Jpeg => "JPEG",
            Self::WebP => "WebP",
        }
    }
}
