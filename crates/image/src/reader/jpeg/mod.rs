//! JPEG, held whole.

mod complete;
mod segments;

use std::fs::File;
use std::io::BufReader;

use ::image::metadata::Orientation;
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

use super::{Colour, Decoded, Depth, Header, Opening, srgb};
use crate::Size;
use crate::error::Result;
use crate::exif::Found;
use segments::{density, is_inverted, length_of_image};

/// Bytes that a decoder holds for each sample if the coefficients come in several scans: 16 bits.
const COEFFICIENT_BYTES: u64 = 2;

impl Opening<'_> {
    pub(super) fn jpeg(&self, file: BufReader<File>) -> Result<Decoded> {
        let mut bytes = self.read_whole(file)?;
        // The decoder would fill missing parts with grey instead of failing.
        match length_of_image(&bytes) {
            Some(length) => bytes.truncate(length),
            None => self.tolerate(self.damaged("the end of the image is missing"))?,
        }
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
        let found = decoder.exif().map_or_else(Found::default, |exif| Found::of_chunk(exif));
        let (colour, decoded_as) = match decoder.input_colorspace() {
            Some(ColorSpace::Luma) => (Colour::Grey, ColorSpace::Luma),
            Some(ColorSpace::YCbCr | ColorSpace::RGB) => (Colour::Rgb, ColorSpace::RGB),
            // Four channels, which are converted to colours below.
            Some(inks @ (ColorSpace::CMYK | ColorSpace::YCCK)) => (Colour::Rgba, inks),
            other => {
                return Err(
                    self.refused(format!("expected a JPEG in grey, RGB or CMYK, found {other:?}; convert it first"))
                );
            }
        };
        let mut header = Header { icc_profile: decoder.icc_profile(), ..Header::new(size, colour, Depth::Eight) };
        let length = self.check_whole(&header, "has to be decoded whole")?;
        match complete::check(&bytes) {
            Ok(complete) if complete.several_scans => {
                let held = header.bytes().and_then(|bytes| bytes.checked_mul(1 + COEFFICIENT_BYTES));
                self.check_decoded("this JPEG comes in several scans, which have to be held together", held)?;
            }
            Ok(_) => {}
            Err((problem, part)) => {
                self.tolerate(self.damaged(problem))?;
                self.check_part(size, part)?;
            }
        }
        decoder.set_options(options.jpeg_set_out_colorspace(decoded_as));
        let mut samples = decoder.decode().map_err(|error| self.damaged(error))?;
        if samples.len() != length {
            return Err(self.damaged(format!("expected {length} samples, found {}", samples.len())));
        }
        if colour != Colour::Rgba {
            let decoded = Decoded { orientation, ..Decoded::new(header, self.whole(samples)) };
            return Ok(decoded.described(found, density(&bytes)));
        }
        if decoded_as == ColorSpace::YCCK {
            samples.as_chunks_mut().0.iter_mut().for_each(cmyk_of_ycck);
        }
        if is_inverted(&bytes) {
            samples.iter_mut().for_each(|sample| *sample = !*sample);
        }
        header.colour = Colour::Rgb;
        let (rows, note) = srgb::from_cmyk(self.path, &mut header, self.whole(samples))?;
        let decoded = Decoded { orientation, ..Decoded::new(header, rows) };
        let mut decoded = decoded.described(found, density(&bytes));
        decoded.notes.extend(note);
        Ok(decoded)
    }
}

/// Converts luma, chroma and black to inks: JFIF's red, green and blue, and black unchanged.
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
