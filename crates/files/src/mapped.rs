//! Files mapped into memory.
//!
//! Unsafe code: mapping a file is unsafe because another process may truncate it while it is mapped. On Unix, a read
//! behind the new end then raises SIGBUS; Windows refuses to truncate such a file. Only a copy of the file, of many
//! gigabytes, could avoid that. Every program that maps weights accepts this risk. Our own files are written once,
//! renamed into place, and never changed.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};

use crate::system::{mapping, placing, reading};

/// An opened file and its memory-mapped bytes. They stay the same file's bytes, even if the file is renamed or
/// removed.
#[derive(Debug)]
pub struct Mapped {
    file: File,
    /// Most systems refuse to map an empty file.
    map: Option<memmap2::Mmap>,
}

impl Mapped {
    /// Maps a whole file that has been opened to read it.
    ///
    /// # Errors
    /// The system's reason.
    pub fn new(file: File) -> io::Result<Self> {
        let map = if file.metadata()?.len() == 0 {
            None
        } else {
            // SAFETY: the mapping is read-only and private to this value; for files that change while they are mapped,
            // see the module's documentation.
            Some(unsafe { memmap2::Mmap::map(&file) }?)
        };
        Ok(Self { file, map })
    }

    /// The opened file.
    pub fn as_file(&self) -> &File {
        &self.file
    }

    /// Releases a part of the file from this process's memory, if the system supports this. Later accesses read it
    /// again. The part begins at a multiple of every page size.
    pub fn release(&self, part: Range<usize>) {
        if let Some(map) = &self.map {
            mapping::release(map, part);
        }
    }

    /// Reads a part of the file, without the mapping. Returns the number of bytes.
    ///
    /// # Errors
    /// The system's reason.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        reading::read_at(&self.file, buffer, offset)
    }

    /// Fills a buffer from the file, without the mapping.
    ///
    /// # Errors
    /// The file ends before the buffer is full; or the system's reason.
    pub fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        reading::read_exact_at(&self.file, buffer, offset)
    }

    /// Appends `length` bytes from `offset` on to `target` inside the kernel. A file system that can share blocks does
    /// not copy them. `appended` receives the number of bytes of each piece.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`]: the file ends before the part does. [`io::ErrorKind::Unsupported`]: the
    /// system cannot do this between these files, and nothing was appended. Otherwise the system's reason.
    pub fn append_to(&self, offset: u64, length: u64, target: &File, appended: &mut dyn FnMut(u64)) -> io::Result<()> {
        reading::append_part(&self.file, offset, length, target, appended)
    }

    /// A path that leads to the opened file even if it has been renamed; `None` if the file has no name any more, or
    /// if the system has no such paths.
    pub fn opened_path(&self) -> Option<PathBuf> {
        placing::path_of_opened(&self.file)
    }

    /// Makes a hard link to the opened file.
    ///
    /// # Errors
    /// The path `target` exists, or the system's reason, such as another file system.
    pub fn link(&self, target: &Path) -> io::Result<()> {
        placing::link(&self.file, target)
    }
}

impl Deref for Mapped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.map.as_deref().unwrap_or_default()
    }
}
