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
    /// Whole in memory; 8 bits. Only read.
    Bmp,
    /// Whole in memory; the first frame. Only read.
    Gif,
}

/// Endings of pictures that other programs read, in the order of how often they are met.
const NOT_READ: [&str; 30] = [
    "heic", "heif", "avif", "jxl", "jp2", "j2k", "psd", "dng", "cr2", "cr3", "nef", "arw", "raf", "orf", "rw2", "pef",
    "srw", "raw", "svg", "ico", "tga", "exr", "hdr", "dds", "ppm", "pgm", "pbm", "pnm", "qoi", "xcf",
];

impl Format {
    /// The formats that are written, under the names that their files end in.
    pub const WRITTEN: [(&'static str, Self); 6] = [
        ("png", Self::Png),
        ("jpg", Self::Jpeg),
        ("jpeg", Self::Jpeg),
        ("webp", Self::WebP),
        ("tif", Self::Tiff),
        ("tiff", Self::Tiff),
    ];

    /// The format that is written under a file name's ending.
    ///
    /// # Errors
    /// [`Error::Image`] for another ending.
    pub fn of_name(path: &Path) -> Result<Self> {
        let ending = ending_of(path);
        let found = Self::WRITTEN.into_iter().find(|(name, _)| *name == ending);
        found
            .map(|(_, format)| format)
            .ok_or_else(|| Error::image(path, "expected a name that ends in .png, .jpg, .jpeg, .webp, .tif or .tiff"))
    }

    /// The format that is read under a file name's ending; `None` for other names.
    pub fn read_under(path: &Path) -> Option<Self> {
        match ending_of(path).as_str() {
            "bmp" | "dib" => Some(Self::Bmp),
            "gif" => Some(Self::Gif),
            "jpe" | "jfif" => Some(Self::Jpeg),
            _ => Self::of_name(path).ok(),
        }
    }

    /// Whether the name is that of a picture in a format that is not read, such as AVIF.
    pub fn is_not_read(path: &Path) -> bool {
        NOT_READ.contains(&ending_of(path).as_str())
    }

    /// Whether pictures are written in it.
    pub fn is_written(self) -> bool {
        !matches!(self, Self::Bmp | Self::Gif)
    }

    /// What names end in.
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

/// The ending of a name, in small letters.
fn ending_of(path: &Path) -> String {
    path.extension().and_then(|ending| ending.to_str()).unwrap_or_default().to_ascii_lowercase()
}
