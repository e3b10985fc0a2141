//! Reading pictures by rows.

mod bmp;
mod fogra39;
mod gif;
mod inks;
mod jpeg;
mod orientation;
mod png;
mod png_colour;
mod rows;
mod srgb;
mod tiff;
mod tiff_directory;
mod tolerance;
mod webp;

use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::image::metadata::Orientation;

pub use png::png_text;

use self::rows::Rows;
use super::{Colour, Depth, Format, Header, RowSource};
use crate::Size;
use crate::error::{Error, Result};
use crate::exif;

/// Limits, checked before memory is used.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Largest number of pixels in a picture, in millions.
    pub megapixels: u32,
    /// Largest number of decoded bytes for what has to be decoded whole: a picture, strip, row of tiles or frame.
    pub decoded_bytes: u64,
}

impl Default for Limits {
    /// 400 megapixels, and 1 GiB decoded.
    fn default() -> Self {
        Self { megapixels: 400, decoded_bytes: 1 << 30 }
    }
}

impl Limits {
    pub(super) fn check_size(&self, name: &Path, size: Size) -> Result<()> {
        if size.width == 0 || size.height == 0 {
            return Err(Error::image(name, format!("expected a picture of at least one pixel, found {size}")));
        }
        if size.pixels() > u64::from(self.megapixels) * 1_000_000 {
            return Err(Error::TooManyPixels { path: name.to_owned(), size, most: self.megapixels });
        }
        Ok(())
    }
}

/// A picture file that is read from its first row to its last.
pub struct ImageReader {
    path: PathBuf,
    format: Format,
    header: Header,
    rows: Box<dyn Rows>,
    rows_left: u32,
    notes: Vec<String>,
}

/// Receives reports of tolerated damage.
pub type Warn = Arc<dyn Fn(&Error) + Send + Sync>;

/// The decoder's state before the first row.
struct Decoded {
    header: Header,
    orientation: Orientation,
    rows: Box<dyn Rows>,
    /// Notes for the user: what of the file is left out or converted.
    notes: Vec<String>,
}

impl Decoded {
    fn new(header: Header, rows: Box<dyn Rows>) -> Self {
        Self { header, orientation: Orientation::NoTransforms, rows, notes: Vec::new() }
    }

    /// The same with its EXIF. The file's own density takes precedence over EXIF's.
    fn described(mut self, found: exif::Found, density: Option<crate::Density>) -> Self {
        if found.is_partial {
            self.notes.push("a part of its EXIF is damaged or too large, and is left out".into());
        }
        self.header.metadata = crate::Metadata { exif: found.exif, density: density.or(found.density) };
        self
    }
}

impl ImageReader {
    /// Opens a picture. Its format is detected from the content.
    ///
    /// Palettes and samples below 8 bits are expanded, and transparent colours become alpha. The EXIF orientation is
    /// applied; a picture that is turned or mirrored is held whole. CMYK is converted to sRGB, by the picture's own
    /// colour profile or else as print on coated paper (FOGRA39). Of a GIF, the first frame is read.
    ///
    /// # Errors
    /// [`Error::Damaged`] for a file that is truncated or damaged; [`Error::Image`] for another format, an animation or
    /// several pages, or a picture beyond `limits`; [`Error::File`] if the file cannot be
    /// opened.
    pub fn open(path: &Path, limits: &Limits) -> Result<Self> {
        Self::opened(regular(path)?, path, limits, None)
    }

    /// As [`ImageReader::open`], but continues with a damaged picture if any part of it can be decoded. `warn`
    /// receives the [`Error::Damaged`]. Missing parts are black, or are what the decoder produces.
    ///
    /// # Errors
    /// As [`ImageReader::open`], for files without any decodable part.
    pub fn open_tolerant(path: &Path, limits: &Limits, warn: impl Fn(&Error) + Send + Sync + 'static) -> Result<Self> {
        Self::opened(regular(path)?, path, limits, Some(Arc::new(warn)))
    }

