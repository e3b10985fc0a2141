//! JPEG, held whole.

use std::fs::File;
use std::io::{BufReader, Read};

use ::image::metadata::Orientation;
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

use super::{Colour, Decoded, Depth, Header, Opening, srgb};
use crate::Size;
use crate::error::Result;

impl Opening<'_> {
    pub(super) fn jpeg(&self, mut file: BufReader<File>) -> Result<Decoded> {
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(|source| self.unread(source))?;
        // The decoder would fill missing parts with grey instead of failing.
        let length = length_of_image(&bytes).ok_or_else(|| self.damaged("the end of the image is missing"))?;
        bytes.truncate(length);
        let options =
            DecoderOptions::default().set_strict_mode(false).set_max_width(usize::MAX).set_max_height(usize::MAX);
        let mut decoder = JpegDecoder::new_with_options(ZCursor::new(&bytes[..]), options);
        decoder.decode_headers().map_err(|error| self.damaged(error))?;
        let (width, height) = decoder.dimensions().unwrap_or_default();
        // The format stores sides in 16 bits.
        let size = Size { width: width as u32, height: height as u32 };
        self.check_size(size)?;
        let orientation =
            decoder.exif().and_then(|exif| Orientation::from_exif_chunk(exif)).unwrap_or(Orientation::NoTransforms);
        let (colour, decoded_as) = match decoder.input_colorspace() {
            Some(ColorSpace::Luma) => (Colour::Grey, ColorSpace::Luma),
            Some(ColorSpace::YCbCr | ColorSpace::RGB) => (Colour::Rgb, ColorSpace::RGB),
            // Four channels. They become colours below.
            Some(inks @ (ColorSpace::CMYK | ColorSpace::YCCK)) => (Colour::Rgba, inks),
            other => {
                return Err(
                    self.refused(format!("expected a JPEG in grey, RGB or CMYK, found {other:?}; convert it first"))
                );
            }
        };
        let mut header = Header { size, colour, depth: Depth::Eight, icc_profile: decoder.icc_profile() };
        let length = self.check_whole(&header, "has to be decoded whole")?;
        decoder.set_options(options.jpeg_set_out_colorspace(decoded_as));
        let mut samples = decoder.decode().map_err(|error| self.damaged(error))?;
        if samples.len() != length {
            return Err(self.damaged(format!("expected {length} samples, found {}", samples.len())));
        }
        if colour != Colour::Rgba {
            return Ok(Decoded { header, orientation, rows: self.whole(samples) });
        }
        if decoded_as == ColorSpace::YCCK {
            samples.as_chunks_mut().0.iter_mut().for_each(cmyk_of_ycck);
        }
        if is_inverted(&bytes) {
            samples.iter_mut().for_each(|sample| *sample = !*sample);
        }
        header.colour = Colour::Rgb;
        let rows = srgb::from_cmyk(self.path, &mut header, self.whole(samples))?;
        Ok(Decoded { header, orientation, rows })
    }
}

/// Luma, chroma and black to inks: JFIF's red, green and blue, and black unchanged.
/// <https://www.itu.int/rec/T-REC-T.872-201206-I>, 6.5.3
fn cmyk_of_ycck(pixel: &mut [u8; 4]) {
    let [red, green, blue] = rgb_of_ycbcr([pixel[0], pixel[1], pixel[2]]);
    *pixel = [!red, !green, !blue, pixel[3]];
}

/// JFIF's conversion, <https://www.w3.org/Graphics/JPEG/jfif3.pdf>, page 3.
pub(super) fn rgb_of_ycbcr([luma, cb, cr]: [u8; 3]) -> [u8; 3] {
    let (luma, cb, cr) = (f32::from(luma), f32::from(cb) - 128.0, f32::from(cr) - 128.0);
    // Casts saturate.
    [luma + 1.402 * cr, luma - 0.344_14 * cb - 0.714_14 * cr, luma + 1.772 * cb].map(|value| (value + 0.5) as u8)
}

/// Adobe's programs write 255 for no ink. They mark their files with a segment APP14 of this name.
fn is_inverted(bytes: &[u8]) -> bool {
    let mut before_scans = Segments::of(bytes).take_while(|(marker, _)| *marker != START_OF_SCAN);
    before_scans.any(|(marker, data)| marker == APP14 && data.starts_with(b"Adobe"))
}

/// The length of the file's first picture, up to the end of its marker "end of image"; `None` if that marker is
/// missing.
///
/// Other data may follow: the next picture of several, a film, or leftovers of a camera or an editor.
fn length_of_image(bytes: &[u8]) -> Option<usize> {
    let mut segments = Segments::of(bytes);
    segments.find(|(marker, _)| *marker == END_OF_IMAGE)?;
    Some(segments.position)
}

const START_OF_SCAN: u8 = 0xda;
const START_OF_IMAGE: u8 = 0xd8;
const END_OF_IMAGE: u8 = 0xd9;
const TEMPORARY: u8 = 0x01;
const APP14: u8 = 0xee;

/// Each marker after the first one, with the content of its segment, up to the end of the file or of what is left of
/// it. <https://www.w3.org/Graphics/JPEG/itu-t81.pdf>, B.1.1
struct Segments<'b> {
    bytes: &'b [u8],
    /// Position after the last segment.
    position: usize,
}

impl<'b> Segments<'b> {
    fn of(bytes: &'b [u8]) -> Self {
        Self { bytes, position: 2 }
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
