//! TIFF by strips, compressed with Deflate.

use ::tiff::TiffResult;
use ::tiff::encoder::compression::{CompressionAlgorithm, Deflate, DeflateLevel};
use ::tiff::encoder::{DirectoryEncoder, Rational, TiffEncoder, TiffKind, TiffKindBig, TiffKindStandard};
use ::tiff::tags::{
    CompressionMethod, ExtraSamples, PhotometricInterpretation, PlanarConfiguration, Predictor, ResolutionUnit,
    SampleFormat, Tag, Type,
};
use ::tiff::{Directory, TiffError};

use super::super::{Colour, Depth, Header};
use super::reporting::Reporting;
use crate::exif::Entry;
use crate::{DensityUnit, Ratio};

/// Samples of a strip, before compression.
const STRIP_BYTES: usize = 1 << 20;

/// The maximum sample bytes of a classic TIFF: larger files may need offsets beyond 32 bits. Incompressible data grows
/// by less than the difference to 4 GiB.
const CLASSIC_BYTES_MAXIMUM: u64 = 4_000_000_000;

/// A picture that is written strip by strip. The directory comes last.
pub(super) struct Strips {
    file: AnyTiffEncoder,
    header: Header,
    row_bytes: usize,
    rows_per_strip: u32,
    /// Rows that wait to become a strip.
    waiting: Vec<u8>,
    compressed: Vec<u8>,
    offsets: Vec<u64>,
    lengths: Vec<u64>,
}

enum AnyTiffEncoder {
    Classic(TiffEncoder<Reporting, TiffKindStandard>),
    Big(TiffEncoder<Reporting, TiffKindBig>),
}

impl Strips {
    /// A file for a picture of `bytes` bytes.
    pub(super) fn new(file: Reporting, header: &Header, bytes: u64) -> TiffResult<Self> {
        Self::with_kind(file, header, bytes > CLASSIC_BYTES_MAXIMUM)
    }

    fn with_kind(file: Reporting, header: &Header, big: bool) -> TiffResult<Self> {
        let row_bytes = header.row_bytes().ok_or(TiffError::LimitsExceeded)?;
        let rows_per_strip = (STRIP_BYTES / row_bytes.max(1)).clamp(1, header.size.height.max(1) as usize) as u32;
        let file = if big {
            AnyTiffEncoder::Big(TiffEncoder::new_big(file)?)
        } else {
            AnyTiffEncoder::Classic(TiffEncoder::new(file)?)
        };
        let (waiting, compressed) = (Vec::new(), Vec::new());
        Ok(Self {
            file,
            header: header.clone(),
            row_bytes,
            rows_per_strip,
            waiting,
            compressed,
            offsets: Vec::new(),
            lengths: Vec::new(),
        })
    }