    /// As [`ImageReader::open`], for an open regular file. `name` is its name in errors. With `warn`, as
    /// [`ImageReader::open_tolerant`].
    ///
    /// # Errors
    /// As [`ImageReader::open`].
    pub fn of_file(file: File, name: &Path, limits: &Limits, warn: Option<Warn>) -> Result<Self> {
        Self::opened(file, name, limits, warn)
    }

    fn opened(file: File, path: &Path, limits: &Limits, warn: Option<Warn>) -> Result<Self> {
        let mut file = BufReader::new(file);
        let format = format_of(&mut file, path)?;
        let opening = Opening { path, format, limits, warn };
        let decoded = match format {
            Format::Png => opening.png(file)?,
            Format::Jpeg => opening.jpeg(file)?,
            Format::WebP => opening.webp(file)?,
            Format::Tiff => opening.tiff(file)?,
            Format::Bmp => opening.bmp(file)?,
            Format::Gif => opening.gif(file)?,
        };
        let Decoded { header, rows, notes, .. } = opening.upright(opening.tolerating(decoded))?;
        Ok(Self { path: path.to_owned(), format, rows_left: header.size.height, header, rows, notes })
    }

    /// The same picture converted to sRGB by its colour profile, and without that profile. A picture without a profile
    /// counts as sRGB.
    ///
    /// # Errors
    /// [`Error::Image`] for a profile that is damaged or has other channels, and for colours that no profile
    /// describes, such as HDR.
    pub fn into_srgb(mut self) -> Result<Self> {
        if let Some(kind) = self.header.code_points.take().and_then(crate::CodePoints::beyond_profiles) {
            let problem = format!("its samples are {kind}, which is not converted to sRGB; convert it first");
            return Err(Error::image(&self.path, problem));
        }
        if let Some(profile) = self.header.icc_profile.take() {
            self.rows = srgb::converted(&self.path, &self.header, &profile, self.rows)?;
        }
        let exif = &mut self.header.metadata.exif;
        *exif = exif.take().map(crate::Exif::in_srgb);
        Ok(self)
    }

    /// The same picture without its metadata: EXIF and density. The colour profile stays, because it defines the
    /// samples' meaning.
    pub fn without_metadata(mut self) -> Self {
        self.header.metadata = crate::Metadata::default();
        self
    }

    /// What of the file is left out or converted, one sentence each, for the user.
    pub fn notes(&self) -> &[String] {
        &self.notes
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
        self.rows.next(row)?;
        self.rows_left = self.rows_left.saturating_sub(1);
        if self.rows_left == 0 { self.rows.end() } else { Ok(()) }
    }
}

fn regular(path: &Path) -> Result<File> {
    tileforge_files::open(path).map_err(|source| Error::file(path, "open", source))
}

fn damaged(path: &Path, format: Format, problem: impl std::fmt::Display) -> Error {
    Error::Damaged { path: path.to_owned(), format, problem: problem.to_string() }
}

