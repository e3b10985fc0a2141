//! Files mapped into memory, and the checksums that archives state for their entries.

use crate::{Error, Result};
use flate2::Crc;
use std::fs::File;
use std::hash::{Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use tileforge_files::{Digests, Mapped};

/// Bytes that streaming reads at a time: enough for full disk speed, few enough to stay in cache.
pub(crate) const CHUNK: usize = 1 << 20;

/// A file mapped read-only. Two are equal when they map the same path.
#[derive(Debug)]
pub struct MappedFile {
    path: PathBuf,
    mapped: Mapped,
    /// The checksums that the file itself states for ranges of its bytes; set once.
    checksums: OnceLock<Vec<StoredEntry>>,
    verified: OnceLock<Result<()>>,
}

/// The checksum that an archive states for one of its entries.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Checksum {
    /// The entry's name.
    pub entry: Arc<str>,
    /// CRC-32 of its content, as in zip archives.
    pub crc32: u32,
}

impl Checksum {
    /// Compares the stated checksum with the checksum `found` of the entry's bytes.
    pub(crate) fn check(&self, path: &Path, found: u32) -> Result<()> {
        let Checksum { entry, crc32 } = self;
        if found == *crc32 {
            return Ok(());
        }
        let reason = format!(
            "the entry `{}` is damaged: expected the CRC-32 {crc32:08x}, found {found:08x}; download the file again",
            entry.escape_debug()
        );
        Err(Error::File { path: path.to_owned(), action: "read", reason: tileforge_files::bounded(reason) })
    }
}

/// An archive entry that is stored uncompressed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEntry {
    /// First byte, counted from the beginning of the file.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// The checksum that the archive states for these bytes.
    pub checksum: Checksum,
}

impl MappedFile {
    /// Maps the whole file.
    ///
    /// # Errors
    /// The file cannot be opened or mapped.
    pub fn open(path: impl AsRef<Path>) -> Result<Arc<Self>> {
        let path = path.as_ref();
        let file = tileforge_files::open(path).map_err(|e| Error::file(path, "open", e))?;
        let mapped = Mapped::new(file).map_err(|e| Error::file(path, "map", e))?;
        let (checksums, verified) = (OnceLock::new(), OnceLock::new());
        Ok(Arc::new(MappedFile { path: path.to_owned(), mapped, checksums, verified }))
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The whole content.
    pub fn bytes(&self) -> &[u8] {
        &self.mapped
    }

    /// SHA-256 of the whole content, as 64 lower-case hexadecimal digits.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn sha256(&self, digests: &Digests) -> Result<String> {
        let found =
            digests.of_opened(self.mapped.as_file(), &self.path).map_err(|e| Error::file(&self.path, "read", e))?;
        Ok(found.sha256)
    }

    /// Sets the entries of the file that hold uncompressed weights. [`MappedFile::verify`] checks them.
    pub fn expect(&self, mut entries: Vec<StoredEntry>) {
        // The longest first, so that the threads end together.
        entries.sort_by_key(|entry| (std::cmp::Reverse(entry.length), entry.offset));
        // A second call is ignored: each file is opened for one reader, which knows all entries.
        let _ = self.checksums.set(entries);
    }

    /// Compares the content of the entries with the checksums in the file: once, on all processors.
    ///
    /// # Errors
    /// An entry is damaged, or the file cannot be read.
    pub fn verify(&self) -> Result<()> {
        let Some(entries) = self.checksums.get() else { return Ok(()) };
        self.verified.get_or_init(|| self.verify_all(entries)).clone()
    }

    fn verify_all(&self, entries: &[StoredEntry]) -> Result<()> {
        let (next, failed) = (AtomicUsize::new(0), OnceLock::new());
        let work = || {
            while let Some(entry) = entries.get(next.fetch_add(1, Ordering::Relaxed)).filter(|_| failed.get().is_none())
            {
                if let Err(error) = self.verify_one(entry) {
                    let _ = failed.set(error);
                }
            }
        };
        let threads = thread::available_parallelism().map_or(1, usize::from).min(entries.len());
        thread::scope(|scope| {
            for _ in 1..threads {
                // If no other thread starts, this thread does all the work.
                let _ = thread::Builder::new().spawn_scoped(scope, work);
            }
            work();
        });
        failed.into_inner().map_or(Ok(()), Err)
    }

    fn verify_one(&self, StoredEntry { offset, length, checksum }: &StoredEntry) -> Result<()> {
        let mut crc = Crc::new();
        self.stream(*offset, *length, &mut |piece| {
            crc.update(piece);
            Ok(())
        })?;
        checksum.check(&self.path, crc.sum())
    }

    /// Passes `length` bytes from `offset` on to `sink`, a piece at a time.
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
            self.mapped.read_exact_at(piece, offset + done).map_err(|e| Error::file(&self.path, "read", e))?;
            sink(piece)?;
            done += step as u64;
        }
        Ok(())
    }

    /// Reads `length` bytes from `offset` on, without the map, as [`MappedFile::stream`] does.
    pub(crate) fn reader(&self, offset: u64, length: u64) -> impl io::Read {
        Range { mapped: &self.mapped, offset, left: length }
    }

    /// Appends `length` bytes from `offset` to `target` inside the kernel. A file system that shares blocks copies
    /// nothing. `appended` gets the number of bytes of each piece.
    ///
    /// # Errors
    /// The file ends before the range does, or the system reports an error. If the system cannot copy between these
    /// files, the error is [`io::ErrorKind::Unsupported`] and nothing was appended.
    pub(crate) fn append_to(
        &self,
        offset: u64,
        length: u64,
        target: &File,
        appended: &mut dyn FnMut(u64),
    ) -> io::Result<()> {
        self.mapped.append_to(offset, length, target, appended).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                io::Error::new(error.kind(), format!("{} ends too early", self.path.display()))
            }
            _ => error,
        })
    }
}

/// A part of a file that is being read.
struct Range<'a> {
    mapped: &'a Mapped,
    offset: u64,
    left: u64,
}

impl io::Read for Range<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let read = self.mapped.read_at(&mut buffer[..most], self.offset)?;
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
