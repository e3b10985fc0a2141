//! Files mapped into memory.
//!
//! The only unsafe code of this crate: mapping a file is unsafe because another process may truncate it while it is
//! mapped, and a read beyond the new end then kills this process with SIGBUS. Only a copy of the checkpoint, of many
//! gigabytes, could avoid that. Every program that maps weights accepts this risk.
#![allow(unsafe_code)]

use crate::{Error, Result};
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::hash::{Hash, Hasher};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// Bytes that streaming reads at a time: enough for full disk speed, few enough to stay in cache.
pub(crate) const CHUNK: usize = 1 << 20;
/// Bytes that the system copies at a time: enough for full speed, few enough to report progress between two calls.
const SYSTEM_CHUNK: usize = 64 << 20;

/// A file mapped read-only. Two are equal when they map the same path.
#[derive(Debug)]
pub struct MappedFile {
    path: PathBuf,
    file: File,
    // An empty file cannot be mapped.
    map: Option<memmap2::Mmap>,
    /// Computed when it is asked for: that takes a second for each gigabyte.
    sha256: OnceLock<String>,
}

impl MappedFile {
    /// Maps the whole file.
    ///
    /// # Errors
    /// The file cannot be opened or mapped.
    pub fn open(path: impl AsRef<Path>) -> Result<Arc<Self>> {
        let path = path.as_ref();
        let file = tileforge_files::open(path).map_err(|e| Error::file(path, "open", e))?;
        let metadata = file.metadata().map_err(|e| Error::file(path, "read the size", e))?;
        let map = if metadata.len() == 0 {
            None
        } else {
            // SAFETY: the map is read-only and private to this process; see the module's text for truncation by others.
            Some(unsafe { memmap2::Mmap::map(&file) }.map_err(|e| Error::file(path, "map", e))?)
        };
        Ok(Arc::new(MappedFile { path: path.to_owned(), file, map, sha256: OnceLock::new() }))
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The whole content.
    pub fn bytes(&self) -> &[u8] {
        self.map.as_deref().unwrap_or_default()
    }

    /// SHA-256 of the whole content, as 64 lower-case hexadecimal digits. It is computed once.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn sha256(&self) -> Result<String> {
        if let Some(known) = self.sha256.get() {
            return Ok(known.clone());
        }
        let mut digest = Sha256::new();
        self.stream(0, self.bytes().len() as u64, &mut |piece| {
            digest.update(piece);
            Ok(())
        })?;
        let text: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(self.sha256.get_or_init(|| text).clone())
    }

    /// Gives `length` bytes from `offset` on to `sink`, a piece at a time.
    ///
    /// This reads the file instead of the map, so that a checkpoint of many gigabytes does not become resident memory.
    ///
    /// # Errors
    /// The file ends before the range does, cannot be read, or `sink` fails.
    pub fn stream(&self, offset: u64, length: u64, sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let mut buffer = vec![0; CHUNK.min(usize::try_from(length).unwrap_or(CHUNK))];
        let mut done = 0;
        while done < length {
            let step = buffer.len().min(usize::try_from(length - done).unwrap_or(CHUNK));
            let piece = &mut buffer[..step];
            self.file.read_exact_at(piece, offset + done).map_err(|e| Error::file(&self.path, "read", e))?;
            sink(piece)?;
            done += step as u64;
        }
        Ok(())
    }

    /// Reads `length` bytes from `offset` on, without the map, as [`MappedFile::stream`] does.
    pub(crate) fn reader(&self, offset: u64, length: u64) -> impl io::Read {
        Range { file: &self.file, offset, left: length }
    }

    /// Appends `length` bytes from `offset` to `target` inside the kernel. A file system that shares blocks copies
    /// nothing. `appended` gets the number of bytes of each piece.
    ///
    /// # Errors
    /// The file ends before the range does, or the system's reason. The error is [`io::ErrorKind::Unsupported`], and
    /// nothing was appended, where the system cannot do this between these files.
    pub(crate) fn append_to(
        &self,
        offset: u64,
        length: u64,
        target: &File,
        appended: &mut dyn FnMut(u64),
    ) -> io::Result<()> {
        let (mut from, end) = (offset, offset + length);
        while from < end {
            let step = SYSTEM_CHUNK.min(usize::try_from(end - from).unwrap_or(SYSTEM_CHUNK));
            match rustix::fs::copy_file_range(&self.file, Some(&mut from), target, None, step) {
                Ok(0) => {
                    return Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        format!("{} ends too early", self.path.display()),
                    ));
                }
                Ok(bytes) => appended(bytes as u64),
                Err(Errno::INTR) => {}
                // Another file system, a file system without this operation, or an old kernel.
                Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) if from == offset => {
                    return Err(io::ErrorKind::Unsupported.into());
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// A part of a file that is being read.
struct Range<'a> {
    file: &'a File,
    offset: u64,
    left: u64,
}

impl io::Read for Range<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let read = self.file.read_at(&mut buffer[..most], self.offset)?;
        self.offset += read as u64;
        self.left -= read as u64;
        Ok(read)
    }
}

impl PartialEq for MappedFile {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

impl Eq for MappedFile {}

impl Hash for MappedFile {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.path.hash(state);
    }
}
