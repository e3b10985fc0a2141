//! PNG, by rows. Interlaced pictures are held whole.

use std::fs::File;
use std::io::{self, BufReader, Seek};
use std::path::Path;

use ::image::metadata::Orientation;

use super::png_colour::Colours;
use super::{Colour, Decoded, Depth, Header, Opening, Rows, damaged, read_whole};
use crate::Format;
use crate::Size;
use crate::error::{Error, Result};
use crate::exif::Found;
use crate::{Density, DensityUnit};

/// The largest EXIF chunk that is read. An orientation needs far less.
const EXIF_BYTES_MAXIMUM: u32 = 1 << 20;

/// The maximum total size of the colour profile and other chunks that are held. Printer profiles have a few megabytes.
const METADATA_BYTES_MAXIMUM: usize = 32 << 20;

/// The maximum ratio of Deflate: 258 bytes for a pair of codes of one bit each.
const DEFLATE_RATIO: f64 = 1032.0;

/// The number of rows that the decoder holds at once. Each has at most twice as many bytes as in the file, because
/// palettes become colours.
const ROWS_HELD: usize = 16;

impl Opening<'_> {
    pub(super) fn png(&self, mut file: BufReader<File>) -> Result<Decoded> {
        let exif = exif_chunk(&mut file).map_err(|source| self.unread(source))?;
        let orientation = exif.as_deref().and_then(Orientation::from_exif_chunk).unwrap_or(Orientation::NoTransforms);
        let file_bytes = file.get_ref().metadata().map_err(|source| self.unread(source))?.len();

        let mut decoder = ::png::Decoder::new_with_limits(file, ::png::Limits { bytes: METADATA_BYTES_MAXIMUM });
        decoder.ignore_checksums(false);
        // Palettes become colours, samples below 8 bits become 8 bits, transparent colours become alpha. 16 bits stay.
        decoder.set_transformations(::png::Transformations::EXPAND);
        let info = decoder.read_header_info().map_err(|error| self.damaged(error))?;
        self.check_size(Size { width: info.width, height: info.height })?;
        let row = info.raw_row_length();
        self.check_decoded("a row of this PNG has to be decoded whole", Some(row as u64))?;
        let rows = row.saturating_mul(ROWS_HELD);
        self.check_memory("some rows of this PNG have to be decoded together", rows)?;
        decoder.set_limits(::png::Limits { bytes: rows.saturating_add(METADATA_BYTES_MAXIMUM) });

        let mut reader = decoder.read_info().map_err(|error| self.damaged(error))?;
        let info = reader.info();
        if info.is_animated() {
            return Err(self.refused("expected a still picture, found an animation; extract its frames first"));
        }
        // The decoder panics on a palette whose last colour is cut off.
        if let (::png::ColorType::Indexed, Some(palette)) = (info.color_type, &info.palette)
            && !palette.len().is_multiple_of(3)
        {
            let found = palette.len();
            return Err(self.damaged(format_args!("expected a palette of 3 bytes a colour, found {found} bytes")));
        }
        let (colour, depth) = reader.output_color_type();
        let colour = match colour {
            ::png::ColorType::Grayscale => Colour::Grey,
            ::png::ColorType::GrayscaleAlpha => Colour::GreyAlpha,
            ::png::ColorType::Rgb | ::png::ColorType::Indexed => Colour::Rgb,
            ::png::ColorType::Rgba => Colour::Rgba,
        };
        let depth = if depth == ::png::BitDepth::Sixteen { Depth::Sixteen } else { Depth::Eight };
        let Colours { icc_profile, code_points, note } = Colours::of(info, colour);
        let size = Size { width: info.width, height: info.height };
        let header = Header { icc_profile, code_points, ..Header::new(size, colour, depth) };
        let density = info.pixel_dims.and_then(|found| {
            let unit = if found.unit == ::png::Unit::Meter { DensityUnit::Metre } else { DensityUnit::None };
            Density::whole(found.xppu, found.yppu, unit)
        });
        let rows: Box<dyn Rows> = if info.interlaced {
            self.check_whole(&header, "is interlaced and has to be decoded whole")?;
            if self.warn.is_some() {
                let stored = (row as u64).saturating_mul(size.height.into()).max(1);
                self.check_part(size, file_bytes as f64 * DEFLATE_RATIO / stored as f64)?;
            }
            let mut bytes = vec![0; reader.output_buffer_size().unwrap_or(0)];
            let decoded = reader.next_frame(&mut bytes).and_then(|_| reader.finish());
            decoded.or_else(|error| self.tolerate(self.damaged(error)))?;
            self.whole(bytes)
        } else {
            Box::new(PngRows { path: self.path.to_owned(), reader })
        };
        let decoded = Decoded { orientation, ..Decoded::new(header, rows) };
        let mut decoded = decoded.described(exif.map_or_else(Found::default, |exif| Found::of_chunk(&exif)), density);
        decoded.notes.extend(note.map(String::from));
        Ok(decoded)
    }
}

