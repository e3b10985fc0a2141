//! TIFF, by strips or rows of tiles.

use std::fs::File;
use std::io::{BufReader, Seek};
use std::path::PathBuf;

use ::image::metadata::Orientation;
use ::tiff::ColorType;
use ::tiff::decoder::{ChunkType, Decoder, Limits};
use ::tiff::tags::{CompressionMethod, PlanarConfiguration, Predictor, SampleFormat, Tag};

use super::jpeg::rgb_of_ycbcr;
use super::tiff_directory::{BLACK_IS_ZERO, NoPage, PALETTE, Patched, first_page};
use super::{Colour, Decoded, Depth, Header, Opening, Rows, damaged, srgb};
use crate::Format;
use crate::Size;
use crate::error::{Error, Result};
use crate::exif::Found;

/// The largest table of strips or colour profile.
const TAG_BYTES_MAXIMUM: usize = 16 << 20;

type TiffDecoder = Decoder<Patched<BufReader<File>>>;

/// The meaning of a pixel's samples.
#[derive(Clone, Debug)]
enum Samples {
    Grey,
    Rgb,
    /// Luma and chroma, as in JPEG files.
    YCbCr,
    Cmyk,
    /// An index, with red, green and blue for each index.
    Palette(Vec<[u8; 3]>),
}

/// The channel after the colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extra {
    Alpha,
    /// Alpha that the colours are already multiplied by.
    PremultipliedAlpha,
    None,
}

/// The layout of pixels as the decoder gives them.
#[derive(Clone, Debug)]
struct Stored {
    samples: Samples,
    extra: Extra,
    /// 1, 2, 4, 8 or 16 bits for integers, 32 for floats.
    bits: u8,
    /// Samples of each decoded pixel.
    channels: usize,
    /// Whether each channel has its own plane.
    planar: bool,
}

