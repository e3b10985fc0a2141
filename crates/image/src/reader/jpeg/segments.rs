//! The segments of a JPEG file.

use crate::{Density, DensityUnit};

pub(super) const START_OF_SCAN: u8 = 0xda;
pub(super) const HUFFMAN_TABLES: u8 = 0xc4;
pub(super) const RESTART_INTERVAL: u8 = 0xdd;
pub(super) const APP14: u8 = 0xee;
const APP0: u8 = 0xe0;
const START_OF_IMAGE: u8 = 0xd8;
const END_OF_IMAGE: u8 = 0xd9;
const TEMPORARY: u8 = 0x01;

/// The length of the file's first picture, up to the end of its marker "end of image"; `None` if that marker is
/// missing.
///
/// Other data may follow: the next picture of several, a film, or leftovers of a camera or an editor.
pub(super) fn length_of_image(bytes: &[u8]) -> Option<usize> {
    let mut segments = Segments::of(bytes);
    segments.find(|(marker, _)| *marker == END_OF_IMAGE)?;
    Some(segments.position)
}

/// The density of the segment JFIF. <https://www.w3.org/Graphics/JPEG/jfif3.pdf>, page 5
pub(super) fn density(bytes: &[u8]) -> Option<Density> {
    let mut before_scans = Segments::of(bytes).take_while(|(marker, _)| *marker != START_OF_SCAN);
    let (_, data) = before_scans.find(|(marker, data)| *marker == APP0 && data.starts_with(b"JFIF\0"))?;
    let &[unit, a, b, c, d] = data.get(7..12)?.as_array()?;
    let unit = match unit {
        0 => DensityUnit::None,
        1 => DensityUnit::Inch,
        2 => DensityUnit::Centimetre,
        _ => return None,
    };
    Density::whole(u16::from_be_bytes([a, b]).into(), u16::from_be_bytes([c, d]).into(), unit)
}

/// Adobe's programs write 255 for no ink. They mark their files with a segment APP14 of this name.
pub(super) fn is_inverted(bytes: &[u8]) -> bool {
    let mut before_scans = Segments::of(bytes).take_while(|(marker, _)| *marker != START_OF_SCAN);
    before_scans.any(|(marker, data)| marker == APP14 && data.starts_with(b"Adobe"))
}

/// Each marker after the first one, with the content of its segment, up to the end of the file, or to where a damaged
/// file breaks off. <https://www.w3.org/Graphics/JPEG/itu-t81.pdf>, B.1.1
pub(super) struct Segments<'b> {
    bytes: &'b [u8],
    /// Position after the last segment.
    position: usize,
}

impl<'b> Segments<'b> {
    pub(super) fn of(bytes: &'b [u8]) -> Self {
        Self { bytes, position: 2 }
    }

    /// The bytes after the last segment: the entropy-coded data, if that segment was the header of a scan.
    pub(super) fn rest(&self) -> &'b [u8] {
        self.bytes.get(self.position..).unwrap_or_default()
    }
}

impl<'b> Iterator for Segments<'b> {
    type Item = (u8, &'b [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        // A scan's entropy-coded data has no length. In it, 0xFF is followed by 0, which means 0xFF itself, or by one
        // of the eight restart markers. Before any marker, 0xFF may be repeated.
        let begins = |pair: &[u8]| pair[0] == 0xff && !matches!(pair[1], 0x00 | 0xd0..=0xd7 | 0xff);
        let rest = self.bytes.get(self.position..)?;
        let found = rest.windows(2).position(begins)?;
        let (marker, behind) = (rest[found + 1], self.position + found + 2);
        let length = match marker {
            START_OF_IMAGE | END_OF_IMAGE | TEMPORARY => 0,
            _ => usize::from(u16::from_be_bytes(self.bytes.get(behind..behind + 2)?.try_into().ok()?)),
        };
        // The length includes its own two bytes.
        let data = if length == 0 { &[][..] } else { self.bytes.get(behind + 2..behind + length)? };
        self.position = behind + length;
        Some((marker, data))
    }
}
