//! A file that is downloaded: resumed where it was cut, and digested while it comes.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

use sha2::{Digest as _, Sha256};
use tileforge_engine::digest::{FileDigest, hexadecimal};
use tileforge_files::Transfer;
use ureq::Body;
use ureq::http::Response;
use ureq::http::header::CONTENT_RANGE;

use crate::http::CHUNK;

/// What is here of a file that is downloaded.
#[derive(Debug)]
pub struct Partial {
    file: File,
    length: u64,
    /// Over what is here.
    sha256: Sha256,
    came: u64,
}

/// How one answer of a server ended.
#[derive(Debug)]
pub enum Ended {
    /// The file is whole.
    Complete,
    /// The connection was cut, with the reason.
    Cut(String),
}

/// Why what came is not kept.
#[derive(Debug)]
pub enum NotKept {
    /// The file could not be read or written.
    File {
        /// What was to be done with it.
        action: &'static str,
        /// Why it was not.
        source: io::Error,
    },
    /// More bytes came than the file has.
    TooLong,
}

impl NotKept {
    fn on(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::File { action, source }
    }
}

impl Partial {
    /// Goes on with what an earlier download left in a file. Of more than `most` bytes, none is of use.
    ///
    /// # Errors
    /// The file cannot be read, or not be emptied.
    pub fn of(file: File, most: Option<u64>) -> Result<Self, NotKept> {
        let length = file.metadata().map_err(NotKept::on("inspect"))?.len();
        let mut partial = Self { file, length: 0, sha256: Sha256::new(), came: 0 };
        if most.is_some_and(|most| length > most) {
            partial.start_again()?;
            return Ok(partial);
        }
        let mut buffer = vec![0; CHUNK];
        loop {
            match partial.file.read(&mut buffer).map_err(NotKept::on("read"))? {
                0 => return Ok(partial),
                count => {
                    partial.sha256.update(&buffer[..count]);
                    partial.length += count as u64;
                }
            }
        }
    }

    /// Bytes that are here.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Bytes that came from the server; some of them may have been forgotten since.
    pub fn came(&self) -> u64 {
        self.came
    }

    /// Length and SHA-256 of what is here.
    pub fn digest(&self) -> FileDigest {
        FileDigest { bytes: self.length, sha256: hexadecimal(&self.sha256.clone().finalize()) }
    }

    /// Forgets everything that is here.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn start_again(&mut self) -> Result<(), NotKept> {
        let emptied = self.file.set_len(0).and_then(|()| self.file.seek(SeekFrom::Start(0)));
        emptied.map_err(NotKept::on("write"))?;
        (self.length, self.sha256) = (0, Sha256::new());
        Ok(())
    }

    /// Makes sure that what was written survives a loss of power.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn sync(&self) -> Result<(), NotKept> {
        self.file.sync_all().map_err(NotKept::on("write"))
    }

    /// Makes attempts until the file is whole or one fails. After a cut it goes on, as long as each attempt makes the
    /// file longer than it ever was: so a server that begins anew each time, and is cut each time, ends it.
    ///
    /// # Errors
    /// That of the attempt that failed.
    pub fn complete<E>(&mut self, mut attempt: impl FnMut(&mut Self) -> Result<Ended, E>) -> Result<Ended, E> {
        let mut longest = self.length;
        loop {
            let ended = attempt(self)?;
            if matches!(ended, Ended::Complete) || self.length <= longest {
                return Ok(ended);
            }
            longest = self.length;
        }
    }

    /// Whether an answer with a part (206) goes on where this file ends.
    ///
    /// # Errors
    /// What was expected, and what was found.
    pub fn goes_on_with(&self, answer: &Response<Body>) -> Result<(), String> {
        let range = answer.headers().get(CONTENT_RANGE).and_then(|range| range.to_str().ok());
        if range.and_then(start_of_range) == Some(self.length) {
            return Ok(());
        }
        Err(format!("expected the bytes from {} on, found {}", self.length, range.unwrap_or("no range")))
    }

    /// Appends what an answer brings of a file of `size` bytes, if its size is known.
    ///
    /// # Errors
    /// The file cannot be written, or more comes than it has.
    pub fn append(
        &mut self,
        answer: &mut Response<Body>,
        size: Option<u64>,
        progress: &mut dyn Transfer,
    ) -> Result<Ended, NotKept> {
        let mut body = answer.body_mut().as_reader();
        let mut buffer = vec![0; CHUNK];
        loop {
            let count = match body.read(&mut buffer) {
                Ok(0) => {
                    return Ok(match size.filter(|size| *size != self.length) {
                        Some(size) => Ended::Cut(format!("the connection ended after {} of {size} bytes", self.length)),
                        None => Ended::Complete,
                    });
                }
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Ok(Ended::Cut(error.to_string())),
            };
            if size.is_some_and(|size| self.length + count as u64 > size) {
                return Err(NotKept::TooLong);
            }
            self.file.write_all(&buffer[..count]).map_err(NotKept::on("write"))?;
            self.sha256.update(&buffer[..count]);
            self.length += count as u64;
            self.came += count as u64;
            progress.advance(count as u64);
        }
    }
}

/// The first byte of a `Content-Range`.
fn start_of_range(range: &str) -> Option<u64> {
    range.strip_prefix("bytes ")?.split('-').next()?.parse().ok()
}
