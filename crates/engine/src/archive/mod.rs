//! An engine as one `.tar` file.

mod pack;
mod unpack;

use std::io::{self, Read};

use sha2::{Digest, Sha256};

pub use pack::pack;
pub use unpack::{Unpacked, unpack};

use crate::digest::hexadecimal;

/// A reader that digests what is read through it.
struct Digesting<R> {
    inner: R,
    sha256: Sha256,
    bytes: u64,
}

impl<R: Read> Digesting<R> {
    fn new(inner: R) -> Self {
        Self { inner, sha256: Sha256::new(), bytes: 0 }
    }

    /// SHA-256 of everything that was read, as manifests have it, and the number of bytes.
    fn finish(self) -> (String, u64) {
        let digest = self.sha256.finalize();
        (hexadecimal(&digest), self.bytes)
    }
}

impl<R: Read> Read for Digesting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.sha256.update(&buffer[..count]);
        self.bytes += count as u64;
        Ok(count)
    }
}
