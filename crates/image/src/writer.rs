//! Writing pictures by rows, into a file that appears only when it is complete.

mod png;
mod reporting;
mod tiff;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread;

use ::image::codecs::jpeg::{JpegEncoder, PixelDensity, PixelDensityUnit};
use ::image::codecs::webp::WebPEncoder;
use ::image::{ExtendedColorType, ImageEncoder, ImageResult};
use tileforge_files::unfinished;

use self::reporting::{Failure, Reporting};
use super::{Colour, Depth, Format, Header, RowSink};
use crate::error::{Error, Result};
use crate::{Density, DensityUnit, Metadata};

pub use png::PngCompression;

/// The default quality of a JPEG, on libjpeg's scale of 1 to 100: the loss is barely visible.
pub const JPEG_QUALITY: u8 = 95;

/// Largest number of bytes of samples that are held until they can be encoded.
const WHOLE_BYTES_MAXIMUM: u64 = 4 << 30;

/// A picture that is written from its first row to its last.
///
/// Rows go to a temporary file beside the output. [`finish`](RowSink::finish) renames it. If the writer is dropped
/// before that, it removes the temporary file.
pub struct ImageWriter {
    path: PathBuf,
    format: Format,
    header: Header,
    file: unfinished::File,
    encoder: Encoder,
    jpeg_quality: u8,
    rows_left: u32,
}

enum Encoder {
    Png { bands: Box<png::Bands<Reporting>>, failure: Failure },
    Tiff { strips: Box<tiff::Strips>, failure: Failure },
    Whole(Vec<u8>),
}

impl ImageWriter {
    /// Starts a picture. If the format cannot hold the depth of `header`, the writer uses the deepest depth that it
    /// can hold: [`ImageWriter::header`](RowSink::header) gives the format of the rows.
    ///
    /// # Errors
    /// [`Error::Image`] for what the format cannot hold: alpha in JPEG, too many pixels on a side; [`Error::File`] if
    /// no file can be made there.
    pub fn create(path: &Path, format: Format, header: Header) -> Result<Self> {
        Self::create_with_texts(path, format, header, &[])
    }

    /// The same with texts, each under a keyword of 1 to 79 Latin letters. Only PNG holds texts: other formats drop
    /// them. [`png_text`](crate::png_text) reads them.
    ///
    /// # Errors
    /// As [`ImageWriter::create`].
    pub fn create_with_texts(path: &Path, format: Format, mut header: Header, texts: &[(&str, &str)]) -> Result<Self> {
        if !format.is_written() {
            return Err(Error::image(path, format!("{} is read, and not written; write a PNG", format.name())));
        }
        let side = header.size.width.max(header.size.height);
        if side > format.side_maximum() {
            return Err(Error::image(
                path,
                format!(
                    "{} holds at most {} pixels a side, and this is {}; write a PNG",
                    format.name(),
                    format.side_maximum(),
                    header.size
                ),
            ));
        }
        if format == Format::Jpeg && header.colour.has_alpha() {
            return Err(Error::NoTransparency { path: path.to_owned(), format });
        }
        header.depth = match format {
            Format::Tiff => header.depth,
            Format::Png if header.depth != Depth::Eight => Depth::Sixteen,
            Format::Png | Format::Jpeg | Format::WebP | Format::Bmp | Format::Gif => Depth::Eight,
        };
        let bytes = header.bytes().unwrap_or(u64::MAX);
        if matches!(format, Format::Jpeg | Format::WebP) && bytes > WHOLE_BYTES_MAXIMUM {
            return Err(Error::image(
                path,
                format!(
                    "{} is encoded whole, and {} takes {bytes} bytes of {WHOLE_BYTES_MAXIMUM}; write a PNG or TIFF",
                    format.name(),
                    header.size
                ),
            ));
        }
        let file = temporary_file_for(path)?;
        let handle = file.as_file().try_clone().map_err(|source| Error::file(path, "create", source))?;
        let failure = Failure::default();
        let target = Reporting { file: handle, failure: failure.clone() };
        let encoder = match format {
            Format::Png => {
                let threads = thread::available_parallelism().map_or(1, usize::from);
                let bands = png::Bands::new(target, &header, texts, threads);
                Encoder::Png { bands: Box::new(bands.map_err(|error| cannot_write(path, &failure, error))?), failure }
            }
            Format::Tiff => {
                let strips =
                    tiff::Strips::new(target, &header, bytes).map_err(|error| cannot_write(path, &failure, error))?;
                Encoder::Tiff { strips: Box::new(strips), failure }
            }
            Format::Jpeg | Format::WebP | Format::Bmp | Format::Gif => Encoder::Whole(Vec::new()),
        };
        Ok(Self {
            path: path.to_owned(),
            format,
            rows_left: header.size.height,
            header,
            file,
            encoder,
            jpeg_quality: JPEG_QUALITY,
        })
    }

    /// Sets the quality of a JPEG, 1 to 100 on libjpeg's scale. Other formats ignore it.
    pub fn with_jpeg_quality(self, quality: u8) -> Self {
        Self { jpeg_quality: quality.clamp(1, 100), ..self }
    }

    /// Sets the compression of a PNG, and the maximum number of threads; the default is as many as the process may
    /// use. The bytes of the file do not depend on the threads. Other formats ignore both.
    pub fn with_png_compression(mut self, compression: PngCompression, threads: Option<usize>) -> Self {
        if let Encoder::Png { bands, .. } = &mut self.encoder {
            bands.set_compression(compression, threads);
        }
        self
    }

