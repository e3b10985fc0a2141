//! EXIF: metadata that a camera or a program stores about a picture.
//!
//! EXIF is parsed with limits and written anew. So an output has no thumbnail of its input, and no entry that only
//! applied to the input's pixels. Sources: CIPA DC-008-2024 (Exif 3.0), section 4.6; TIFF 6.0, section 2.

use std::io::{self, Cursor, Read, Seek, SeekFrom};

use crate::Size;
use crate::density::{Density, DensityUnit, Ratio};

/// The three directories of EXIF, without entries that only apply to the stored pixels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exif {
    big_endian: bool,
    /// The entries that TIFF has, too: camera, program, date, author.
    pub(crate) primary: Vec<Entry>,
    /// How the picture was taken.
    pub(crate) camera: Vec<Entry>,
    /// Where it was taken.
    pub(crate) position: Vec<Entry>,
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) tag: u16,
    /// TIFF's number of the type.
    pub(crate) kind: u16,
    /// The values, in the byte order of the whole EXIF data.
    pub(crate) bytes: Vec<u8>,
}

/// A JPEG segment holds 65,533 bytes after its length, six of which are a name. The directories themselves need some
/// bytes, too.
const BYTES_MAXIMUM: usize = 60_000;

/// The maximum number of entries of a directory.
const ENTRIES_MAXIMUM: u64 = 1000;

const SHORT: u16 = 3;
const LONG: u16 = 4;
const RATIONAL: u16 = 5;

const ORIENTATION: u16 = 0x0112;
const X_RESOLUTION: u16 = 0x011a;
const Y_RESOLUTION: u16 = 0x011b;
const RESOLUTION_UNIT: u16 = 0x0128;
const CAMERA: u16 = 0x8769;
const POSITION: u16 = 0x8825;
const COLOUR_SPACE: u16 = 0xa001;
const WIDTH: u16 = 0xa002;
const HEIGHT: u16 = 0xa003;
const GAMMA: u16 = 0xa500;

/// The entries of the primary directory that describe the picture, not how its samples are stored: description,
/// camera, program, date, author, computer, copyright, rating, and Windows's own entries.
const PRIMARY: [u16; 15] = [
    0x010e, 0x010f, 0x0110, 0x0131, 0x0132, 0x013b, 0x013c, 0x4746, 0x4749, 0x8298, 0x9c9b, 0x9c9c, 0x9c9d, 0x9c9e,
    0x9c9f,
];

/// The entries of the camera's directory that an output does not keep: the maker's notes, whose offsets are only valid
/// at their old position; pointers; compression; and positions and lengths in pixels.
const NOT_OF_CAMERA: [u16; 10] = [0x927c, 0xa005, 0xea1c, 0xea1d, 0x9102, 0x9214, 0xa214, 0xa20e, 0xa20f, 0xa210];

/// Bytes of a value of each type; 0 for an unknown type.
const fn width(kind: u16) -> u64 {
    match kind {
        1 | 2 | 6 | 7 => 1,
        3 | 8 => 2,
        4 | 9 | 11 | 13 => 4,
        5 | 10 | 12 => 8,
        _ => 0,
    }
}

/// The result of reading EXIF.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// `None` if no entry is kept.
    pub(crate) exif: Option<Exif>,
    pub(crate) density: Option<Density>,
    /// An entry was left out, because it is damaged, too large or of an unknown type.
    pub(crate) is_partial: bool,
}

impl Found {
    /// Reads the content of an EXIF chunk.
    pub(crate) fn of_chunk(bytes: &[u8]) -> Self {
        // Some writers put the name of JPEG's segment first.
        let bytes = bytes.strip_prefix(b"Exif\0\0").unwrap_or(bytes);
        Self::of_file(&mut Cursor::new(bytes)).unwrap_or(Self { is_partial: true, ..Self::default() })
    }

