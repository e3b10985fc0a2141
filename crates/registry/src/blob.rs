//! Files that are downloaded: resumed where they were cut, and digested while they come.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use tileforge_engine::digest::hexadecimal;
use ureq::http::header::{CONTENT_LENGTH, CONTENT_RANGE};

use crate::client::{Registry, read};
use crate::document::{Descriptor, Digest};
use crate::error::{Error, Result};
use crate::http::{CHUNK, start_of_range};
use crate::progress::Progress;

/// The folder beside an engine's place that keeps what was downloaded until the engine is whole. It is locked while it
/// is in use, and holds a file `sha256-…` for each file of the engine.
#[derive(Debug)]
pub(crate) struct Parts {
    folder: PathBuf,
    _lock: File,
}

impl Parts {
    /// Makes the folder for the engine at `directory`, or takes the one that an earlier pull left.
    ///
    /// # Errors
    /// [`Error::Busy`]: another process uses it and `wait` is false.
    pub(crate) fn beside(directory: &Path, wait: bool) -> Result<Self> {
        let mut name = directory.file_name().unwrap_or_default().to_owned();
        name.push(".part");
        let folder = directory.with_file_name(name);
        let failed = |action: &'static str| Error::on(&folder, action);
        loop {
            match fs::create_dir(&folder) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed("create")(error)),
                _ => {}
            }
            let lock = match tileforge_files::open_folder(&folder) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                opened => opened.map_err(failed("open"))?,
            };
            match lock.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) if wait => {
                    tracing::info!("another process pulls the same engine; waiting for it");
                    lock.lock().map_err(failed("wait for"))?;
                }
                Err(TryLockError::WouldBlock) => return Err(Error::Busy { path: directory.to_owned() }),
                Err(TryLockError::Error(error)) => return Err(failed("lock")(error)),
            }
            // Whoever had the lock may have removed the folder.
            let here = fs::metadata(&folder).ok().map(|found| (found.dev(), found.ino()));
            let locked = lock.metadata().map_err(failed("inspect"))?;
            if here == Some((locked.dev(), locked.ino())) {
                return Ok(Self { folder, _lock: lock });
            }
        }
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.folder
    }

    /// Where a file is kept.
    pub(crate) fn file(&self, digest: &Digest) -> PathBuf {
        self.folder.join(digest.file_name())
    }

    /// Bytes of a file that are here already.
    pub(crate) fn length(&self, digest: &Digest) -> u64 {
        fs::symlink_metadata(self.file(digest)).map_or(0, |metadata| metadata.len())
    }

    /// Removes the folder with what was downloaded. Files of others in it stay.
    pub(crate) fn remove(self) -> Result<()> {
        let failed = |action: &'static str| Error::on(&self.folder, action);
        for entry in self.folder.read_dir().map_err(failed("list"))? {
            let name = entry.map_err(failed("list"))?.file_name();
            let digest = name.to_str().and_then(|name| name.strip_prefix("sha256-"));
            if digest.is_some_and(|digits| format!("sha256:{digits}").parse::<Digest>().is_ok()) {
                fs::remove_file(self.folder.join(name)).map_err(failed("clear"))?;
            }
        }
        match fs::remove_dir(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::DirectoryNotEmpty => Err(failed("remove")(error)),
            _ => Ok(()),
        }
    }

    /// Downloads a file, or what is missing of it. Returns the bytes that came.
    ///
    /// After a cut it goes on as long as each attempt makes the file longer than it ever was.
    pub(crate) fn fetch(&self, registry: &Registry, wanted: &Wanted<'_>, progress: &mut dyn Progress) -> Result<u64> {
        let path = self.file(&wanted.digest);
        let failed = |action: &'static str| Error::on(&path, action);
        let opened = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path);
        let mut here = Here { file: opened.map_err(failed("create"))?, path: &path, length: 0, sha256: Sha256::new() };
        here.digest_what_came(wanted.size)?;
        progress.begin(wanted.name, Some(wanted.size), here.length);
        let (mut came, mut longest) = (0, here.length);
        while here.length < wanted.size {
            let Some(reason) = here.attempt(registry, wanted, &mut came, progress)? else { break };
            if here.length <= longest {
                let (file, kept) = (wanted.name.to_owned(), self.folder.clone());
                return Err(match here.length {
                    0 => Error::Unreachable { url: registry.reference().to_string(), reason },
                    _ => Error::Cut { file, kept, reason },
                });
            }
            longest = here.length;
        }
        let found = Digest::from_hexadecimal(&hexadecimal(&here.sha256.finalize()));
        if found != wanted.digest {
            fs::remove_file(&path).map_err(failed("remove"))?;
            return Err(wanted.altered(registry, wanted.digest.to_string(), found.to_string()));
        }
        Ok(came)
    }
}

/// A file of an engine in a registry.
pub(crate) struct Wanted<'a> {
    /// Its path in the engine.
    pub(crate) name: &'a str,
    pub(crate) digest: Digest,
    pub(crate) size: u64,
}

impl<'a> Wanted<'a> {
    pub(crate) fn new(name: &'a str, descriptor: &Descriptor) -> Self {
        Self { name, digest: descriptor.digest.clone(), size: descriptor.size }
    }