/// Fills `buffer`; false if the file ends before. The decoder reports that.
fn read_whole(file: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match file.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

fn format_of(file: &mut BufReader<File>, path: &Path) -> Result<Format> {
    let mut start = Vec::new();
    let read = file.by_ref().take(18).read_to_end(&mut start).and_then(|_| file.rewind());
    read.map_err(|source| Error::file(path, "read", source))?;
    match start.as_slice() {
        [0x89, b'P', b'N', b'G', ..] => Ok(Format::Png),
        [0xff, 0xd8, 0xff, ..] => Ok(Format::Jpeg),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Ok(Format::WebP),
        [b'I', b'I', 42 | 43, 0, ..] | [b'M', b'M', 0, 42 | 43, ..] => Ok(Format::Tiff),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Ok(Format::Gif),
        // The length of the next header follows the file's header.
        [b'B', b'M', .., 12 | 40 | 52 | 56 | 64 | 108 | 124, 0, 0, 0] if start.len() == 18 => Ok(Format::Bmp),
        [_, _, _, _, b'f', b't', b'y', b'p', kind @ ..] => {
            let kind = if kind.starts_with(b"avi") { "AVIF" } else { "HEIC, AVIF or a film" };
            Err(Error::image(path, format!("{kind} is not read; convert it to PNG first")))
        }
        [] => Err(Error::image(path, "expected a picture, found an empty file")),
        _ => Err(Error::image(
            path,
            "expected a PNG, JPEG, WebP, TIFF, BMP or GIF file, found something else; convert it first",
        )),
    }
}

struct Opening<'o> {
    path: &'o Path,
    format: Format,
    limits: &'o Limits,
    /// Given if damage is tolerated.
    warn: Option<Warn>,
}

impl Opening<'_> {
    fn damaged(&self, problem: impl std::fmt::Display) -> Error {
        damaged(self.path, self.format, problem)
    }

    fn refused(&self, problem: impl Into<String>) -> Error {
        Error::image(self.path, problem)
    }

    fn unread(&self, source: io::Error) -> Error {
        Error::file(self.path, "read", source)
    }

    fn check_size(&self, size: Size) -> Result<()> {
        self.limits.check_size(self.path, size)
    }

    /// The whole content of a file that has to be in memory at once.
    fn read_whole(&self, mut file: BufReader<File>) -> Result<Vec<u8>> {
        let length = file.get_ref().metadata().map_err(|source| self.unread(source))?.len();
        let mut bytes = Vec::with_capacity(self.check_decoded("this file has to be read whole", Some(length))?);
        // The file may have grown.
        file.by_ref().take(length).read_to_end(&mut bytes).map_err(|source| self.unread(source))?;
        Ok(bytes)
    }

    /// The length of data that has to be in memory at once, if there is enough memory. `what` is, for example, "this
    /// PNG has to be decoded whole".
    fn check_decoded(&self, what: &str, bytes: Option<u64>) -> Result<usize> {
        let length =
            bytes.filter(|&bytes| bytes <= self.limits.decoded_bytes).and_then(|bytes| usize::try_from(bytes).ok());
        let length = length.ok_or_else(|| {
            let bytes = bytes.map_or("too many".into(), |bytes| bytes.to_string());
            self.refused(format!(
                "{what}, into {bytes} bytes, and {} are allowed; convert it to a PNG that is not interlaced, upright",
                self.limits.decoded_bytes
            ))
        })?;
        self.check_memory(what, length)?;
        Ok(length)
    }

    /// Checks that the memory that decoders will allocate is available: without memory, they abort the process.
    fn check_memory(&self, what: &str, length: usize) -> Result<()> {
        Vec::<u8>::new()
            .try_reserve_exact(length)
            .map_err(|_| self.refused(format!("{what}, into {length} bytes, and this process gets no memory for them")))
    }

    /// The length of all rows, if they have to be in memory at once.
    fn check_whole(&self, header: &Header, why: &str) -> Result<usize> {
        self.check_decoded(&format!("this {} {why}", self.format.name()), header.bytes())
    }

    /// Rows of samples that are already decoded.
    fn whole(&self, bytes: Vec<u8>) -> Box<dyn Rows> {
        Box::new(Whole { path: self.path.to_owned(), format: self.format, bytes, position: 0 })
    }
}

struct Whole {
    path: PathBuf,
    format: Format,
    bytes: Vec<u8>,
    position: usize,
}

impl Rows for Whole {
    fn next(&mut self, row: &mut [u8]) -> Result<()> {
        let next = self.bytes.get(self.position..self.position + row.len());
        row.copy_from_slice(next.ok_or_else(|| damaged(&self.path, self.format, "rows are missing"))?);
        self.position += row.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