    /// Reads a TIFF file, which has the same structure.
    pub(crate) fn of_file(file: &mut (impl Read + Seek)) -> io::Result<Self> {
        file.rewind()?;
        let mut start = [0; 4];
        file.read_exact(&mut start)?;
        let (big_endian, big) = match start {
            [b'I', b'I', 42, 0] => (false, false),
            [b'I', b'I', 43, 0] => (false, true),
            [b'M', b'M', 0, 42] => (true, false),
            [b'M', b'M', 0, 43] => (true, true),
            _ => return Ok(Self { is_partial: true, ..Self::default() }),
        };
        let mut parser = Parser { file, big_endian, big, room: BYTES_MAXIMUM, is_partial: false };
        if big {
            parser.number(4)?;
        }
        let first = parser.number(parser.word())?;
        let all = parser.directory(first, |tag| {
            PRIMARY.contains(&tag) || matches!(tag, CAMERA | POSITION | X_RESOLUTION | Y_RESOLUTION | RESOLUTION_UNIT)
        });
        let density = density_of(&all, big_endian);
        let mut inner = |pointer: u16| {
            let entry = all.iter().find(|entry| entry.tag == pointer);
            entry.and_then(|entry| whole(entry, big_endian)).map_or_else(Vec::new, |at| {
                parser.directory(at, |tag| pointer == POSITION || !NOT_OF_CAMERA.contains(&tag))
            })
        };
        let (camera, position) = (inner(CAMERA), inner(POSITION));
        let is_partial = parser.is_partial;
        let primary = all.into_iter().filter(|entry| PRIMARY.contains(&entry.tag)).collect();
        let exif = Exif { big_endian, primary, camera, position };
        let is_empty = exif.primary.is_empty() && exif.camera.is_empty() && exif.position.is_empty();
        Ok(Self { exif: (!is_empty).then_some(exif), density, is_partial })
    }
}

struct Parser<'f, F> {
    file: &'f mut F,
    big_endian: bool,
    /// Offsets of 64 bits.
    big: bool,
    /// Bytes that may still be kept.
    room: usize,
    is_partial: bool,
}

impl<F: Read + Seek> Parser<'_, F> {
    fn word(&self) -> usize {
        if self.big { 8 } else { 4 }
    }

    /// An integer of at most 8 bytes.
    fn number(&mut self, length: usize) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.file.read_exact(&mut bytes[..length])?;
        if self.big_endian {
            bytes[..length].reverse();
        }
        Ok(u64::from_le_bytes(bytes))
    }

    /// The wanted entries of a directory, up to the first entry that cannot be read.
    fn directory(&mut self, at: u64, wanted: impl Fn(u16) -> bool) -> Vec<Entry> {
        let mut entries = Vec::new();
        if self.entries(at, wanted, &mut entries).is_err() {
            self.is_partial = true;
        }
        entries
    }

    fn entries(&mut self, at: u64, wanted: impl Fn(u16) -> bool, into: &mut Vec<Entry>) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(at))?;
        let (word, count_bytes) = (self.word(), if self.big { 8 } else { 2 });
        let count = self.number(count_bytes)?;
        if count > ENTRIES_MAXIMUM {
            self.is_partial = true;
        }
        for number in 0..count.min(ENTRIES_MAXIMUM) {
            let entry_bytes = 4 + 2 * word as u64;
            self.file.seek(SeekFrom::Start(at.saturating_add(count_bytes as u64 + number * entry_bytes)))?;
            let (tag, kind) = (self.number(2)? as u16, self.number(2)? as u16);
            if !wanted(tag) || into.iter().any(|entry| entry.tag == tag) {
                continue;
            }
            // Pointers of BigTIFF files may have BigTIFF's own types: 16 and 18 have 8 bytes.
            let is_pointer = matches!(tag, CAMERA | POSITION);
            let width = if self.big && is_pointer && matches!(kind, 16 | 18) { 8 } else { width(kind) };
            let length = self.number(word)?.checked_mul(width).and_then(|length| usize::try_from(length).ok());
            let Some(length) = length.filter(|&length| length > 0 && length <= self.room) else {
                self.is_partial = true;
                continue;
            };
            if length > word {
                let place = self.number(word)?;
                self.file.seek(SeekFrom::Start(place))?;
            }
            let mut bytes = vec![0; length];
            if self.file.read_exact(&mut bytes).is_err() {
                self.is_partial = true;
                continue;
            }
            self.room -= length.min(self.room) + ENTRY_BYTES.min(self.room - length.min(self.room));
            into.push(Entry { tag, kind, bytes });
        }
        Ok(())
    }
}

