//! The header of YUV4MPEG2, and the format of its frames.
//!
//! Source: yuv4mpeg(5) of MJPEG Tools. Colour spaces beyond it and `XCOLORRANGE` follow ffmpeg.

use super::planar::{FULL, HALF_BETWEEN, HALF_ON_FIRST, PlanarFormat, Subsampling};
use crate::Size;

/// The longest header line. Genuine lines are shorter.
pub(super) const LINE_BYTES_MAXIMUM: usize = 4096;

/// The first word of a stream.
pub(super) const MAGIC: &str = "YUV4MPEG2";

/// The first line of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StreamHeader {
    pub(super) size: Size,
    pub(super) form: PlanarFormat,
    /// All other parameters, unchanged: rate, aspect ratio, colour space, and application parameters.
    others: Vec<String>,
}

impl StreamHeader {
    /// Parses the first line, without its end.
    pub(super) fn parse(line: &str) -> Result<Self, String> {
        let mut words = line.split(' ').filter(|word| !word.is_empty());
        if words.next() != Some(MAGIC) {
            return Err(format!("expected a stream that begins with {MAGIC}"));
        }
        let (mut width, mut height, mut chroma, mut full_range) = (None, None, "420jpeg", false);
        let mut others = Vec::new();
        for word in words {
            let (kind, value) =
                word.split_at_checked(1).ok_or_else(|| format!("expected parameters in ASCII, found `{word}`"))?;
            let side = || {
                value
                    .parse()
                    .ok()
                    .filter(|&side: &u32| side > 0)
                    .ok_or_else(|| format!("expected a width and height, found `{word}`"))
            };
            match kind {
                "W" => width = Some(side()?),
                "H" => height = Some(side()?),
                "I" if !matches!(value, "p" | "?") => {
                    return Err(format!(
                        "expected progressive frames, found interlaced ones (`{word}`); deinterlace first, such as \
                         with ffmpeg -vf bwdif"
                    ));
                }
                "C" => chroma = value,
                "X" if value.starts_with("COLORRANGE=") => full_range = value == "COLORRANGE=FULL",
                _ => {}
            }
            if !matches!(kind, "W" | "H") {
                others.push(word.to_owned());
            }
        }
        let (Some(width), Some(height)) = (width, height) else {
            return Err("its header says no width or no height".into());
        };
        let (chroma, bits) = chroma_of(chroma)?;
        Ok(Self { size: Size { width, height }, form: PlanarFormat { chroma, bits, full_range }, others })
    }

    /// The first line for a stream of the same format and another size.
    pub(super) fn line(&self, size: Size) -> String {
        let mut line = format!("{MAGIC} W{} H{}", size.width, size.height);
        for word in &self.others {
            line.push(' ');
            line.push_str(word);
        }
        line.push('\n');
        line
    }
}

/// Chroma sampling and bits, from the name of a colour space.
fn chroma_of(name: &str) -> Result<(Option<[Subsampling; 2]>, u32), String> {
    let named = match name {
        "420jpeg" | "420" => Some((Some([HALF_BETWEEN, HALF_BETWEEN]), 8)),
        "420mpeg2" => Some((Some([HALF_ON_FIRST, HALF_BETWEEN]), 8)),
        // ffmpeg's name for chroma at the top left.
        "420paldv" => Some((Some([HALF_ON_FIRST, HALF_ON_FIRST]), 8)),
        "422" => Some((Some([HALF_ON_FIRST, FULL]), 8)),
        "444" => Some((Some([FULL, FULL]), 8)),
        "mono" => Some((None, 8)),
        _ => {
            let deep = |start: &str, chroma| {
                Some((chroma, name.strip_prefix(start)?.parse().ok().filter(|bits| (9..=16).contains(bits))?))
            };
            // 4:2:0 above 8 bits does not state where chroma lies. Nearly all video places it as MPEG-2 does.
            deep("420p", Some([HALF_ON_FIRST, HALF_BETWEEN]))
                .or_else(|| deep("422p", Some([HALF_ON_FIRST, FULL])))
                .or_else(|| deep("444p", Some([FULL, FULL])))
                .or_else(|| deep("mono", None))
        }
    };
    named.ok_or_else(|| {
        format!(
            "expected colour space 420jpeg, 420mpeg2, 420paldv, 422, 444, mono, or one of 9 to 16 bits (420p10), \
             found `C{name}`; \
             convert it first, such as with ffmpeg -pix_fmt yuv420p"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_understood_is_carried_over() {
        let header =
            StreamHeader::parse("YUV4MPEG2 W7 H5 F30000:1001 Ip A1:1 C420mpeg2 XYSCSS=420MPEG2 XCOLORRANGE=FULL")
                .unwrap();
        assert_eq!(header.size, Size { width: 7, height: 5 });
        assert_eq!(
            header.form,
            PlanarFormat { chroma: Some([HALF_ON_FIRST, HALF_BETWEEN]), bits: 8, full_range: true }
        );
        assert_eq!(header.form.frame_bytes(header.size), Some(35 + 2 * 12));
        let line = header.line(Size { width: 28, height: 20 });
        assert_eq!(line, "YUV4MPEG2 W28 H20 F30000:1001 Ip A1:1 C420mpeg2 XYSCSS=420MPEG2 XCOLORRANGE=FULL\n");
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let refused = |line: &str, words: &str| {
            let error = StreamHeader::parse(line).unwrap_err();
            assert!(error.contains(words), "expected `{words}` in: {error}");
        };
        refused("YUV4MPEG W4 H4", "begins with YUV4MPEG2");
        refused("YUV4MPEG2 W4", "no width or no height");
        refused("YUV4MPEG2 W0 H4", "found `W0`");
        refused("YUV4MPEG2 W4 H99999999999", "found `H99999999999`");
        refused("YUV4MPEG2 W4 H4 It", "deinterlace");
        refused("YUV4MPEG2 W4 H4 Im", "deinterlace");
        refused("YUV4MPEG2 W4 H4 C411", "found `C411`");
        refused("YUV4MPEG2 W4 H4 C444alpha", "found `C444alpha`");
        refused("YUV4MPEG2 W4 H4 C420p17", "found `C420p17`");
        refused("YUV4MPEG2 W4 H4 é", "ASCII");
    }
}