    /// The path of the finished picture.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl RowSink for ImageWriter {
    fn header(&self) -> &Header {
        &self.header
    }

    fn write_rows(&mut self, rows: &[u8]) -> Result<()> {
        let row_bytes = self.header.row_bytes().unwrap_or(usize::MAX);
        let count = u32::try_from(rows.len() / row_bytes).unwrap_or(u32::MAX);
        self.rows_left = self
            .rows_left
            .checked_sub(count)
            .filter(|_| rows.len().is_multiple_of(row_bytes))
            .ok_or_else(|| Error::image(&self.path, "more rows were written than the picture has"))?;
        match &mut self.encoder {
            Encoder::Png { bands, failure } => {
                bands.write_rows(rows).map_err(|error| cannot_write(&self.path, failure, error))
            }
            Encoder::Tiff { strips, failure } => {
                strips.write_rows(rows).map_err(|error| cannot_write(&self.path, failure, error))
            }
            Encoder::Whole(bytes) => {
                bytes.extend_from_slice(rows);
                Ok(())
            }
        }
    }

    /// Completes the file and gives it its name, in one step. A failure leaves nothing behind.
    fn finish(mut self: Box<Self>) -> Result<()> {
        if self.rows_left > 0 {
            return Err(Error::image(&self.path, format!("{} rows are missing at its end", self.rows_left)));
        }
        match self.encoder {
            Encoder::Png { bands, failure } => {
                bands.finish().map_err(|error| cannot_write(&self.path, &failure, error))?;
                // The encoder drops an error of the last chunk, but the file has recorded it.
                if let Some(error) = failure.error() {
                    return Err(Error::file(&self.path, "write", error));
                }
            }
            Encoder::Tiff { strips, failure } => {
                strips.finish().map_err(|error| cannot_write(&self.path, &failure, error))?
            }
            Encoder::Whole(samples) => {
                let bytes = encode_whole(self.format, self.jpeg_quality, &self.header, &samples)
                    .map_err(|error| Error::image(&self.path, format!("cannot be encoded: {error}")))?;
                self.file.write_all(&bytes).map_err(|source| Error::file(&self.path, "write", source))?;
            }
        }
        self.file.rename(&self.path).map_err(|error| Error::file(&self.path, "create", error))
    }
}

/// A temporary file beside `path`.
pub(super) fn temporary_file_for(path: &Path) -> Result<unfinished::File> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // The permissions of any new file.
    unfinished::file_in(folder, 0o666).map_err(|source| Error::file(folder, "create a file in it", source))
}

fn encode_whole(format: Format, quality: u8, header: &Header, samples: &[u8]) -> ImageResult<Vec<u8>> {
    let colour = match header.colour {
        Colour::Grey => ExtendedColorType::L8,
        Colour::GreyAlpha => ExtendedColorType::La8,
        Colour::Rgb => ExtendedColorType::Rgb8,
        Colour::Rgba => ExtendedColorType::Rgba8,
    };
    let mut bytes = Vec::new();
    if format == Format::Jpeg {
        let mut encoder = JpegEncoder::new_with_quality(&mut bytes, quality);
        if let Some((unit, density)) = header.metadata.density.and_then(Density::in_sixteen_bits) {
            let unit = match unit {
                DensityUnit::None => PixelDensityUnit::PixelAspectRatio,
                DensityUnit::Inch | DensityUnit::Metre => PixelDensityUnit::Inches,
                DensityUnit::Centimetre => PixelDensityUnit::Centimeters,
            };
            encoder.set_pixel_density(PixelDensity { density: density.into(), unit });
        }
        encode_with(encoder, format, header, samples, colour)?;
    } else {
        encode_with(WebPEncoder::new_lossless(&mut bytes), format, header, samples, colour)?;
    }
    Ok(bytes)
}

fn encode_with(
    mut encoder: impl ImageEncoder,
    format: Format,
    header: &Header,
    samples: &[u8],
    colour: ExtendedColorType,
) -> ImageResult<()> {
    if let Some(profile) = &header.icc_profile {
        // The only possible error is a format without profiles, and these formats have them.
        let _ = encoder.set_icc_profile(profile.clone());
    }
    let alone = Metadata { density: None, ..header.metadata.clone() };
    // JPEG stores the density itself.
    let metadata = if format == Format::Jpeg && header.metadata.exif.is_none() { &alone } else { &header.metadata };
    if let Some(exif) = metadata.exif_chunk(header.size) {
        let _ = encoder.set_exif_metadata(exif);
    }
    encoder.write_image(samples, header.size.width, header.size.height, colour)
}

fn cannot_write(path: &Path, failure: &Failure, error: impl Into<EncodingFailure>) -> Error {
    match failure.error() {
        Some(source) => Error::file(path, "write", source),
        None => Error::image(path, format!("cannot be encoded: {}", error.into().0)),
    }
}

struct EncodingFailure(String);

impl From<io::Error> for EncodingFailure {
    fn from(error: io::Error) -> Self {
        Self(error.to_string())
    }
}

impl From<::png::EncodingError> for EncodingFailure {
    fn from(error: ::png::EncodingError) -> Self {
        Self(error.to_string())
    }
}

impl From<::tiff::TiffError> for EncodingFailure {
    fn from(error: ::tiff::TiffError) -> Self {
        Self(error.to_string())
    }
}
