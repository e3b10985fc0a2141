//! BMP, held whole.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};

use ::image::codecs::bmp::BmpDecoder;
use ::image::{ColorType, ImageDecoder};

use super::{Colour, Decoded, Depth, Header, Opening};
use crate::Size;
use crate::error::Result;

impl Opening<'_> {
    pub(super) fn bmp(&self, mut file: BufReader<File>) -> Result<Decoded> {
        let icc_profile = embedded_profile(&mut file).map_err(|source| self.unread(source))?;
        let decoder = BmpDecoder::new(file).map_err(|error| self.damaged(error))?;
        let (width, height) = decoder.dimensions();
        let size = Size { width, height };
        self.check_size(size)?;
        let colour = match decoder.color_type() {
            ColorType::Rgba8 => Colour::Rgba,
            ColorType::Rgb8 => Colour::Rgb,
            other => return Err(self.refused(format!("expected a BMP in RGB, found {other:?}; convert it first"))),
        };
        let header = Header { icc_profile, ..Header::new(size, colour, Depth::Eight) };
        let mut bytes = vec![0; self.check_whole(&header, "has to be decoded whole")?];
        decoder.read_image(&mut bytes).map_err(|error| self.damaged(error))?;
        Ok(Decoded::new(header, self.whole(bytes)))
    }
}

/// The header of the file, which the header of the picture follows.
const FILE_HEADER_BYTES: usize = 14;

/// The length of a picture header of version 5, the first version with a profile, and the positions of its fields.
const V5_BYTES: usize = 124;
const COLOUR_SPACE: usize = 56;
const PROFILE_START: usize = 112;
const PROFILE_BYTES: usize = 116;

/// The largest profile. Printer profiles have about a megabyte.
const PROFILE_MAXIMUM_BYTES: u32 = 16 << 20;

/// The colour space of a picture whose profile is in the file: `MBED`, as a number.
const EMBEDDED: u32 = 0x4D42_4544;

/// The ICC profile in the file. `None` if there is none, or it cannot be read: the picture still can.
fn embedded_profile(file: &mut (impl Read + Seek)) -> io::Result<Option<Vec<u8>>> {
    let mut header = Vec::new();
    file.by_ref().take((FILE_HEADER_BYTES + V5_BYTES) as u64).read_to_end(&mut header)?;
    let number = |at: usize| {
        let bytes = header.get(FILE_HEADER_BYTES + at..)?.first_chunk()?;
        Some(u32::from_le_bytes(*bytes))
    };
    let is_embedded =
        number(0).is_some_and(|bytes| bytes as usize >= V5_BYTES) && number(COLOUR_SPACE) == Some(EMBEDDED);
    let profile = match (number(PROFILE_START), number(PROFILE_BYTES)) {
        (Some(start), Some(bytes)) if is_embedded && (1..=PROFILE_MAXIMUM_BYTES).contains(&bytes) => {
            file.seek(SeekFrom::Start(FILE_HEADER_BYTES as u64 + u64::from(start)))?;
            let mut profile = Vec::new();
            file.by_ref().take(bytes.into()).read_to_end(&mut profile)?;
            Some(profile).filter(|profile| profile.len() as u64 == u64::from(bytes))
        }
        _ => None,
    };
    file.rewind()?;
    Ok(profile)
}
