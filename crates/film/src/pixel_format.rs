//! Pixel formats, by ffmpeg's names.

use tileforge_image::frames::{ChromaLocation, ChromaSampling, FrameLayout, Matrix, PlanarFormat, RawFormat};
use tileforge_image::{Colour, Depth};

/// The samples of a pixel format, regardless of the order of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Samples {
    /// Luma and chroma, or grey, with this number of bits.
    Planar(ChromaSampling, u32),
    /// Red, green and blue of 8 bits.
    Rgb8,
    /// Red, green and blue of 9 to 16 bits.
    Rgb16,
}

/// Bit depths above 8 for which ffmpeg has planar formats.
const DEEP: [u32; 5] = [9, 10, 12, 14, 16];

/// Formats whose names do not describe their samples.
const NAMED: [(&str, Samples); 38] = {
    use ChromaSampling::{Full, Half, None, Quarter};
    use Samples::{Planar, Rgb8, Rgb16};
    [
        ("yuv420p", Planar(Quarter, 8)),
        ("yuvj420p", Planar(Quarter, 8)),
        ("nv12", Planar(Quarter, 8)),
        ("nv21", Planar(Quarter, 8)),
        ("yuv422p", Planar(Half, 8)),
        ("yuvj422p", Planar(Half, 8)),
        ("nv16", Planar(Half, 8)),
        ("yuyv422", Planar(Half, 8)),
        ("yvyu422", Planar(Half, 8)),
        ("uyvy422", Planar(Half, 8)),
        ("yuv444p", Planar(Full, 8)),
        ("yuvj444p", Planar(Full, 8)),
        ("nv24", Planar(Full, 8)),
        ("nv42", Planar(Full, 8)),
        ("gray", Planar(None, 8)),
        ("p010le", Planar(Quarter, 10)),
        ("p010be", Planar(Quarter, 10)),
        ("p012le", Planar(Quarter, 12)),
        ("p016le", Planar(Quarter, 16)),
        ("p210le", Planar(Half, 10)),
        ("p212le", Planar(Half, 12)),
        ("p216le", Planar(Half, 16)),
        ("y210le", Planar(Half, 10)),
        ("y212le", Planar(Half, 12)),
        ("p410le", Planar(Full, 10)),
        ("p412le", Planar(Full, 12)),
        ("p416le", Planar(Full, 16)),
        ("rgb24", Rgb8),
        ("bgr24", Rgb8),
        ("rgb0", Rgb8),
        ("bgr0", Rgb8),
        ("0rgb", Rgb8),
        ("0bgr", Rgb8),
        ("gbrp", Rgb8),
        ("rgb48le", Rgb16),
        ("rgb48be", Rgb16),
        ("bgr48le", Rgb16),
        ("x2rgb10le", Rgb16),
    ]
};