impl Opening<'_> {
    pub(super) fn tiff(&self, mut file: BufReader<File>) -> Result<Decoded> {
        let page = first_page(&mut file).map_err(|problem| match problem {
            NoPage::Unread(source) => self.unread(source),
            NoPage::Damaged(problem) => self.damaged(problem),
            NoPage::Refused(problem) => self.refused(problem),
        })?;
        self.check_size(page.size)?;
        let found = Found::of_file(&mut file).and_then(|found| file.rewind().map(|()| found));
        let found = found.map_err(|source| self.unread(source))?;
        // The decoder does not support palettes; indices are read as if they were grey.
        let indexed = page.photometric.filter(|&(photometric, _)| photometric == PALETTE);
        let patch = indexed.map(|(_, at)| {
            (at, if page.big_endian { BLACK_IS_ZERO.to_be_bytes() } else { BLACK_IS_ZERO.to_le_bytes() })
        });
        let mut decoder =
            Decoder::new(Patched { file, patch }).map_err(|error| self.damaged(error))?.with_limits(self.tiff_limits());
        if decoder.dimensions().map_err(|error| self.damaged(error))? != (page.size.width, page.size.height) {
            return Err(self.damaged("it says its size twice, and differently"));
        }
        self.check_compression(&mut decoder)?;
        let stored = self.stored(&mut decoder, indexed.is_some())?;

        let orientation: Option<u8> =
            decoder.find_tag_unsigned(Tag::Orientation).map_err(|error| self.damaged(error))?;
        let icc_profile = decoder.find_tag(Tag::IccProfile).map_err(|error| self.damaged(error))?;
        let icc_profile =
            icc_profile.map(|value| value.into_u8_vec()).transpose().map_err(|error| self.damaged(error))?;
        let mut header = stored.header(page.size, icc_profile);
        let rows = TiffRows::new(self, decoder, stored.clone(), &header)?;
        let mut rows: Box<dyn Rows> = Box::new(rows);
        let mut note = None;
        if let Samples::Cmyk = stored.samples {
            (rows, note) = srgb::from_cmyk(self.path, &mut header, rows)?;
        }
        let orientation = orientation.and_then(Orientation::from_exif).unwrap_or(Orientation::NoTransforms);
        let decoded = Decoded { orientation, ..Decoded::new(header, rows) };
        let mut decoded = decoded.described(found, None);
        decoded.notes.extend(note);
        Ok(decoded)
    }

    fn tiff_limits(&self) -> Limits {
        let bytes = usize::try_from(self.limits.decoded_bytes).unwrap_or(usize::MAX);
        let mut limits = Limits::default();
        limits.decoding_buffer_size = bytes;
        limits.intermediate_buffer_size = bytes;
        limits.ifd_value_size = TAG_BYTES_MAXIMUM;
        limits
    }

    fn check_compression(&self, decoder: &mut TiffDecoder) -> Result<()> {
        let method: Option<u16> = decoder.find_tag_unsigned(Tag::Compression).map_err(|error| self.damaged(error))?;
        let method = method.map_or(CompressionMethod::None, CompressionMethod::from_u16_exhaustive);
        match method {
            CompressionMethod::None
            | CompressionMethod::LZW
            | CompressionMethod::Deflate
            | CompressionMethod::OldDeflate
            | CompressionMethod::PackBits
            | CompressionMethod::ModernJPEG
            | CompressionMethod::Fax4 => Ok(()),
            other => Err(self.refused(format!(
                "expected a TIFF without compression or with LZW, Deflate, PackBits, JPEG or CCITT group 4, found \
                 {other:?} ({}); convert it first",
                other.to_u16()
            ))),
        }
    }

    fn stored(&self, decoder: &mut TiffDecoder, indexed: bool) -> Result<Stored> {
        let colour = decoder
            .colortype()
            .map_err(|error| self.refused(format!("a TIFF that is not supported: {error}; convert it to RGB first")))?;
        let numbers = |decoder: &mut TiffDecoder, tag| {
            let values = decoder.find_tag_unsigned_vec::<u16>(tag).map_err(|error| self.damaged(error))?;
            Ok::<_, Error>(values.unwrap_or_default())
        };
        let extra = match numbers(decoder, Tag::ExtraSamples)?.first() {
            Some(1) => Extra::PremultipliedAlpha,
            Some(2) => Extra::Alpha,
            _ => Extra::None,
        };
        let (samples, extra, channels) = match colour {
            ColorType::Gray(bits) if indexed => (self.palette(decoder, bits)?, Extra::None, 1),
            ColorType::Gray(_) => (Samples::Grey, Extra::None, 1),
            ColorType::Multiband { num_samples, .. } if !indexed => (Samples::Grey, extra, usize::from(num_samples)),
            ColorType::RGB(_) => (Samples::Rgb, Extra::None, 3),
            ColorType::RGBA(_) if extra == Extra::None => (Samples::Rgb, Extra::Alpha, 4),
            ColorType::RGBA(_) => (Samples::Rgb, extra, 4),
            ColorType::CMYK(_) => (Samples::Cmyk, Extra::None, 4),
            ColorType::YCbCr(8) => (Samples::YCbCr, Extra::None, 3),
            other => {
                return Err(self.refused(format!(
                    "expected a TIFF in grey, RGB or CMYK, found {other:?}; convert it to RGB first"
                )));
            }
        };
        let planar =
            numbers(decoder, Tag::PlanarConfiguration)?.first().copied() == Some(PlanarConfiguration::Planar.to_u16());
        if matches!(samples, Samples::YCbCr)
            && (planar
                || numbers(decoder, Tag::Compression)?.first().copied() != Some(CompressionMethod::ModernJPEG.to_u16()))
        {
            return Err(self.refused("a TIFF in YCbCr that is not compressed as JPEG; convert it to RGB first"));
        }
        let format = numbers(decoder, Tag::SampleFormat)?
            .first()
            .map_or(SampleFormat::Uint, |&format| SampleFormat::from_u16_exhaustive(format));
        let bits = colour.bit_depth();
        let supported = match (format, &samples) {
            (SampleFormat::Uint, Samples::Grey | Samples::Palette(_)) if channels == 1 => {
                matches!(bits, 1 | 2 | 4 | 8 | 16)
            }
            (SampleFormat::Uint, _) => matches!(bits, 8 | 16),
            (SampleFormat::IEEEFP, Samples::Grey | Samples::Rgb) => bits == 32,
            _ => false,
        };
        if !supported {
            return Err(self.refused(format!(
                "expected TIFF samples of 8 or 16 bits, or of 32 bits and floating, found {bits} bits of {format:?} \
                 in {colour:?}; convert it first"
            )));
        }
        let all: u16 =
            decoder.find_tag_unsigned(Tag::SamplesPerPixel).map_err(|error| self.damaged(error))?.unwrap_or(1);
        let predictor = numbers(decoder, Tag::Predictor)?.first().copied().unwrap_or(Predictor::None.to_u16());
        if !planar && usize::from(all) != channels && predictor != Predictor::None.to_u16() {
            // The decoder would take differences between the wrong channels.
            return Err(self.refused(
                "a TIFF with a predictor and channels that are neither colour nor alpha; remove these channels first",
            ));
        }
        Ok(Stored { samples, extra, bits, channels, planar })
    }

    /// The map holds all reds, then all greens, then all blues, in 16 bits each.
    fn palette(&self, decoder: &mut TiffDecoder, bits: u8) -> Result<Samples> {
        let map = decoder
            .find_tag_unsigned_vec::<u16>(Tag::ColorMap)
            .map_err(|error| self.damaged(error))?
            .unwrap_or_default();
        let colours = 1 << bits.min(8);
        if bits > 8 || map.len() != 3 * colours {
            return Err(self.damaged(format!("expected a palette of {colours} colours, found {} values", map.len())));
        }
        // Some programs write 8 bits.
        let shift = if map.iter().any(|&value| value > 0xff) { 8 } else { 0 };
        Ok(Samples::Palette(
            (0..colours)
                .map(|index| [0, 1, 2].map(|channel| (map[channel * colours + index] >> shift) as u8))
                .collect(),
        ))
    }
}