/// The text under a keyword before a PNG's pixels; `None` if there is none.
///
/// # Errors
/// [`Error::File`](crate::Error::File) and [`Error::Damaged`](crate::Error::Damaged): the file cannot be read, or is
/// not a PNG.
pub fn png_text(path: &Path, keyword: &str) -> Result<Option<String>> {
    let file = tileforge_files::open(path).map_err(|source| Error::file(path, "open", source))?;
    let limits = ::png::Limits { bytes: METADATA_BYTES_MAXIMUM };
    let decoder = ::png::Decoder::new_with_limits(BufReader::new(file), limits);
    let damage = |error: ::png::DecodingError| damaged(path, Format::Png, error);
    let reader = decoder.read_info().map_err(damage)?;
    let text = reader.info().utf8_text.iter().find(|text| text.keyword == keyword);
    let whole = |text: &::png::text_metadata::ITXtChunk| {
        let mut text = text.clone();
        // Only this function limits the decompressed size of a chunk: 2 MiB.
        text.decompress_text()?;
        text.get_text()
    };
    text.map(|text| whole(text).map_err(damage)).transpose()
}

struct PngRows {
    path: std::path::PathBuf,
    reader: ::png::Reader<BufReader<File>>,
}

impl Rows for PngRows {
    fn next(&mut self, row: &mut [u8]) -> Result<()> {
        match self.reader.read_row(row) {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(damaged(&self.path, Format::Png, "rows are missing")),
            Err(error) => Err(damaged(&self.path, Format::Png, error)),
        }
    }

    /// Reads up to the last chunk. The pixels' checksums follow the pixels.
    fn end(&mut self) -> Result<()> {
        self.reader.finish().map_err(|error| damaged(&self.path, Format::Png, error))
    }
}

/// Reads the EXIF chunk. The chunk may follow the pixels, too late for a reader of rows.
/// <https://www.w3.org/TR/png-3/#5Chunk-layout>
fn exif_chunk(file: &mut BufReader<File>) -> io::Result<Option<Vec<u8>>> {
    const SIGNATURE_BYTES: i64 = 8;
    const CHECKSUM_BYTES: i64 = 4;
    file.seek_relative(SIGNATURE_BYTES)?;
    let exif = loop {
        let mut head = [0; 8];
        if !read_whole(file, &mut head)? {
            break None;
        }
        let [a, b, c, d, kind @ ..] = head;
        let length = u32::from_be_bytes([a, b, c, d]);
        match &kind {
            b"eXIf" if length <= EXIF_BYTES_MAXIMUM => {
                let mut exif = vec![0; length as usize];
                break read_whole(file, &mut exif)?.then_some(exif);
            }
            // The chunk is reported as left out.
            b"eXIf" => break Some(Vec::new()),
            b"IEND" => break None,
            _ => file.seek_relative(i64::from(length) + CHECKSUM_BYTES)?,
        }
    };
    file.rewind()?;
    Ok(exif)
}
