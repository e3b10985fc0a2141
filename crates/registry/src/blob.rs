//! Downloads the files of an engine from its repository.

use std::path::{Path, PathBuf};

use tileforge_files::{Kept, NotKept, Transfer};

use crate::client::{Registry, read};
use crate::document::{Descriptor, Digest};
use crate::download::{DownloadSource, Expected, Problem, Response, download};
use crate::error::{Error, Result};

/// The folder beside an engine's directory that keeps downloaded files until the engine is complete: a file `sha256-…`
/// for each file of the engine.
#[derive(Debug)]
pub(crate) struct Parts(Kept);

impl Parts {
    /// Creates the folder for the engine at `directory`, or reuses the folder that an earlier pull left.
    ///
    /// # Errors
    /// [`Error::Busy`]: another process uses the folder and `wait` is false.
    pub(crate) fn beside(directory: &Path, wait: bool) -> Result<Self> {
        let waiting = || {
            if wait {
                tracing::info!("another process pulls the same engine; waiting for it");
            }
            wait
        };
        Ok(Self(Kept::beside(directory, waiting).map_err(|not_kept| match not_kept {
            NotKept::File { path, action, source } => Error::File { path, action, source },
            _ => Error::Busy { path: directory.to_owned() },
        })?))
    }

    /// Bytes of a file that are already downloaded.
    pub(crate) fn length(&self, digest: &Digest) -> u64 {
        self.0.length(&digest.file_name())
    }

    /// Whether nothing was downloaded.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty().unwrap_or(true)
    }

    /// Checks that the disk has room for this number of bytes.
    pub(crate) fn check_space(&self, needed: u64) -> Result<()> {
        let free = self.0.free_bytes().map_err(Error::on(self.0.path(), "inspect"))?;
        if needed > free {
            return Err(Error::Space { path: self.0.path().to_owned(), needed, free });
        }
        Ok(())
    }

    /// Moves a file to its place in an engine.
    pub(crate) fn place(&self, digest: &Digest, place: &Path) -> Result<()> {
        self.0.link_or_copy(&digest.file_name(), place).map_err(Error::on(place, "write"))
    }

    /// Removes the folder and the downloaded files. Files of other programs in it stay.
    pub(crate) fn remove(self) -> Result<()> {
        let path = self.0.path().to_owned();
        let is_known = |name: &str| {
            let digits = name.strip_prefix("sha256-");
            digits.is_some_and(|digits| format!("sha256:{digits}").parse::<Digest>().is_ok())
        };
        self.0.remove(is_known).map_err(Error::on(&path, "remove"))
    }

    /// Downloads a file, or its missing rest. Returns the number of received bytes.
    pub(crate) fn fetch(&self, registry: &Registry, wanted: &Wanted<'_>, progress: &mut dyn Transfer) -> Result<u64> {
        let expected = Expected {
            name: wanted.name,
            sha256: Some(wanted.digest.hexadecimal()),
            size: Some(wanted.size),
            most: wanted.size,
        };
        let layer = Layer { registry, wanted, folder: self.0.path() };
        Ok(download(&self.0, &wanted.digest.file_name(), &expected, &layer, progress)?.came)
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
        match answer.status() {
            200 => {}
            404 => return Err(self.missing(registry)),
            _ => return Err(registry.unexpected(&answer.address.clone(), &mut answer)),
        }
        let bytes = read(&mut answer, most)?;
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

/// A file in a registry, which is downloaded to a folder.
struct Layer<'a> {
    registry: &'a Registry,
    wanted: &'a Wanted<'a>,
    folder: &'a Path,
}

impl DownloadSource for Layer<'_> {
    type Error = Error;
    const IS_IMMUTABLE: bool = true;

    fn ask(&self, start: u64, _: Option<&str>) -> Result<Response> {
        let refused = match self.registry.blob(&self.wanted.digest, start) {
            Ok(answer) if matches!(answer.status(), 200 | 206 | 416) => return Ok(Response::Answer(Box::new(answer))),
            Ok(answer) if answer.status() == 404 => self.wanted.missing(self.registry),
            Ok(mut answer) => self.registry.unexpected(&answer.address.clone(), &mut answer),
            Err(error) => error,
        };
        match refused {
            Error::Unreachable { reason, .. } => Ok(Response::Cut(reason)),
            error => Err(error),
        }
    }

    fn failed(&self, problem: Problem) -> Error {
        let path = || -> PathBuf { self.folder.join(self.wanted.digest.file_name()) };
        match problem {
            Problem::Cut { reason, kept: 0 } => {
                Error::Unreachable { url: self.registry.reference().to_string(), reason }
            }
            Problem::Cut { reason, .. } => {
                Error::Cut { file: self.wanted.name.to_owned(), kept: self.folder.to_owned(), reason }
            }
            Problem::Altered { expected, found } => self.wanted.altered(self.registry, expected, found),
            Problem::Answer(problem) => Error::Answer { url: self.wanted.digest.to_string(), problem },
            Problem::Space { needed, free } => Error::Space { path: self.folder.to_owned(), needed, free },
            Problem::File { action, source } => Error::File { path: path(), action, source },
        }
    }
}
