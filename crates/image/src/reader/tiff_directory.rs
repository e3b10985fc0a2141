//! Checks a TIFF file's first page before the decoder reads it.
//!
//! The decoder multiplies sizes without checking for overflow, and supports no palettes. Source: TIFF 6.0, section 2;
//! <https://www.awaresystems.be/imaging/tiff/bigtiff.html>.

use std::io::{self, Read, Seek, SeekFrom};

use crate::Size;

const NEW_SUBFILE_TYPE: u16 = 254;
const IMAGE_WIDTH: u16 = 256;
const IMAGE_LENGTH: u16 = 257;
const PHOTOMETRIC_INTERPRETATION: u16 = 262;
const SAMPLES_PER_PIXEL: u16 = 277;
const TILE_WIDTH: u16 = 322;
const TILE_LENGTH: u16 = 323;

/// Photometric interpretations.
pub(super) const BLACK_IS_ZERO: u16 = 1;
pub(super) const PALETTE: u16 = 3;

/// Reduced versions and transparency masks (bits 0 and 2 of the subfile's type) do not count as pages.
const NOT_A_PAGE: u64 = 0b101;

/// The maximum number of pages, reduced versions and masks.
const DIRECTORIES_MAXIMUM: usize = 1 << 16;

/// Largest sides of tiles, and largest number of samples of a pixel. No picture has more.
const TILE_SIDE_MAXIMUM: u64 = 1 << 16;
const SAMPLES_MAXIMUM: u64 = 16;

/// The first page of a file.
pub(super) struct Page {
    pub(super) size: Size,
    /// The photometric interpretation, and the position of its two bytes in the file.
    pub(super) photometric: Option<(u16, u64)>,
    pub(super) big_endian: bool,
}

/// Why there is no first page.
pub(super) enum NoPage {
    Unread(io::Error),
    Damaged(String),
    Refused(String),
}

impl From<io::Error> for NoPage {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Damaged("its directory is missing".into()),
            _ => Self::Unread(error),
        }
    }
}

/// Reads the directories of a file.
pub(super) fn first_page(file: &mut (impl Read + Seek)) -> Result<Page, NoPage> {
    let mut start = [0; 4];
    file.read_exact(&mut start)?;
    let big_endian = start[0] == b'M';
    let big = start.contains(&43);
    let mut numbers = Numbers { file, big_endian };
    if big {
        // The size of an offset, which is 8, and a zero.
        numbers.read(4)?;
    }
    let word = if big { 8 } else { 4 };
    let mut next = numbers.read(word)?;
    let mut first = None;
    let mut pages = 0;
    for _ in 0..DIRECTORIES_MAXIMUM {
        if next == 0 {
            break;
        }
        let directory = directory(&mut numbers, next, big)?;
        next = numbers.read(word)?;
        pages += usize::from(directory.kind & NOT_A_PAGE == 0);
        first.get_or_insert(directory);
        if pages > 1 {
            return Err(NoPage::Refused("expected one picture, found several pages; split the file first".into()));
        }
    }
    let first = first.ok_or_else(|| NoPage::Damaged("it has no directory".into()))?;
    numbers.file.rewind()?;
    first.page(big_endian)
}

/// The entries that determine how much memory a picture takes.
#[derive(Default)]
struct Directory {
    kind: u64,
    width: u64,
    height: u64,
    samples: Option<u64>,
    tile: [u64; 2],
    photometric: Option<(u16, u64)>,
}

impl Directory {
    fn page(self, big_endian: bool) -> Result<Page, NoPage> {
        let side = |length: u64| {
            u32::try_from(length).map_err(|_| NoPage::Refused(format!("a side of {length} pixels is too long")))
        };
        let size = Size { width: side(self.width)?, height: side(self.height)? };
        let samples = self.samples.unwrap_or(1);
        if samples > SAMPLES_MAXIMUM {
            return Err(NoPage::Refused(format!(
                "expected at most {SAMPLES_MAXIMUM} samples for each pixel, found {samples}"
            )));
        }
        if self.height * samples.max(1) > u64::from(u32::MAX) {
            return Err(NoPage::Refused(format!("{size} pixels of {samples} samples are too many")));
        }
        if let Some(side) = self.tile.into_iter().find(|&side| side > TILE_SIDE_MAXIMUM) {
            return Err(NoPage::Refused(format!(
                "expected tiles of at most {TILE_SIDE_MAXIMUM} pixels a side, found {side}"
            )));
        }
        Ok(Page { size, photometric: self.photometric, big_endian })
    }
}

fn directory(numbers: &mut Numbers<'_, impl Read + Seek>, at: u64, big: bool) -> Result<Directory, NoPage> {
    numbers.file.seek(SeekFrom::Start(at))?;
    let count = numbers.read(if big { 8 } else { 2 })?;
    if count > u64::from(u16::MAX) {
        return Err(NoPage::Damaged(format!("a directory of {count} entries")));
    }
    let mut directory = Directory::default();
    for _ in 0..count {
        let (tag, kind) = (numbers.read(2)? as u16, numbers.read(2)?);
        let (count_bytes, field) = if big { (8, 8) } else { (4, 4) };
        let count = numbers.read(count_bytes)?;
        let place = numbers.file.stream_position()?;
        // SHORT, LONG and LONG8. The decoder checks other types.
        let length = match kind {
            3 => 2,
            4 => 4,
            16 if big => 8,
            _ => 0,
        };
        let value = numbers.read(length)?;
        numbers.read(field - length)?;
        if count != 1 || length == 0 {
            continue;
        }
        match tag {
            NEW_SUBFILE_TYPE => directory.kind = value,
            IMAGE_WIDTH => directory.width = value,
            IMAGE_LENGTH => directory.height = value,
            SAMPLES_PER_PIXEL => directory.samples = Some(value),
            TILE_WIDTH => directory.tile[0] = value,
            TILE_LENGTH => directory.tile[1] = value,
            PHOTOMETRIC_INTERPRETATION if length == 2 => directory.photometric = Some((value as u16, place)),
            _ => {}
        }
    }
    Ok(directory)
}

struct Numbers<'f, R> {
    file: &'f mut R,
    big_endian: bool,
}

impl<R: Read> Numbers<'_, R> {
    /// An integer of `length` bytes, at most 8.
    fn read(&mut self, length: usize) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.file.read_exact(&mut bytes[..length])?;
        if self.big_endian {
            bytes[..length].reverse();
        }
        Ok(u64::from_le_bytes(bytes))
    }
}

/// A file with the two bytes of the photometric interpretation replaced.
pub(super) struct Patched<R> {
    pub(super) file: R,
    /// The position, and the bytes to read there instead.
    pub(super) patch: Option<(u64, [u8; 2])>,
}

impl<R: Read + Seek> Read for Patched<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some((at, bytes)) = self.patch else { return self.file.read(buffer) };
        let position = self.file.stream_position()?;
        let read = self.file.read(buffer)?;
        for (offset, byte) in (at..).zip(bytes) {
            let place = offset.checked_sub(position).and_then(|place| usize::try_from(place).ok());
            if let Some(place) = place.filter(|&place| place < read) {
                buffer[place] = byte;
            }
        }
        Ok(read)
    }
}

impl<R: Seek> Seek for Patched<R> {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        self.file.seek(position)
    }
}
