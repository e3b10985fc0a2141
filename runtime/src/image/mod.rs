//! Pictures in files: PNG and TIFF by rows, JPEG and WebP whole.

pub mod frames;
mod picture;
mod reader;
mod rows;
mod writer;

use std::path::Path;
use std::str::FromStr;

use serde::Serialize;

pub use picture::{Difference, Picture};
pub use reader::{ImageReader, Limits};
pub use rows::{RowSink, RowSource};
pub use writer::{ImageWriter, JPEG_QUALITY};

use crate::error::{Error, Result};
use crate::tile::Size;

/// A file format for pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Read (unless interlaced) and written by rows; 8 and 16 bits.
    Png,
    /// Read by strips or rows of tiles, written by strips, as BigTIFF from 4 GB on; 8 and 16 bits, and floats.
    Tiff,
    /// Whole in memory; 8 bits, no alpha, at most 65,535 pixels a side. Written with quality 95 unless asked otherwise.
    Jpeg,
    /// Whole in memory; 8 bits, at most 16,383 pixels a side. Written lossless.
    WebP,
}

impl Format {
    /// The format that a file name's ending asks for.
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

/// Bits of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Depth {
    /// 8 bits, one byte.
    #[serde(rename = "8")]
    Eight,
    /// 16 bits, two bytes, big-endian.
    #[serde(rename = "16")]
    Sixteen,
    /// A number of 32 bits, four bytes in this machine's order; 0 is black and 1 is white. Never NaN.
    #[serde(rename = "32")]
    Float,
}

impl Depth {
    /// Bytes of a sample.
    pub fn bytes(self) -> usize {
        match self {
            Self::Eight => 1,
            Self::Sixteen => 2,
            Self::Float => 4,
        }
    }

    /// The sample of white.
    pub fn maximum(self) -> f32 {
        match self {
            Self::Eight => 255.0,
            Self::Sixteen => 65_535.0,
            Self::Float => 1.0,
        }
    }
}

/// The channels of a pixel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Colour {
    /// Grey.
    Grey,
    /// Grey, alpha.
    GreyAlpha,
    /// Red, green, blue.
    Rgb,
    /// Red, green, blue, alpha.
    Rgba,
}

impl Colour {
    /// Channels without alpha: 1 or 3.
    pub fn colour_channels(self) -> usize {
        match self {
            Self::Grey | Self::GreyAlpha => 1,
            Self::Rgb | Self::Rgba => 3,
        }
    }

    /// The last channel is alpha.
    pub fn has_alpha(self) -> bool {
        matches!(self, Self::GreyAlpha | Self::Rgba)
    }

    /// The same colours without alpha.
    pub fn without_alpha(self) -> Self {
        match self {
            Self::Grey | Self::GreyAlpha => Self::Grey,
            Self::Rgb | Self::Rgba => Self::Rgb,
        }
    }

    /// Channels with alpha: 1 to 4.
    pub fn channels(self) -> usize {
        self.colour_channels() + usize::from(self.has_alpha())
    }
}

/// How transparency is enlarged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Alpha {
    /// Through the model, as a grey picture: sharp edges, one more run for each tile.
    Model,
    /// Around the model, with bicubic interpolation.
    #[default]
    Bicubic,
    /// Not at all: the output has no alpha, and the colours under it are shown.
    Drop,
}

impl FromStr for Alpha {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "model" => Ok(Self::Model),
            "bicubic" => Ok(Self::Bicubic),
            "drop" => Ok(Self::Drop),
            _ => Err("expected model, bicubic or drop".into()),
        }
    }
}

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