impl Samples {
    /// The samples of the format of this name; `None`: transparency, a palette, or an unknown format.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        if let Some((_, samples)) = NAMED.iter().find(|(known, _)| *known == name) {
            return Some(*samples);
        }
        let without_order = name.strip_suffix("le").or_else(|| name.strip_suffix("be"))?;
        let (family, bits) = without_order.split_at(without_order.trim_end_matches(|c: char| c.is_ascii_digit()).len());
        let bits = bits.parse().ok().filter(|bits| DEEP.contains(bits))?;
        Some(match family {
            "yuv420p" => Self::Planar(ChromaSampling::Quarter, bits),
            "yuv422p" => Self::Planar(ChromaSampling::Half, bits),
            "yuv444p" => Self::Planar(ChromaSampling::Full, bits),
            "gray" => Self::Planar(ChromaSampling::None, bits),
            "gbrp" => Self::Rgb16,
            _ => return None,
        })
    }

    /// The format that frames have in pipes.
    pub(crate) fn name(self) -> String {
        let Self::Planar(sampling, bits) = self else {
            return if self == Self::Rgb8 { "rgb24".into() } else { "rgb48le".into() };
        };
        let family = match sampling {
            ChromaSampling::Quarter => "yuv420p",
            ChromaSampling::Half => "yuv422p",
            ChromaSampling::Full => "yuv444p",
            ChromaSampling::None => "gray",
        };
        if bits > 8 { format!("{family}{bits}le") } else { family.into() }
    }

    /// The code of that format in NUT.
    pub(crate) fn code(self) -> [u8; 4] {
        match self {
            Self::Rgb8 => *b"RGB\x18",
            Self::Rgb16 => *b"RGB\x30",
            Self::Planar(ChromaSampling::Quarter, 8) => *b"I420",
            Self::Planar(ChromaSampling::Half, 8) => *b"Y42B",
            Self::Planar(ChromaSampling::Full, 8) => *b"444P",
            Self::Planar(ChromaSampling::None, 8) => *b"Y800",
            Self::Planar(ChromaSampling::Quarter, bits) => [b'Y', b'3', 11, bits as u8],
            Self::Planar(ChromaSampling::Half, bits) => [b'Y', b'3', 10, bits as u8],
            Self::Planar(ChromaSampling::Full, bits) => [b'Y', b'3', 0, bits as u8],
            Self::Planar(ChromaSampling::None, bits) => [b'Y', b'1', 0, bits as u8],
        }
    }

    /// How such frames are converted to red, green and blue, and back.
    pub(crate) fn layout(self, full_range: bool, location: ChromaLocation, matrix: Matrix) -> FrameLayout {
        let raw = |depth, little_endian| FrameLayout::Raw(RawFormat { colour: Colour::Rgb, depth, little_endian });
        match self {
            Self::Planar(sampling, bits) => {
                FrameLayout::Planar(PlanarFormat::new(sampling, bits, full_range, location), matrix)
            }
            Self::Rgb8 => raw(Depth::Eight, false),
            Self::Rgb16 => raw(Depth::Sixteen, true),
        }
    }

    pub(crate) fn bits(self) -> u32 {
        match self {
            Self::Planar(_, bits) => bits,
            Self::Rgb8 => 8,
            Self::Rgb16 => 16,
        }
    }

    pub(crate) fn is_rgb(self) -> bool {
        !matches!(self, Self::Planar(..))
    }

    /// The distance of two formats, for the choice of an encoder's format: first lost chroma, then lost bits, then
    /// added information.
    pub(crate) fn distance(self, other: Self) -> u32 {
        let chroma = |samples| match samples {
            Self::Planar(ChromaSampling::None, _) => 0,
            Self::Planar(ChromaSampling::Quarter, _) => 1,
            Self::Planar(ChromaSampling::Half, _) => 2,
            Self::Planar(ChromaSampling::Full, _) | Self::Rgb8 | Self::Rgb16 => 3,
        };
        let (mine, others) = (chroma(self), chroma(other));
        let lost = |mine: u32, other: u32| mine.saturating_sub(other);
        let other_model = u32::from(self.is_rgb() != other.is_rgb());
        lost(mine, others) * 1000
            + lost(self.bits(), other.bits()) * 100
            + other_model * 50
            + lost(others, mine) * 10
            + lost(other.bits(), self.bits())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_samples_and_samples_names() {
        for (name, pipe) in [
            ("yuv420p", "yuv420p"),
            ("yuvj422p", "yuv422p"),
            ("yuv420p10be", "yuv420p10le"),
            ("p010le", "yuv420p10le"),
            ("nv12", "yuv420p"),
            ("gray12le", "gray12le"),
            ("gbrp", "rgb24"),
            ("gbrp10le", "rgb48le"),
            ("yuv444p16le", "yuv444p16le"),
        ] {
            assert_eq!(Samples::of_name(name).map(Samples::name).as_deref(), Some(pipe), "{name}");
        }
        for other in ["yuva420p", "rgba", "pal8", "yuv411p", "yuv420p11le", "yuv420p", "", "le", "10le", "bayer_rggb8"]
        {
            let known = other == "yuv420p";
            assert_eq!(Samples::of_name(other).is_some(), known, "{other}");
        }
    }

    #[test]
    fn the_nearest_format_loses_least() {
        let of = |name| Samples::of_name(name).unwrap();
        let nearest =
            |name, all: &[&'static str]| *all.iter().min_by_key(|other| of(name).distance(of(other))).unwrap();
        assert_eq!(nearest("yuv420p12le", &["yuv420p", "yuv444p", "yuv420p10le", "yuv444p10le"]), "yuv420p10le");
        assert_eq!(nearest("gray", &["yuv420p", "yuv444p"]), "yuv420p");
        assert_eq!(nearest("rgb24", &["yuv420p", "yuv444p", "yuv444p10le"]), "yuv444p");
        assert_eq!(nearest("gbrp", &["yuv420p", "yuv444p", "gbrp"]), "gbrp");
        assert_eq!(nearest("yuv422p", &["yuv420p", "yuv444p", "yuv420p10le"]), "yuv444p");
    }
}