impl Stored {
    fn header(&self, size: Size, icc_profile: Option<Vec<u8>>) -> Header {
        let colour = match (&self.samples, self.extra) {
            (Samples::Grey, Extra::None) => Colour::Grey,
            (Samples::Grey, _) => Colour::GreyAlpha,
            (_, Extra::None) => Colour::Rgb,
            _ => Colour::Rgba,
        };
        let depth = match self.bits {
            32 => Depth::Float,
            16 => Depth::Sixteen,
            _ => Depth::Eight,
        };
        Header { icc_profile, ..Header::new(size, colour, depth) }
    }

    /// Channels of the rows that [`TiffRows`] gives. CMYK has four, which become colours later.
    fn channels_out(&self) -> usize {
        match (&self.samples, self.extra) {
            (Samples::Cmyk, _) => 4,
            (Samples::Grey, Extra::None) => 1,
            (Samples::Grey, _) => 2,
            (_, Extra::None) => 3,
            _ => 4,
        }
    }

    fn sample_bytes(&self) -> usize {
        usize::from(self.bits).div_ceil(8)
    }

    /// Bytes of `width` decoded pixels of a plane.
    fn row_bytes(&self, width: usize) -> usize {
        let channels = if self.planar { 1 } else { self.channels };
        (width * channels * usize::from(self.bits)).div_ceil(8)
    }

    /// Converts decoded pixels to rows. `from` has the planes of this row one after another.
    fn convert(&self, from: &[&[u8]], into: &mut [u8]) {
        let bytes = self.sample_bytes();
        let channels_out = self.channels_out();
        for (index, pixel) in into.chunks_exact_mut(channels_out * bytes.max(1)).enumerate() {
            let sample = |channel: usize| {
                let (plane, at) = if self.planar { (channel, index) } else { (0, index * self.channels + channel) };
                &from[plane][at * bytes..][..bytes]
            };
            match &self.samples {
                Samples::Palette(colours) => pixel.copy_from_slice(&colours[usize::from(self.small(from[0], index))]),
                Samples::Grey if self.bits < 8 => {
                    let white = (1_u16 << self.bits) - 1;
                    pixel[0] = (u16::from(self.small(from[0], index)) * 255 / white) as u8;
                }
                Samples::YCbCr => pixel.copy_from_slice(&rgb_of_ycbcr([sample(0)[0], sample(1)[0], sample(2)[0]])),
                Samples::Grey | Samples::Rgb | Samples::Cmyk => {
                    for (channel, into) in pixel.chunks_exact_mut(bytes).enumerate() {
                        into.copy_from_slice(sample(channel));
                        if self.bits == 16 {
                            // From native byte order.
                            into.copy_from_slice(&u16::from_ne_bytes([into[0], into[1]]).to_be_bytes());
                        }
                    }
                    if self.extra == Extra::PremultipliedAlpha {
                        self.divide_by_alpha(pixel);
                    }
                }
            }
        }
    }

    /// A sample of at most 8 bits. The first sample of a byte is in its high bits.
    fn small(&self, row: &[u8], index: usize) -> u8 {
        let bits = usize::from(self.bits);
        let at = index * bits;
        (row[at / 8] >> (8 - bits - at % 8)) & (((1_u16 << bits) - 1) as u8)
    }

    fn divide_by_alpha(&self, pixel: &mut [u8]) {
        let white = match self.bits {
            8 => 255.0,
            16 => 65_535.0,
            _ => 1.0,
        };
        let value = |bytes: &[u8]| match *bytes {
            [byte] => f32::from(byte),
            [high, low] => f32::from(u16::from_be_bytes([high, low])),
            [a, b, c, d] => f32::from_ne_bytes([a, b, c, d]),
            _ => 0.0,
        };
        let (colours, alpha) = pixel.split_at_mut(pixel.len() - self.sample_bytes());
        let alpha = value(alpha);
        if alpha <= 0.0 {
            return;
        }
        for sample in colours.chunks_exact_mut(self.sample_bytes()) {
            let straight = value(sample) * white / alpha;
            // Casts saturate.
            match sample {
                [byte] => *byte = (straight + 0.5) as u8,
                [_, _] => sample.copy_from_slice(&((straight + 0.5) as u16).to_be_bytes()),
                _ => sample.copy_from_slice(&straight.to_ne_bytes()),
            }
        }
    }
}

