//! Samples and pixels.

use std::str::FromStr;

use serde::Serialize;

/// Bits of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Depth {
    /// 8 bits, one byte.
    #[serde(rename = "8")]
    Eight,
    /// 16 bits, two bytes, big-endian.
    #[serde(rename = "16")]
    Sixteen,
    /// A 32-bit float, four bytes in native byte order. 0 is black and 1 is white. Never NaN.
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

    /// The value of white.
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

    /// Whether the last channel is alpha.
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
    /// Through the model, as a grey picture: sharp edges, but one more run for each tile.
    Model,
    /// Beside the model, with bicubic interpolation.
    #[default]
    Bicubic,
    /// Not at all: the output has no alpha and shows the colours under it.
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