    pub(super) fn write_rows(&mut self, mut rows: &[u8]) -> TiffResult<()> {
        let strip_bytes = self.row_bytes * self.rows_per_strip as usize;
        while !rows.is_empty() {
            let (now, later) = rows.split_at(rows.len().min(strip_bytes - self.waiting.len()));
            self.waiting.extend_from_slice(now);
            rows = later;
            if self.waiting.len() == strip_bytes {
                self.write_strip()?;
            }
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> TiffResult<()> {
        if !self.waiting.is_empty() {
            self.write_strip()?;
        }
        // Classic TIFF has 32-bit offsets.
        let classic = |values: &[u64]| values.iter().map(|&value| u32::try_from(value)).collect::<Result<Vec<_>, _>>();
        match &mut self.file {
            AnyTiffEncoder::Classic(file) => {
                let inner = write_inner(file, &self.header)?;
                let mut directory = file.image_directory()?;
                directory.write_tag(Tag::StripOffsets, classic(&self.offsets)?.as_slice())?;
                directory.write_tag(Tag::StripByteCounts, classic(&self.lengths)?.as_slice())?;
                write_tags(directory, &self.header, self.rows_per_strip, &inner)
            }
            AnyTiffEncoder::Big(file) => {
                let inner = write_inner(file, &self.header)?;
                let mut directory = file.image_directory()?;
                directory.write_tag(Tag::StripOffsets, self.offsets.as_slice())?;
                directory.write_tag(Tag::StripByteCounts, self.lengths.as_slice())?;
                write_tags(directory, &self.header, self.rows_per_strip, &inner)
            }
        }
    }

    fn write_strip(&mut self) -> TiffResult<()> {
        let channels = self.header.colour.channels();
        self.waiting.chunks_exact_mut(self.row_bytes).for_each(|row| predict(row, channels, self.header.depth));
        self.compressed.clear();
        Deflate::with_level(DeflateLevel::Fast).write_to(&mut self.compressed, &self.waiting)?;
        self.waiting.clear();
        let offset = match &mut self.file {
            AnyTiffEncoder::Classic(file) => write_data(file, &self.compressed)?,
            AnyTiffEncoder::Big(file) => write_data(file, &self.compressed)?,
        };
        self.offsets.push(offset);
        self.lengths.push(self.compressed.len() as u64);
        Ok(())
    }
}

/// Appends bytes and returns their position.
///
/// A directory borrows the encoder while anything is written. So each strip comes with an unreferenced empty directory
/// of 6 bytes (20 in BigTIFF).
fn write_data<K: TiffKind>(file: &mut TiffEncoder<Reporting, K>, bytes: &[u8]) -> TiffResult<u64> {
    let mut directory = file.extra_directory()?;
    let offset = directory.write_data(bytes)?;
    directory.finish()?;
    Ok(offset)
}

fn write_tags<K: TiffKind>(
    mut directory: DirectoryEncoder<'_, Reporting, K>,
    header: &Header,
    rows_per_strip: u32,
    inner: &[(Tag, u64)],
) -> TiffResult<()> {
    let channels = header.colour.channels();
    let (bits, format, predictor) = match header.depth {
        Depth::Eight => (8_u16, SampleFormat::Uint, Predictor::Horizontal),
        Depth::Sixteen => (16, SampleFormat::Uint, Predictor::Horizontal),
        Depth::Float => (32, SampleFormat::IEEEFP, Predictor::FloatingPoint),
    };
    let interpretation = match header.colour {
        Colour::Grey | Colour::GreyAlpha => PhotometricInterpretation::BlackIsZero,
        Colour::Rgb | Colour::Rgba => PhotometricInterpretation::RGB,
    };
    directory.write_tag(Tag::ImageWidth, header.size.width)?;
    directory.write_tag(Tag::ImageLength, header.size.height)?;
    directory.write_tag(Tag::BitsPerSample, vec![bits; channels].as_slice())?;
    directory.write_tag(Tag::Compression, CompressionMethod::Deflate)?;
    directory.write_tag(Tag::PhotometricInterpretation, interpretation)?;
    directory.write_tag(Tag::SamplesPerPixel, channels as u16)?;
    directory.write_tag(Tag::RowsPerStrip, rows_per_strip)?;
    directory.write_tag(Tag::PlanarConfiguration, PlanarConfiguration::Chunky)?;
    directory.write_tag(Tag::Predictor, predictor)?;
    directory.write_tag(Tag::SampleFormat, vec![format; channels].as_slice())?;
    if header.colour.has_alpha() {
        directory.write_tag(Tag::ExtraSamples, [ExtraSamples::UnassociatedAlpha].as_slice())?;
    }
    if let Some(profile) = &header.icc_profile {
        let mut entries = Directory::empty();
        entries.extend([(Tag::IccProfile, directory.write_entry_bytes(Type::UNDEFINED, profile)?)]);
        directory.extend_from(&entries);
    }
    if let Some(density) = header.metadata.density {
        let (unit, [across, down]) = density.as_fractions();
        let fraction = |Ratio { numerator, denominator }| Rational { n: numerator, d: denominator };
        let unit = match unit {
            DensityUnit::None => ResolutionUnit::None,
            DensityUnit::Inch | DensityUnit::Metre => ResolutionUnit::Inch,
            DensityUnit::Centimetre => ResolutionUnit::Centimeter,
        };
        directory.write_tag(Tag::XResolution, fraction(across))?;
        directory.write_tag(Tag::YResolution, fraction(down))?;
        directory.write_tag(Tag::ResolutionUnit, unit)?;
    }
    if let Some(exif) = &header.metadata.exif {
        write_entries(&mut directory, &exif.clone().in_native_order().primary)?;
    }
    for &(tag, at) in inner {
        // Only BigTIFF files have positions beyond 32 bits.
        match u32::try_from(at) {
            Ok(at) => directory.write_tag(tag, at)?,
            Err(_) => directory.write_tag(tag, at)?,
        }
    }
    directory.finish()
}

/// Writes the inner directories of EXIF, and returns their positions.
fn write_inner<K: TiffKind>(file: &mut TiffEncoder<Reporting, K>, header: &Header) -> TiffResult<Vec<(Tag, u64)>> {
    let Some(exif) = &header.metadata.exif else { return Ok(Vec::new()) };
    let exif = exif.clone().with_size(header.size).in_native_order();
    let mut written = Vec::new();
    for (tag, entries) in [(Tag::ExifDirectory, &exif.camera), (Tag::GpsDirectory, &exif.position)] {
        if !entries.is_empty() {
            let mut directory = file.extra_directory()?;
            write_entries(&mut directory, entries)?;
            written.push((tag, directory.finish_with_offsets()?.pointer.0));
        }
    }
    Ok(written)
}

fn write_entries<K: TiffKind>(directory: &mut DirectoryEncoder<'_, Reporting, K>, entries: &[Entry]) -> TiffResult<()> {
    for Entry { tag, kind, bytes } in entries {
        if let Some(kind) = Type::from_u16(*kind) {
            let mut written = Directory::empty();
            written.extend([(Tag::from_u16_exhaustive(*tag), directory.write_entry_bytes(kind, bytes)?)]);
            directory.extend_from(&written);
        }
    }
    Ok(())
}

/// Replaces samples by their differences from the left neighbours, which compress better; in native byte order. TIFF
/// 6.0, section 14; for floats, Adobe Photoshop TIFF Technical Note 3.
fn predict(row: &mut [u8], channels: usize, depth: Depth) {
    match depth {
        Depth::Eight => differences(row, channels, u8::wrapping_sub),
        Depth::Sixteen => {
            let (samples, _) = row.as_chunks_mut::<2>();
            let mut values: Vec<u16> = samples.iter().map(|&bytes| u16::from_be_bytes(bytes)).collect();
            differences(&mut values, channels, u16::wrapping_sub);
            samples.iter_mut().zip(values).for_each(|(bytes, value)| *bytes = value.to_ne_bytes());
        }
        Depth::Float => {
            // All first bytes of the row, then all second bytes, and so on. The first byte holds sign and exponent.
            let (samples, _) = row.as_chunks::<4>();
            let values: Vec<[u8; 4]> = samples.iter().map(|&bytes| f32::from_ne_bytes(bytes).to_be_bytes()).collect();
            for (byte, plane) in row.chunks_exact_mut(values.len()).enumerate() {
                plane.iter_mut().zip(&values).for_each(|(into, value)| *into = value[byte]);
            }
            differences(row, channels, u8::wrapping_sub);
        }
    }
}

fn differences<T: Copy>(values: &mut [T], channels: usize, subtract: impl Fn(T, T) -> T) {
    for index in (channels..values.len()).rev() {
        values[index] = subtract(values[index], values[index - channels]);
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::reader::ImageReader;
    use super::super::super::{Limits, RowSource};
    use super::*;
    use crate::Size;
    use crate::writer::Failure;

    #[test]
    fn a_big_file_reads_as_a_classic_one() {
        let size = Size { width: 301, height: 1200 };
        let header = Header { icc_profile: Some(vec![9; 90]), ..Header::new(size, Colour::Rgb, Depth::Sixteen) };
        let samples: Vec<u8> = (0..header.row_bytes().unwrap() * 1200).map(|index| (index * 31 % 251) as u8).collect();
        let found = [false, true].map(|big| {
            let file = tempfile::NamedTempFile::new().unwrap();
            let target = Reporting { file: file.reopen().unwrap(), failure: Failure::default() };
            let mut strips = Strips::with_kind(target, &header, big).unwrap();
            samples.chunks(header.row_bytes().unwrap() * 7).for_each(|rows| strips.write_rows(rows).unwrap());
            strips.finish().unwrap();
            assert_eq!(std::fs::read(file.path()).unwrap()[2..4], u16::to_ne_bytes(if big { 43 } else { 42 }));
            let mut reader = ImageReader::open(file.path(), &Limits::default()).unwrap();
            assert_eq!(reader.header(), &header);
            let mut bytes = vec![0; samples.len()];
            bytes.chunks_mut(header.row_bytes().unwrap()).for_each(|row| reader.read_row(row).unwrap());
            bytes
        });
        assert!(found.iter().all(|bytes| *bytes == samples));
    }
}