struct TiffRows {
    path: PathBuf,
    decoder: TiffDecoder,
    stored: Stored,
    size: Size,
    /// Width and height of strips or tiles.
    chunk: Size,
    chunks_across: u32,
    chunks_of_a_plane: u32,
    row_bytes: usize,
    /// The rows of the current strip, or of the current row of tiles.
    band: Vec<u8>,
    next: u32,
    planes: Vec<Vec<u8>>,
}

impl TiffRows {
    fn new(opening: &Opening<'_>, mut decoder: TiffDecoder, stored: Stored, header: &Header) -> Result<Self> {
        let (width, height) = decoder.chunk_dimensions();
        let size = header.size;
        let chunk = Size { width, height: height.min(size.height) };
        let chunks_across = size.width.div_ceil(chunk.width);
        let chunks_of_a_plane = u64::from(chunks_across) * u64::from(size.height.div_ceil(chunk.height));
        let count = match decoder.get_chunk_type() {
            ChunkType::Strip => decoder.strip_count(),
            ChunkType::Tile => decoder.tile_count(),
        };
        let planes = if stored.planar { stored.channels } else { 1 };
        if u64::from(count.map_err(|error| opening.damaged(error))?) < chunks_of_a_plane * planes as u64 {
            return Err(opening.damaged("strips or tiles are missing"));
        }
        let pixel = (stored.channels_out() * stored.sample_bytes()) as u64;
        let row_bytes = u64::from(size.width) * pixel;
        let what = format!("rows of this TIFF come {} at once, which have to be decoded whole", chunk.height);
        let band = opening.check_decoded(&what, row_bytes.checked_mul(chunk.height.into()))?;
        // One more strip or tile is held beside the rows.
        let decoded = u64::from(chunk.width.min(size.width))
            * u64::from(chunk.height)
            * (stored.channels * stored.sample_bytes()) as u64;
        opening.check_decoded(&what, Some(decoded))?;
        Ok(Self {
            path: opening.path.to_owned(),
            decoder,
            size,
            chunk,
            chunks_across,
            chunks_of_a_plane: chunks_of_a_plane as u32,
            row_bytes: row_bytes as usize,
            band: vec![0; band],
            next: 0,
            planes: vec![Vec::new(); planes],
            stored,
        })
    }

    fn decode_band(&mut self, band: u32) -> Result<()> {
        let rows = self.chunk.height.min(self.size.height - band * self.chunk.height) as usize;
        let pixel = self.stored.channels_out() * self.stored.sample_bytes();
        for column in 0..self.chunks_across {
            let left = (column * self.chunk.width) as usize;
            let width = (self.chunk.width as usize).min(self.size.width as usize - left);
            let stored_row = self.stored.row_bytes(width);
            // With separate planes, the decoder gives whole tiles at the lower border.
            for (plane, bytes) in self.planes.iter_mut().enumerate() {
                let index = plane as u32 * self.chunks_of_a_plane + band * self.chunks_across + column;
                bytes.resize(stored_row * self.decoder.chunk_data_dimensions(index).1 as usize, 0);
                self.decoder
                    .read_chunk_bytes(index, bytes)
                    .map_err(|error| damaged(&self.path, Format::Tiff, error))?;
            }
            for row in 0..rows {
                let from: Vec<&[u8]> =
                    self.planes.iter().map(|plane| &plane[row * stored_row..][..stored_row]).collect();
                let into = &mut self.band[row * self.row_bytes + left * pixel..][..width * pixel];
                self.stored.convert(&from, into);
            }
        }
        Ok(())
    }
}

impl Rows for TiffRows {
    fn next(&mut self, row: &mut [u8]) -> Result<()> {
        if self.next >= self.size.height {
            return Err(damaged(&self.path, Format::Tiff, "rows are missing"));
        }
        let at = self.next % self.chunk.height;
        if at == 0 {
            self.decode_band(self.next / self.chunk.height)?;
        }
        row.copy_from_slice(&self.band[at as usize * self.row_bytes..][..self.row_bytes]);
        if self.stored.bits == 32 && row.as_chunks().0.iter().any(|&bytes| f32::from_ne_bytes(bytes).is_nan()) {
            return Err(Error::image(
                &self.path,
                format!("row {} holds values that are not numbers (NaN); replace them first", self.next),
            ));
        }
        self.next += 1;
        Ok(())
    }
}
