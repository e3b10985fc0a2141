//! Raw frames: samples only. Their format and size come from the caller.

use std::str::FromStr;

use super::super::{Colour, Depth};
use crate::Size;

/// All formats, by ffmpeg's names.
const FORMATS: [(&str, Colour, Depth, bool); 12] = [
    ("gray", Colour::Grey, Depth::Eight, false),
    ("gray16le", Colour::Grey, Depth::Sixteen, true),
    ("gray16be", Colour::Grey, Depth::Sixteen, false),
    ("ya8", Colour::GreyAlpha, Depth::Eight, false),
    ("ya16le", Colour::GreyAlpha, Depth::Sixteen, true),
    ("ya16be", Colour::GreyAlpha, Depth::Sixteen, false),
    ("rgb24", Colour::Rgb, Depth::Eight, false),
    ("rgb48le", Colour::Rgb, Depth::Sixteen, true),
    ("rgb48be", Colour::Rgb, Depth::Sixteen, false),
    ("rgba", Colour::Rgba, Depth::Eight, false),
    ("rgba64le", Colour::Rgba, Depth::Sixteen, true),
    ("rgba64be", Colour::Rgba, Depth::Sixteen, false),
];

/// How the samples of a raw frame are stored, interleaved, row by row from the top.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawFormat {
    /// Channels of a pixel.
    pub colour: Colour,
    /// Bits of a sample, 8 or 16.
    pub depth: Depth,
    /// Whether samples of 16 bits begin with their low byte.
    pub little_endian: bool,
}

impl RawFormat {
    /// The format with other channels or depth and the same byte order; `None` for floats.
    pub(super) fn with(self, colour: Colour, depth: Depth) -> Option<Self> {
        // Samples of 8 bits have no byte order; the result gets that of most machines.
        let little_endian = depth == Depth::Sixteen && (self.little_endian || self.depth == Depth::Eight);
        (depth != Depth::Float).then_some(Self { colour, depth, little_endian })
    }
}

impl FromStr for RawFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // Another name for it in ffmpeg.
        let name = if text == "gray8" { "gray" } else { text };
        let found = FORMATS.iter().find(|(known, ..)| *known == name);
        let &(_, colour, depth, little_endian) = found.ok_or_else(|| {
            let names: Vec<_> = FORMATS.iter().map(|(name, ..)| *name).collect();
            format!("expected one of {}, found `{text}`", names.join(", "))
        })?;
        Ok(Self { colour, depth, little_endian })
    }
}

/// The description of raw frames: `rgb24:1920x1080`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawFrames {
    /// The format of the samples.
    pub format: RawFormat,
    /// Width and height.
    pub size: Size,
}

impl FromStr for RawFrames {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("expected FORMAT:WIDTHxHEIGHT, such as rgb24:1920x1080, found `{text}`");
        let (format, size) = text.split_once(':').ok_or_else(expected)?;
        let (width, height) = size.split_once('x').ok_or_else(expected)?;
        let side = |text: &str| text.parse().ok().filter(|&side| side > 0).ok_or_else(expected);
        Ok(Self { format: format.parse()?, size: Size { width: side(width)?, height: side(height)? } })
    }
}

/// Swaps the bytes of 16-bit samples, between big-endian and little-endian.
pub(super) fn swap_bytes(row: &mut [u8]) {
    row.as_chunks_mut::<2>().0.iter_mut().for_each(|sample| sample.reverse());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_have_the_names_of_ffmpeg() {
        let frames: RawFrames = "rgb48le:64x48".parse().unwrap();
        let format = RawFormat { colour: Colour::Rgb, depth: Depth::Sixteen, little_endian: true };
        assert_eq!(frames, RawFrames { format, size: Size { width: 64, height: 48 } });
        assert_eq!("gray8".parse::<RawFormat>(), "gray".parse());
        for wrong in ["rgb24", "rgb24:64", "rgb24:0x48", "rgb24:-1x48", "rgb24:99999999999x1", "yuv420p:64x48", ""] {
            assert!(wrong.parse::<RawFrames>().unwrap_err().contains("expected"), "{wrong}");
        }
    }

    #[test]
    fn other_depths_keep_the_order_of_bytes() {
        let with = |name: &str, depth| name.parse::<RawFormat>().unwrap().with(Colour::Rgb, depth);
        assert_eq!(with("rgba64be", Depth::Sixteen), Some("rgb48be".parse().unwrap()));
        assert_eq!(with("rgba", Depth::Sixteen), Some("rgb48le".parse().unwrap()));
        assert_eq!(with("rgb48le", Depth::Eight), Some("rgb24".parse().unwrap()));
        assert_eq!(with("rgb48le", Depth::Float), None);
    }
}
