//! Reading pictures by rows.

use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::path::{Path, PathBuf};

use image::codecs::jpeg::JpegDecoder;
use image::codecs::webp::WebPDecoder;
use image::{DynamicImage, ImageDecoder};

use super::{Colour, Depth, Format, Header, RowSource};
use crate::error::{Error, Result};
use crate::tile::Size;

/// What is refused before it costs memory.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most pixels of a picture, in millions.
    pub megapixels: u32,
    /// Most bytes of a picture that has to be decoded whole.
    pub decoded_bytes: u64,
}

impl Default for Limits {
    /// 400 megapixels, and 1 GiB decoded.
    fn default() -> Self {
        Self { megapixels: 400, decoded_bytes: 1 << 30 }
    }
}

/// A picture that is read from its first row to its last.
pub struct ImageReader {
    path: PathBuf,
    format: Format,
    header: Header,
    rows: Rows,
}

enum Rows {
    Streamed(Box<png::Reader<BufReader<File>>>),
    Whole { bytes: Vec<u8>, position: usize },
}

impl ImageReader {
    /// Opens a picture; its format is told by its content.
    ///
    /// Palettes and samples below 8 bits are expanded, and transparent colours become alpha. The
    /// EXIF orientation of JPEG and WebP is applied.
    ///
    /// # Errors
    /// [`Error::Image`] for another format, a damaged file, an animation, or a picture beyond
    /// `limits`; [`Error::File`] where it cannot be opened.
    pub fn open(path: &Path, limits: &Limits) -> Result<Self> {
        let mut file = BufReader::new(File::open(path).map_err(|source| Error::file(path, "open", source))?);
        let format = format_of(&mut file, path)?;
        let opening = Opening { path, format, limits };
        let (header, rows) = match format {
            Format::Png => opening.png(file)?,
            Format::Jpeg => opening.jpeg(file)?,
            Format::WebP => opening.webp(file)?,
        };
        Ok(Self { path: path.to_owned(), format, header, rows })
    }

    /// The file's format.
    pub fn format(&self) -> Format {
        self.format
    }
}

impl RowSource for ImageReader {
    fn name(&self) -> &Path {
        &self.path
    }

    fn header(&self) -> &Header {
        &self.header
    }

    fn read_row(&mut self, row: &mut [u8]) -> Result<()> {
        match &mut self.rows {
            Rows::Streamed(reader) => match reader.read_row(row) {
                Ok(Some(_)) => Ok(()),
                Ok(None) => Err(damaged(&self.path, self.format, "rows are missing")),
                Err(error) => Err(damaged(&self.path, self.format, error)),
            },
            Rows::Whole { bytes, position } => {
                let next = bytes.get(*position..*position + row.len());
                row.copy_from_slice(next.ok_or_else(|| damaged(&self.path, self.format, "rows are missing"))?);
                *position += row.len();
                Ok(())
            }
        }
    }
}

fn damaged(path: &Path, format: Format, problem: impl std::fmt::Display) -> Error {
    Error::image(path, format!("a truncated or damaged {} file: {problem}", format.name()))
}

fn format_of(file: &mut BufReader<File>, path: &Path) -> Result<Format> {
    let mut start = Vec::new();
    let read = file.by_ref().take(16).read_to_end(&mut start).and_then(|_| file.rewind());
    read.map_err(|source| Error::file(path, "read", source))?;
    match start.as_slice() {
        [0x89, b'P', b'N', b'G', ..] => Ok(Format::Png),
        [0xff, 0xd8, 0xff, ..] => Ok(Format::Jpeg),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Ok(Format::WebP),
        [] => Err(Error::image(path, "expected a picture, found an empty file")),
        _ => Err(Error::image(path, "expected a PNG, JPEG or WebP file, found something else; convert it first")),
    }
}

struct Opening<'o> {
    path: &'o Path,
    format: Format,
    limits: &'o Limits,
}