const ENTRY_BYTES: usize = 12;

/// The value of an entry with one integer.
fn whole(entry: &Entry, big_endian: bool) -> Option<u64> {
    let mut bytes = [0; 8];
    let stored = entry.bytes.get(..).filter(|stored| matches!(stored.len(), 2 | 4 | 8))?;
    bytes[..stored.len()].copy_from_slice(stored);
    if big_endian {
        bytes[..stored.len()].reverse();
    }
    Some(u64::from_le_bytes(bytes))
}

fn density_of(entries: &[Entry], big_endian: bool) -> Option<Density> {
    let entry = |tag| entries.iter().find(|entry| entry.tag == tag);
    let ratio = |tag| {
        let found = entry(tag).filter(|entry| entry.kind == RATIONAL)?;
        let [numerator, denominator] = found.bytes.as_chunks::<4>().0 else { return None };
        let number = |bytes: [u8; 4]| if big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) };
        Some(Ratio { numerator: number(*numerator), denominator: number(*denominator) })
    };
    // Without a unit entry, the unit is the inch.
    let unit = match entry(RESOLUTION_UNIT).and_then(|entry| whole(entry, big_endian)) {
        Some(1) => DensityUnit::None,
        None | Some(2) => DensityUnit::Inch,
        Some(3) => DensityUnit::Centimetre,
        Some(_) => return None,
    };
    let (across, down) = (ratio(X_RESOLUTION)?, ratio(Y_RESOLUTION)?);
    if unit == DensityUnit::None && across == down {
        return None;
    }
    Density::new(across, down, unit)
}

impl Exif {
    /// The same EXIF for a picture of another size, if EXIF states a size.
    pub(crate) fn with_size(mut self, size: Size) -> Self {
        for (tag, side) in [(WIDTH, size.width), (HEIGHT, size.height)] {
            let bytes = self.long(side);
            if let Some(entry) = self.camera.iter_mut().find(|entry| entry.tag == tag) {
                (entry.kind, entry.bytes) = (LONG, bytes);
            }
        }
        self
    }

    /// The same EXIF for samples in sRGB, if EXIF states a colour space.
    pub(crate) fn in_srgb(mut self) -> Self {
        let one = if self.big_endian { 1_u16.to_be_bytes() } else { 1_u16.to_le_bytes() };
        self.camera.retain(|entry| entry.tag != GAMMA);
        if let Some(entry) = self.camera.iter_mut().find(|entry| entry.tag == COLOUR_SPACE) {
            (entry.kind, entry.bytes) = (SHORT, one.to_vec());
        }
        self
    }

    /// The same EXIF in the byte order of this machine.
    pub(crate) fn in_native_order(mut self) -> Self {
        let native = cfg!(target_endian = "big");
        if self.big_endian != native {
            for entry in self.primary.iter_mut().chain(&mut self.camera).chain(&mut self.position) {
                // A fraction is two numbers.
                let width = if matches!(entry.kind, 5 | 10) { 4 } else { width(entry.kind) as usize };
                entry.bytes.chunks_exact_mut(width.max(1)).for_each(<[u8]>::reverse);
            }
        }
        self.big_endian = native;
        self
    }

    fn long(&self, value: u32) -> Vec<u8> {
        if self.big_endian { value.to_be_bytes().to_vec() } else { value.to_le_bytes().to_vec() }
    }

    fn short(&self, value: u16) -> Vec<u8> {
        if self.big_endian { value.to_be_bytes().to_vec() } else { value.to_le_bytes().to_vec() }
    }

