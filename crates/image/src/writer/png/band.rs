//! Bands of rows. Each band is filtered and compressed separately.
//!
//! A band is a run of deflate blocks that ends at a byte (a sync flush), so bands follow each other in one zlib stream
//! (RFC 1950, RFC 1951). Each is compressed with the last 32 KiB before it as dictionary, as pigz does
//! (<https://zlib.net/pigz/>). So the bytes do not depend on the number of threads, and the files are hardly larger
//! than in one piece.

use std::io;
use std::sync::Arc;

use flate2::{Compress, Compression, FlushCompress, Status};

use super::filter::Filter;

/// Deflate's window in bytes.
const WINDOW: usize = 32 << 10;

/// Rows of a picture, from the top to the bottom.
pub(super) struct Band {
    pub(super) rows: Vec<u8>,
    /// The row above the first; empty at the top of the picture.
    pub(super) above: Vec<u8>,
    pub(super) row_bytes: usize,
    /// Bytes of a pixel.
    pub(super) pixel: usize,
}

/// A band of the file.
pub(super) struct Compressed {
    pub(super) bytes: Vec<u8>,
    pub(super) checksum: Checksum,
}

impl Band {
    /// The band for the file. `before` is the band above it. The last band ends the stream.
    pub(super) fn compressed(
        &self,
        before: Option<&Band>,
        level: Compression,
        is_last: bool,
    ) -> io::Result<Compressed> {
        let filtered = self.filtered(0);
        let mut compress = Compress::new(level, false);
        if let Some(before) = before {
            let rows = before.rows.len() / before.row_bytes.max(1);
            let tail = before.filtered(rows.saturating_sub(WINDOW.div_ceil(before.row_bytes + 1)));
            let window = &tail[tail.len().saturating_sub(WINDOW)..];
            compress.set_dictionary(window).map_err(io::Error::other)?;
        }
        let flush = if is_last { FlushCompress::Finish } else { FlushCompress::Sync };
        let mut bytes = Vec::with_capacity(filtered.len() / 2 + 64);
        loop {
            let read = usize::try_from(compress.total_in()).unwrap_or(usize::MAX);
            let rest = filtered.get(read..).unwrap_or_default();
            let status = compress.compress_vec(rest, &mut bytes, flush).map_err(io::Error::other)?;
            let is_done = match status {
                Status::StreamEnd => true,
                // A flush is over when it leaves room in the buffer.
                Status::Ok | Status::BufError => !is_last && bytes.len() < bytes.capacity(),
            };
            if is_done {
                return Ok(Compressed { bytes, checksum: Checksum::of(&filtered) });
            }
            bytes.reserve((filtered.len() / 2).max(1 << 10));
        }
    }

    /// The filtered rows from number `first` on.
    fn filtered(&self, first: usize) -> Vec<u8> {
        let mut filter = Filter::new(self.row_bytes, self.pixel);
        let rows = self.rows.len() / self.row_bytes.max(1);
        let mut made = Vec::with_capacity((rows - first) * (self.row_bytes + 1));
        let row = |at: usize| &self.rows[at * self.row_bytes..][..self.row_bytes];
        for at in first..rows {
            let above = if at == 0 { self.above.as_slice() } else { row(at - 1) };
            filter.add(row(at), above, &mut made);
        }
        made
    }
}

/// A band with the one above it.
pub(super) struct Task {
    pub(super) band: Arc<Band>,
    pub(super) before: Option<Arc<Band>>,
    pub(super) level: Compression,
    pub(super) is_last: bool,
}

impl Task {
    pub(super) fn run(&self) -> io::Result<Compressed> {
        self.band.compressed(self.before.as_deref(), self.level, self.is_last)
    }
}

/// An Adler-32 checksum (RFC 1950) of `length` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Checksum {
    adler: u32,
    length: u64,
}

impl Checksum {
    const MODULUS: u64 = 65521;
    /// The checksum of no bytes.
    pub(super) const EMPTY: Self = Self { adler: 1, length: 0 };

    fn of(bytes: &[u8]) -> Self {
        Self { adler: simd_adler32::adler32(&bytes), length: bytes.len() as u64 }
    }

    /// The checksum of these bytes followed by the bytes of `next`.
    pub(super) fn then(self, next: Self) -> Self {
        let [[low, high], [next_low, next_high]] =
            [self, next].map(|sum| [u64::from(sum.adler & 0xffff), u64::from(sum.adler >> 16)]);
        let length = next.length % Self::MODULUS;
        // Both low halves begin at 1. Each of the next bytes adds the low half of the first bytes to the high half.
        let sum = (low + next_low + Self::MODULUS - 1) % Self::MODULUS;
        let sums = (high + next_high + length * (low + Self::MODULUS - 1)) % Self::MODULUS;
        Self { adler: (sums << 16 | sum) as u32, length: self.length + next.length }
    }

    /// The form at the end of a zlib stream.
    pub(super) fn to_bytes(self) -> [u8; 4] {
        self.adler.to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_of_pieces_give_that_of_the_whole() {
        let bytes: Vec<u8> = (0..200_000_u32).map(|at| (at * 31 % 253) as u8).collect();
        for cut in [0, 1, 65_521, 131_042, 199_999, 200_000] {
            let (first, second) = bytes.split_at(cut);
            assert_eq!(Checksum::of(first).then(Checksum::of(second)), Checksum::of(&bytes), "{cut}");
        }
        assert_eq!(Checksum::EMPTY.then(Checksum::of(&bytes)), Checksum::of(&bytes));
    }
}