impl Opening<'_> {
    fn damaged(&self, problem: impl std::fmt::Display) -> Error {
        damaged(self.path, self.format, problem)
    }

    fn check_size(&self, size: Size) -> Result<()> {
        if size.pixels() > u64::from(self.limits.megapixels) * 1_000_000 {
            return Err(Error::image(
                self.path,
                format!("expected at most {} megapixels, found {size}; raise --max-megapixels if it is genuine", self.limits.megapixels),
            ));
        }
        Ok(())
    }

    fn check_decoded(&self, bytes: u64) -> Result<()> {
        if bytes > self.limits.decoded_bytes {
            return Err(Error::image(
                self.path,
                format!(
                    "this {} has to be decoded whole, into {bytes} bytes, and {} are allowed; convert it to a PNG that is not interlaced",
                    self.format.name(),
                    self.limits.decoded_bytes
                ),
            ));
        }
        Ok(())
    }

    fn png(&self, file: BufReader<File>) -> Result<(Header, Rows)> {
        let bytes = usize::try_from(self.limits.decoded_bytes).unwrap_or(usize::MAX);
        let mut decoder = png::Decoder::new_with_limits(file, png::Limits { bytes });
        // Palettes to colours, fewer bits to 8, transparent colours to alpha; 16 bits stay.
        decoder.set_transformations(png::Transformations::EXPAND);
        let info = decoder.read_header_info().map_err(|error| self.damaged(error))?;
        self.check_size(Size { width: info.width, height: info.height })?;

        let mut reader = decoder.read_info().map_err(|error| self.damaged(error))?;
        let info = reader.info();
        if info.is_animated() {
            return Err(Error::image(self.path, "expected a still picture, found an animation; extract its frames first"));
        }
        let (colour, depth) = reader.output_color_type();
        let header = Header {
            size: Size { width: info.width, height: info.height },
            colour: match colour {
                png::ColorType::Grayscale => Colour::Grey,
                png::ColorType::GrayscaleAlpha => Colour::GreyAlpha,
                png::ColorType::Rgb | png::ColorType::Indexed => Colour::Rgb,
                png::ColorType::Rgba => Colour::Rgba,
            },
            depth: if depth == png::BitDepth::Sixteen { Depth::Sixteen } else { Depth::Eight },
            icc_profile: info.icc_profile.as_ref().map(|profile| profile.to_vec()),
        };
        if !info.interlaced {
            return Ok((header, Rows::Streamed(Box::new(reader))));
        }
        let length = reader.output_buffer_size().unwrap_or(usize::MAX);
        self.check_decoded(length as u64)?;
        let mut bytes = vec![0; length];
        reader.next_frame(&mut bytes).map_err(|error| self.damaged(error))?;
        Ok((header, Rows::Whole { bytes, position: 0 }))
    }

    fn jpeg(&self, mut file: BufReader<File>) -> Result<(Header, Rows)> {
        // The decoder fills what is missing with grey instead of failing.
        if !jpeg_is_whole(&mut file).map_err(|source| Error::file(self.path, "read", source))? {
            return Err(self.damaged("the end of the image is missing"));
        }
        let decoder = JpegDecoder::new(file).map_err(|error| self.damaged(error))?;
        self.whole(decoder)
    }

    fn webp(&self, file: BufReader<File>) -> Result<(Header, Rows)> {
        let decoder = WebPDecoder::new(file).map_err(|error| self.damaged(error))?;
        if decoder.has_animation() {
            return Err(Error::image(self.path, "expected a still picture, found an animation; extract its frames first"));
        }
        self.whole(decoder)
    }

    fn whole(&self, mut decoder: impl ImageDecoder) -> Result<(Header, Rows)> {
        let (width, height) = decoder.dimensions();
        self.check_size(Size { width, height })?;
        self.check_decoded(decoder.total_bytes())?;
        let icc_profile = decoder.icc_profile().unwrap_or_default();
        let orientation = decoder.orientation().map_err(|error| self.damaged(error))?;
        let mut picture = DynamicImage::from_decoder(decoder).map_err(|error| self.damaged(error))?;
        picture.apply_orientation(orientation);

        let size = Size { width: picture.width(), height: picture.height() };
        let (colour, bytes) = match picture {
            DynamicImage::ImageLuma8(grey) => (Colour::Grey, grey.into_raw()),
            DynamicImage::ImageLumaA8(grey) => (Colour::GreyAlpha, grey.into_raw()),
            DynamicImage::ImageRgba8(rgb) => (Colour::Rgba, rgb.into_raw()),
            other => (Colour::Rgb, other.into_rgb8().into_raw()),
        };
        let header = Header { size, colour, depth: Depth::Eight, icc_profile };
        Ok((header, Rows::Whole { bytes, position: 0 }))
    }
}

/// Whether the marker "end of image" follows the last scan.
///
/// Within a scan, 0xFF is followed by 0 or a restart marker, so neither marker is found by chance.
fn jpeg_is_whole(file: &mut BufReader<File>) -> std::io::Result<bool> {
    const START_OF_SCAN: [u8; 2] = [0xff, 0xda];
    const END_OF_IMAGE: [u8; 2] = [0xff, 0xd9];
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    file.rewind()?;
    let last = |marker| bytes.windows(2).rposition(|pair| pair == marker);
    Ok(match (last(START_OF_SCAN), last(END_OF_IMAGE)) {
        (Some(scan), Some(end)) => end > scan,
        // Something else is wrong, for the decoder to say.
        (None, _) => true,
        (Some(_), None) => false,
    })
}

#[cfg(test)]
mod tests;
