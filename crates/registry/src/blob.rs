//! The files of an engine, out of its repository.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tileforge_files::Transfer;
use ureq::http::header::CONTENT_LENGTH;

use crate::client::{Registry, read};
use crate::document::{Descriptor, Digest};
use crate::error::{Error, Result};
use crate::partial::{Ended, NotKept, Partial};

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
    pub(crate) fn fetch(&self, registry: &Registry, wanted: &Wanted<'_>, progress: &mut dyn Transfer) -> Result<u64> {
        let path = self.file(&wanted.digest);
        let opened = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path);
        let opened = opened.map_err(Error::on(&path, "create"))?;
        let kept = |not_kept| wanted.not_kept(not_kept, registry, &path);
        let mut here = Partial::of(opened, Some(wanted.size)).map_err(kept)?;
        progress.begin(wanted.name, Some(wanted.size), here.length());
        let ended = here.complete(|here| match wanted.size - here.length() {
            0 => Ok(Ended::Complete),
            _ => wanted.attempt(registry, here, &path, progress),
        })?;
        if let Ended::Cut(reason) = ended {
            let (file, kept) = (wanted.name.to_owned(), self.folder.clone());
            return Err(match here.length() {
                0 => Error::Unreachable { url: registry.reference().to_string(), reason },
                _ => Error::Cut { file, kept, reason },
            });
        }
        let found = Digest::from_hexadecimal(&here.digest().sha256);
        if found != wanted.digest {
            fs::remove_file(&path).map_err(Error::on(&path, "remove"))?;
            return Err(wanted.altered(registry, wanted.digest.to_string(), found.to_string()));
        }
        Ok(here.came())
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

    fn not_kept(&self, not_kept: NotKept, registry: &Registry, path: &Path) -> Error {
        match not_kept {
            NotKept::File { action, source } => Error::on(path, action)(source),
            NotKept::TooLong => self.altered(registry, format!("{} bytes", self.size), "more".into()),
        }
    }

    /// Asks for what is missing, and appends what comes to the file at `path`.
    fn attempt(
        &self,
        registry: &Registry,
        here: &mut Partial,
        path: &Path,
        progress: &mut dyn Transfer,
    ) -> Result<Ended> {
        let mut answer = match registry.blob(&self.digest, here.length()) {
            Ok(answer) => answer,
            Err(Error::Unreachable { reason, .. }) => return Ok(Ended::Cut(reason)),
            Err(error) => return Err(error),
        };
        match answer.status().as_u16() {
            206 => {
                let goes_on = here.goes_on_with(&answer);
                goes_on.map_err(|problem| Error::Answer { url: self.digest.to_string(), problem })?;
            }
            // Everything from the beginning.
            200 => {
                here.start_again().map_err(|not_kept| self.not_kept(not_kept, registry, path))?;
                progress.begin(self.name, Some(self.size), 0);
            }
            404 => return Err(self.missing(registry)),
            _ => match registry.unexpected(&self.digest.to_string(), &mut answer) {
                Error::Unreachable { reason, .. } => return Ok(Ended::Cut(reason)),
                error => return Err(error),
            },
        }
        let missing = self.size - here.length();
        let length = answer.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        if let Some(length) = length.filter(|length| *length != missing) {
            let (expected, found) = (format!("{} bytes", self.size), here.length().saturating_add(length));
            return Err(self.altered(registry, expected, found.to_string()));
        }
        here.append(&mut answer, Some(self.size), progress).map_err(|not_kept| self.not_kept(not_kept, registry, path))
    }
}
