//! An engine as one `.tar` file.

mod pack;
mod unpack;

use std::io::{self, Read};

use sha2::{Digest, Sha256};

pub use pack::pack;
pub use unpack::{Unpacked, unpack};

use crate::digest::hexadecimal;

/// A reader that digests the bytes that are read through it.
struct Digesting<R> {
    inner: R,
    sha256: Sha256,
}

impl<R: Read> Digesting<R> {
    fn new(inner: R) -> Self {
        Self { inner, sha256: Sha256::new() }
    }

    /// SHA-256 of everything that was read, in the form of manifests.
    fn finish(self) -> String {
        hexadecimal(&self.sha256.finalize())
    }
}

impl<R: Read> Read for Digesting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.sha256.update(&buffer[..count]);
        Ok(count)
    }
}