    pub(crate) fn to_bytes(&self, density: Option<Density>) -> Vec<u8> {
        let mut primary = self.primary.clone();
        // The pixels are upright.
        primary.push(Entry { tag: ORIENTATION, kind: SHORT, bytes: self.short(1) });
        if let Some(density) = density {
            let (unit, [across, down]) = density.as_fractions();
            let fraction = |ratio: Ratio| [self.long(ratio.numerator), self.long(ratio.denominator)].concat();
            let unit = match unit {
                DensityUnit::None => 1,
                DensityUnit::Inch | DensityUnit::Metre => 2,
                DensityUnit::Centimetre => 3,
            };
            primary.push(Entry { tag: X_RESOLUTION, kind: RATIONAL, bytes: fraction(across) });
            primary.push(Entry { tag: Y_RESOLUTION, kind: RATIONAL, bytes: fraction(down) });
            primary.push(Entry { tag: RESOLUTION_UNIT, kind: SHORT, bytes: self.short(unit) });
        }
        let mut at = 8;
        let inner = [(CAMERA, &self.camera), (POSITION, &self.position)];
        let inner: Vec<_> = inner.into_iter().filter(|(_, entries)| !entries.is_empty()).collect();
        at += directory_bytes(&primary) + inner.len() * ENTRY_BYTES;
        let mut behind = Vec::new();
        for (pointer, entries) in inner {
            primary.push(Entry { tag: pointer, kind: LONG, bytes: self.long(at as u32) });
            behind.push(self.directory(entries, at));
            at += directory_bytes(entries);
        }
        let start = if self.big_endian { *b"MM\0*\0\0\0\x08" } else { *b"II*\0\x08\0\0\0" };
        [start.to_vec(), self.directory(&primary, 8), behind.concat()].concat()
    }

    /// A directory at this position, followed by its values.
    fn directory(&self, entries: &[Entry], at: usize) -> Vec<u8> {
        let mut sorted: Vec<&Entry> = entries.iter().collect();
        sorted.sort_by_key(|entry| entry.tag);
        let mut bytes = self.short(sorted.len() as u16);
        let mut values = Vec::new();
        let values_at = at + 2 + ENTRY_BYTES * sorted.len() + 4;
        for entry in sorted {
            let count = entry.bytes.len() as u64 / width(entry.kind).max(1);
            bytes.extend(self.short(entry.tag));
            bytes.extend(self.short(entry.kind));
            bytes.extend(self.long(count as u32));
            if entry.bytes.len() <= 4 {
                bytes.extend(&entry.bytes);
                bytes.resize(bytes.len() + 4 - entry.bytes.len(), 0);
            } else {
                bytes.extend(self.long((values_at + values.len()) as u32));
                values.extend(&entry.bytes);
                // Values begin at even positions.
                values.resize(values.len().next_multiple_of(2), 0);
            }
        }
        // No next directory: it would be the thumbnail's.
        bytes.extend([0; 4]);
        bytes.extend(values);
        bytes
    }
}

