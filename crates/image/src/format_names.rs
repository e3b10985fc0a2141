//! File formats, by the endings of names.

use std::path::Path;

use crate::error::{Error, Result};
use crate::format::Format;

/// Endings of pictures that only other programs read, most frequent first.
const NOT_READ: [&str; 30] = [
    "heic", "heif", "avif", "jxl", "jp2", "j2k", "psd", "dng", "cr2", "cr3", "nef", "arw", "raf", "orf", "rw2", "pef",
    "srw", "raw", "svg", "ico", "tga", "exr", "hdr", "dds", "ppm", "pgm", "pbm", "pnm", "qoi", "xcf",
];

impl Format {
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

    /// The endings of the formats that are read, for messages.
    pub const READ_ENDINGS: &'static str = ".png, .jpg, .jpeg, .webp, .tif, .tiff, .bmp, .gif";

    /// Whether the name is that of a picture in a format that is not read, such as AVIF.
    pub fn is_not_read(path: &Path) -> bool {
        NOT_READ.contains(&ending_of(path).as_str())
    }
}

/// The ending of a name, in lower case.
fn ending_of(path: &Path) -> String {
    path.extension().and_then(|ending| ending.to_str()).unwrap_or_default().to_ascii_lowercase()
}
