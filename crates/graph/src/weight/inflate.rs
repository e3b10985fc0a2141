//! Decompresses a range of a file.

use crate::mapped::{CHUNK, Checksum};
use crate::{Error, MappedFile, Result};
use flate2::Crc;
use flate2::read::DeflateDecoder;
use std::io::Read;
use std::ops::Range;

/// The decompressed bytes of `range`, which must be exactly `length`.
pub(super) fn inflate(
    file: &MappedFile,
    range: Range<u64>,
    length: u64,
    checksum: Option<&Checksum>,
    sink: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let mut crc = Crc::new();
    let mut decoder = DeflateDecoder::new(file.reader(range.start, range.end - range.start));
    let mut buffer = vec![0; CHUNK.min(usize::try_from(length).unwrap_or(CHUNK))];
    let damaged = |reason: String| {
        let place = format!("the compressed data at byte {}", range.start);
        Error::file(file.path(), "decompress", format!("{place}: {reason}; the file is damaged"))
    };
    let mut left = length;
    while left > 0 {
        let step = buffer.len().min(usize::try_from(left).unwrap_or(CHUNK));
        let piece = &mut buffer[..step];
        decoder.read_exact(piece).map_err(|e| damaged(format!("expected {length} bytes: {e}")))?;
        if checksum.is_some() {
            crc.update(piece);
        }
        sink(piece)?;
        left -= step as u64;
    }
    match decoder.read(&mut [0]) {
        Ok(0) => checksum.map_or(Ok(()), |checksum| checksum.check(file.path(), crc.sum())),
        Ok(_) => Err(damaged(format!("expected {length} bytes, found more"))),
        Err(error) => Err(damaged(error.to_string())),
    }
}