/// The length of a directory with its values.
fn directory_bytes(entries: &[Entry]) -> usize {
    let values = entries.iter().map(|entry| entry.bytes.len()).filter(|&length| length > 4);
    2 + ENTRY_BYTES * entries.len() + 4 + values.map(|length| length.next_multiple_of(2)).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use crate::Metadata;

    use super::*;

    fn entry(tag: u16, kind: u16, bytes: &[u8]) -> Entry {
        Entry { tag, kind, bytes: bytes.to_vec() }
    }

    fn photo(big_endian: bool) -> Exif {
        let mut exif = Exif { big_endian, ..Exif::default() };
        exif.primary = vec![entry(0x010f, 2, b"Camera of 11\0"), entry(0x8298, 2, b"me\0")];
        let side = exif.long(4000);
        exif.camera = vec![entry(0x829a, RATIONAL, &[0, 0, 0, 1, 0, 0, 0, 200]), entry(WIDTH, LONG, &side)];
        exif.position = vec![entry(1, 2, b"N\0")];
        exif
    }

    #[test]
    fn what_is_written_is_read_again() {
        let size = Size { width: 16_000, height: 70_000 };
        let density = Density::whole(300, 300, DensityUnit::Inch);
        for big_endian in [false, true] {
            let metadata = Metadata { exif: Some(photo(big_endian)), density };
            let bytes = metadata.exif_chunk(size).unwrap();
            let found = Found::of_chunk(&bytes);
            let expected = photo(big_endian).with_size(size);
            assert_eq!(whole(&expected.camera[1], big_endian), Some(16_000));
            assert_eq!(found, Found { exif: Some(expected), density, is_partial: false });
            // After the name of JPEG's segment, too.
            assert_eq!(Found::of_chunk(&[b"Exif\0\0", bytes.as_slice()].concat()), found);
            // The other byte order has the same content.
            let native = found.exif.clone().unwrap().in_native_order();
            assert_eq!(native.clone().in_native_order(), native);
            let bytes = Metadata { exif: Some(native.clone()), density: None }.exif_chunk(size).unwrap();
            assert_eq!(Found::of_chunk(&bytes).exif, Some(native));
        }
        assert_eq!(Metadata::default().exif_chunk(size), None);
        let alone = Metadata { exif: None, density }.exif_chunk(size).unwrap();
        assert_eq!(Found::of_chunk(&alone), Found { exif: None, density, is_partial: false });
    }

    #[test]
    fn the_thumbnail_and_the_orientation_are_left_behind() {
        // Orientation 6, a second directory with a thumbnail, the maker's notes.
        let mut bytes = b"II*\0\x08\0\0\0".to_vec();
        bytes.extend([1, 0, 0x12, 1, 3, 0, 1, 0, 0, 0, 6, 0, 0, 0, 26, 0, 0, 0]);
        bytes.extend([1, 0, 1, 2, 4, 0, 1, 0, 0, 0, 99, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend(b"the thumbnail");
        assert_eq!(Found::of_chunk(&bytes), Found::default());
        let exif = Exif { camera: vec![entry(0x927c, 7, b"secret notes"), entry(0x9286, 7, b"kept")], ..photo(false) };
        let bytes = Metadata { exif: Some(exif), density: None }.exif_chunk(Size { width: 1, height: 1 }).unwrap();
        let found = Found::of_chunk(&bytes).exif.unwrap();
        assert_eq!(found.camera, [entry(0x9286, 7, b"kept")]);
    }

    #[test]
    fn damage_is_left_out_and_told() {
        let metadata = Metadata { exif: Some(photo(false)), density: None };
        let whole = metadata.exif_chunk(Size { width: 9, height: 9 }).unwrap();
        for length in 0..whole.len() - 1 {
            let found = Found::of_chunk(&whole[..length]);
            assert!(found.is_partial || found.exif == Found::of_chunk(&whole).exif, "{length}");
        }
        // A directory that is its own inner directory, and one that claims four billion values.
        let mut circle = b"II*\0\x08\0\0\0\x01\0\x69\x87\x04\0\x01\0\0\0\x08\0\0\0\0\0\0\0".to_vec();
        assert_eq!(Found::of_chunk(&circle).exif.map(|exif| exif.camera.len()), Some(1));
        circle[14..18].fill(0xff);
        assert!(Found::of_chunk(&circle).is_partial);
        let many =
            [b"II*\0\x08\0\0\0\xff\xff".to_vec(), [0x0f, 1, 2, 0, 1, 0, 0, 0, 65, 0, 0, 0].repeat(70_000)].concat();
        let found = Found::of_chunk(&many);
        assert!(found.is_partial);
        assert_eq!(found.exif.unwrap().primary.len(), 1, "a tag counts once");
    }

    #[test]
    fn no_more_is_kept_than_a_jpeg_holds() {
        let large = vec![b'x'; 40_000];
        let exif = Exif { camera: vec![entry(0x9286, 7, &large), entry(0x9c9c, 7, &large)], ..photo(true) };
        let bytes = Metadata { exif: Some(exif), density: None }.exif_chunk(Size { width: 1, height: 1 }).unwrap();
        let found = Found::of_chunk(&bytes);
        assert!(found.is_partial);
        let again = Metadata { exif: found.exif, density: None }.exif_chunk(Size { width: 1, height: 1 }).unwrap();
        assert!(again.len() < 65_000, "{}", again.len());
    }
}
