//! Numbers of variable length: seven bits in each byte, most significant bits first.

use std::io;

/// Appends a number.
pub(super) fn put(bytes: &mut Vec<u8>, number: u64) {
    let groups = (64 - number.leading_zeros()).div_ceil(7).max(1);
    for group in (0..groups).rev() {
        let more = if group > 0 { 0x80 } else { 0 };
        bytes.push((number >> (7 * group)) as u8 & 0x7f | more);
    }
}

/// Reads numbers from a packet.
pub(super) struct Numbers<'b>(pub(super) &'b [u8]);

impl Numbers<'_> {
    pub(super) fn byte(&mut self) -> io::Result<u8> {
        let (first, rest) = self.0.split_first().ok_or_else(ended)?;
        self.0 = rest;
        Ok(*first)
    }

    pub(super) fn number(&mut self) -> io::Result<u64> {
        number(|| self.byte())
    }

    /// A signed number. The sign is the lowest bit.
    pub(super) fn signed(&mut self) -> io::Result<i64> {
        let number = self.number()?.wrapping_add(1);
        let half = (number >> 1) as i64;
        Ok(if number & 1 == 1 { -half } else { half })
    }

    pub(super) fn small(&mut self, what: &str) -> io::Result<u32> {
        let found = self.number()?;
        u32::try_from(found).map_err(|_| damaged(format!("{what}: found {found}")))
    }

    /// Bytes that follow their length.
    pub(super) fn bytes(&mut self) -> io::Result<&[u8]> {
        let length = usize::try_from(self.number()?).map_err(|_| ended())?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or_else(ended)?;
        self.0 = rest;
        Ok(bytes)
    }
}

/// A number whose bytes come from `next`.
pub(super) fn number(mut next: impl FnMut() -> io::Result<u8>) -> io::Result<u64> {
    let mut number = 0_u64;
    loop {
        let byte = next()?;
        if number >> 57 != 0 {
            return Err(damaged("a number of more than 64 bits".into()));
        }
        number = number << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
}

pub(super) fn damaged(problem: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

/// The error for a packet or stream that ends too early.
pub(super) fn ended() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the stream ends within a packet")
}
