//! File formats.

use serde::Serialize;

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
    /// Whole in memory; 8 bits. Only read.
    Bmp,
    /// Whole in memory; the first frame. Only read.
    Gif,
}

impl Format {
    /// The formats that are written, by the endings of their file names.
    pub const WRITTEN: [(&'static str, Self); 6] = [
        ("png", Self::Png),
        ("jpg", Self::Jpeg),
        ("jpeg", Self::Jpeg),
        ("webp", Self::WebP),
        ("tif", Self::Tiff),
        ("tiff", Self::Tiff),
    ];

    /// Whether pictures are written in this format.
    pub fn is_written(self) -> bool {
        !matches!(self, Self::Bmp | Self::Gif)
    }

    /// The ending of file names.
    pub fn ending(self) -> &'static str {
        match self {
            Self::Png => "png",
            Self::Tiff => "tif",
            Self::Jpeg => "jpg",
            Self::WebP => "webp",
            Self::Bmp => "bmp",
            Self::Gif => "gif",
        }
    }

    /// Longest side of a picture.
    pub fn side_maximum(self) -> u32 {
        match self {
            Self::Png | Self::Tiff | Self::Bmp => i32::MAX as u32,
            Self::Jpeg | Self::Gif => 65_535,
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
            Self::Bmp => "BMP",
            Self::Gif => "GIF",
        }
    }
}