    /// The whole file, held in memory. It has at most `most` bytes.
    pub(crate) fn read(&self, registry: &Registry, most: u64) -> Result<Vec<u8>> {
        if self.size > most {
            return Err(self.altered(registry, format!("at most {most} bytes"), self.size.to_string()));
        }
        let mut answer = registry.blob(&self.digest, 0)?;
        match answer.status().as_u16() {
            200 => {}
            404 => return Err(self.missing(registry)),
            _ => return Err(registry.unexpected(&self.digest.to_string(), &mut answer)),
        }
        let bytes = read(&mut answer, most, &registry.reference_of(&self.digest))?;
        let found = Digest::of(&bytes);
        if bytes.len() as u64 != self.size {
            return Err(self.altered(registry, format!("{} bytes", self.size), bytes.len().to_string()));
        }
        if found != self.digest {
            return Err(self.altered(registry, self.digest.to_string(), found.to_string()));
        }
        Ok(bytes)
    }

    fn altered(&self, registry: &Registry, expected: String, found: String) -> Error {
        Error::Altered { reference: registry.reference().to_string(), file: self.name.to_owned(), expected, found }
    }

    fn missing(&self, registry: &Registry) -> Error {
        let (reference, file) = (registry.reference().to_string(), self.name.to_owned());
        Error::Missing { reference, file, digest: self.digest.clone() }
    }
}

/// What is here of a file.
struct Here<'p> {
    file: File,
    path: &'p Path,
    length: u64,
    /// The digest of what is here.
    sha256: Sha256,
}

impl Here<'_> {
    fn failed(&self, action: &'static str) -> impl FnOnce(io::Error) -> Error {
        Error::on(self.path, action)
    }

    /// Forgets everything that came.
    fn start_again(&mut self) -> Result<()> {
        self.file.set_len(0).and_then(|()| self.file.seek(SeekFrom::Start(0))).map_err(self.failed("write"))?;
        (self.length, self.sha256) = (0, Sha256::new());
        Ok(())
    }

    /// Digests what an earlier attempt left. More than the whole file is of no use.
    fn digest_what_came(&mut self, most: u64) -> Result<()> {
        let length = self.file.metadata().map_err(self.failed("inspect"))?.len();
        if length > most {
            return self.start_again();
        }
        let mut buffer = vec![0; CHUNK];
        loop {
            match self.file.read(&mut buffer).map_err(self.failed("read"))? {
                0 => return Ok(()),
                count => {
                    self.sha256.update(&buffer[..count]);
                    self.length += count as u64;
                }
            }
        }
    }

    /// Asks for what is missing, and appends what comes. Returns why it was cut, if it was.
    fn attempt(
        &mut self,
        registry: &Registry,
        wanted: &Wanted<'_>,
        came: &mut u64,
        progress: &mut dyn Progress,
    ) -> Result<Option<String>> {
        let mut answer = match registry.blob(&wanted.digest, self.length) {
            Ok(answer) => answer,
            Err(Error::Unreachable { reason, .. }) => return Ok(Some(reason)),
            Err(error) => return Err(error),
        };
        let header = |name| answer.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let (range, length) = (header(CONTENT_RANGE), header(CONTENT_LENGTH));
        match answer.status().as_u16() {
            206 if range.as_deref().and_then(start_of_range) == Some(self.length) => {}
            206 => {
                let found = range.unwrap_or_else(|| "none".into());
                let problem = format!("expected the bytes from {} on, found the range {found}", self.length);
                return Err(Error::Answer { url: wanted.digest.to_string(), problem });
            }
            // Everything from the beginning.
            200 => {
                self.start_again()?;
                progress.begin(wanted.name, Some(wanted.size), 0);
            }
            404 => return Err(wanted.missing(registry)),
            _ => match registry.unexpected(&wanted.digest.to_string(), &mut answer) {
                Error::Unreachable { reason, .. } => return Ok(Some(reason)),
                error => return Err(error),
            },
        }
        let missing = wanted.size - self.length;
        if let Some(length) = length.and_then(|text| text.parse::<u64>().ok())
            && length != missing
        {
            let (expected, found) = (format!("{} bytes", wanted.size), self.length.saturating_add(length));
            return Err(wanted.altered(registry, expected, found.to_string()));
        }
        // One byte more than is missing shows that there are too many.
        let mut body = answer.body_mut().as_reader().take(missing.saturating_add(1));
        let mut buffer = vec![0; CHUNK];
        loop {
            let count = match body.read(&mut buffer) {
                Ok(0) if self.length == wanted.size => return Ok(None),
                Ok(0) => {
                    let (here, all) = (self.length, wanted.size);
                    return Ok(Some(format!("the connection ended after {here} of {all} bytes")));
                }
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Ok(Some(error.to_string())),
            };
            if self.length + count as u64 > wanted.size {
                return Err(wanted.altered(registry, format!("{} bytes", wanted.size), "more".into()));
            }
            self.file.write_all(&buffer[..count]).map_err(self.failed("write"))?;
            self.sha256.update(&buffer[..count]);
            self.length += count as u64;
            *came += count as u64;
            progress.advance(count as u64);
        }
    }
}
