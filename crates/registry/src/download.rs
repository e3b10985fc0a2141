//! A download: resumed after a cut, digested while it arrives, and never larger than promised.
//!
//! Engines of a registry and weights of models are downloaded this way. [`DownloadSource`] holds the differences.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::str::FromStr;

use sha2::{Digest as _, Sha256};
use tileforge_engine::digest::{FileDigest, hexadecimal};
use tileforge_files::{Kept, Transfer};
use ureq::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, ETAG, TRANSFER_ENCODING};

use crate::http::{Answer, CHUNK};

/// The longest stored version: the size, and then the entity tag.
const VERSION_MAXIMUM_BYTES: u64 = 1 << 12;

/// What is known of a file before it is downloaded.
#[derive(Clone, Debug)]
pub struct Expected<'a> {
    /// What it is called in messages.
    pub name: &'a str,
    /// Its SHA-256, if it was published.
    pub sha256: Option<&'a str>,
    /// Its length, if it was published.
    pub size: Option<u64>,
    /// The maximum number of bytes, whatever a server states.
    pub most: u64,
}

/// A server with one file.
pub trait DownloadSource {
    /// The errors of the source.
    type Error;
    /// Whether the address identifies the bytes themselves, so that their version need not be kept.
    const IS_IMMUTABLE: bool;

    /// Requests the bytes from `start` on, if the file still has this version (an entity tag).
    ///
    /// # Errors
    /// The server refuses for a reason that another attempt does not change.
    fn ask(&self, start: u64, version: Option<&str>) -> Result<Response, Self::Error>;

    /// The error for a problem of the download.
    fn failed(&self, problem: Problem) -> Self::Error;
}

/// The outcome of a request.
#[derive(Debug)]
pub enum Response {
    /// An answer of status 200, 206 or 416.
    Answer(Box<Answer>),
    /// No answer, with the reason. Another attempt may succeed.
    Cut(String),
}

/// Why a download is not complete.
#[derive(Debug)]
pub enum Problem {
    /// The connection was cut too often. The received bytes are kept, if there are any.
    Cut {
        /// Why.
        reason: String,
        /// Bytes that are kept.
        kept: u64,
    },
    /// The file differs from the published one, or is larger than allowed. Nothing is kept.
    Altered {
        /// What it should be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// The server's answer contains no usable file: what was expected, and what was found.
    Answer(String),
    /// The disk has too little space.
    Space {
        /// Bytes that are needed.
        needed: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// A kept file cannot be read or written.
    File {
        /// What was tried, as a verb.
        action: &'static str,
        /// Why not.
        source: io::Error,
    },
}

impl Problem {
    fn on(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::File { action, source }
    }
}

/// A complete file, which is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Downloaded {
    /// Bytes received from the server; some of them may have been discarded.
    pub came: u64,
    /// Its length and digest.
    pub digest: FileDigest,
}

/// Downloads a file, or its missing rest, to `file` in the folder `kept`. After a cut it tries again, as long as each
/// attempt makes the file longer than ever before.
///
/// A file of unknown digest is resumed only if the server states its version. A file of unknown length may take half
/// of the disk's free space.
///
/// # Errors
/// Each [`Problem`], as the source's error.
pub fn download<S: DownloadSource>(
    kept: &Kept,
    file: &str,
    expected: &Expected<'_>,
    source: &S,
    progress: &mut dyn Transfer,
) -> Result<Downloaded, S::Error> {
    let failed = |problem| source.failed(problem);
    let mut part = Part::open(kept, file, expected, S::IS_IMMUTABLE).map_err(failed)?;
    let ended = part.complete(source, progress).and_then(|ended| match ended {
        Ended::Complete => part.check().map_err(|problem| part.refused(problem, source)),
        Ended::Cut(reason) => Err(failed(Problem::Cut { reason, kept: part.length })),
    });
    if ended.is_err() && part.length == 0 {
        // The first error is reported.
        let _ = forget(kept, file);
    }
    ended.map(|()| Downloaded { came: part.came, digest: part.digest() })
}

/// Removes the kept bytes of a file, and its stored version.
///
/// # Errors
/// The system's reason.
pub fn forget(kept: &Kept, file: &str) -> io::Result<()> {
    kept.remove_file(file)?;
    kept.remove_file(&version_of(file))
}

/// The name of the file that stores the version of `file`.
fn version_of(file: &str) -> String {
    format!("{file}.version")
}

/// How one answer of a server ended.
enum Ended {
    Complete,
    Cut(String),
}

/// The part of a file that is already downloaded.
struct Part<'a> {
    kept: &'a Kept,
    name: &'a str,
    expected: &'a Expected<'a>,
    file: File,
    length: u64,
    /// Over the downloaded bytes.
    sha256: Sha256,
    came: u64,
    version: Version,
    is_immutable: bool,
}

/// The version of the downloaded file, as the server stated it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Version {
    /// The strong entity tag.
    tag: Option<String>,
    size: Option<u64>,
}

impl Version {
    fn of(answer: &Answer) -> Self {
        // A weak tag does not identify the bytes.
        let tag = answer.header(ETAG).filter(|tag| !tag.starts_with("W/") && tag.len() < 1024).map(str::to_owned);
        Self { tag, size: length_of(answer) }
    }

    fn to_text(&self) -> String {
        let size = self.size.map_or_else(String::new, |size| size.to_string());
        format!("{size}\n{}", self.tag.as_deref().unwrap_or_default())
    }

    fn from_text(text: &str) -> Option<Self> {
        let (size, tag) = text.split_once('\n')?;
        let size = if size.is_empty() { None } else { Some(size.parse().ok()?) };
        let is_tag = |tag: &&str| !tag.is_empty() && tag.chars().all(|sign| sign.is_ascii_graphic() || sign == ' ');
        Some(Self { size, tag: Some(tag).filter(is_tag).map(str::to_owned) })
    }
}

/// A `Content-Range` header: the first and the last byte (absent in an answer of status 416), and the file's length if
/// the server knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentRange {
    /// The first byte and the last one.
    pub bytes: Option<(u64, u64)>,
    /// The length of the file.
    pub total: Option<u64>,
}

impl FromStr for ContentRange {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let number = |text: &str| {
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<u64>().ok().filter(|_| is_number).ok_or(())
        };
        let (bytes, total) = text.strip_prefix("bytes ").and_then(|rest| rest.split_once('/')).ok_or(())?;
        let total = if total == "*" { None } else { Some(number(total)?) };
        let bytes = match bytes.split_once('-') {
            None if bytes == "*" => None,
            None => return Err(()),
            Some((first, last)) => Some((number(first)?, number(last)?)),
        };
        let is_possible = match (bytes, total) {
            (Some((first, last)), total) => first <= last && last < total.unwrap_or(u64::MAX),
            (None, total) => total.is_some(),
        };
        if is_possible { Ok(Self { bytes, total }) } else { Err(()) }
    }
}

impl<'a> Part<'a> {
    /// Takes the bytes that an earlier download left. If they exceed the file's maximum length, all are discarded.
    fn open(kept: &'a Kept, name: &'a str, expected: &'a Expected<'a>, is_immutable: bool) -> Result<Self, Problem> {
        let file = kept.open(name).map_err(Problem::on("open"))?;
        let length = file.metadata().map_err(Problem::on("inspect"))?.len();
        let known = kept.read(&version_of(name), VERSION_MAXIMUM_BYTES).ok().flatten();
        let known = known.and_then(|bytes| Version::from_text(str::from_utf8(&bytes).ok()?));
        let version = known.unwrap_or_default();
        let sha256 = Sha256::new();
        let mut part = Self { kept, name, expected, file, length: 0, sha256, came: 0, version, is_immutable };
        let most = part.size().unwrap_or(expected.most).min(expected.most);
        if length > most || (length > 0 && !part.can_go_on()) {
            part.start_again(Version::default())?;
            return Ok(part);
        }
        let mut buffer = vec![0; CHUNK];
        loop {
            match part.file.read(&mut buffer).map_err(Problem::on("read"))? {
                0 => return Ok(part),
                count => {
                    part.sha256.update(&buffer[..count]);
                    part.length += count as u64;
                }
            }
        }
    }

    /// Whether the download can be resumed: a rest from another file would be detected.
    fn can_go_on(&self) -> bool {
        self.expected.sha256.is_some() || self.version.tag.is_some()
    }

    /// The file's length, as far as it is known.
    fn size(&self) -> Option<u64> {
        self.expected.size.or(self.version.size)
    }

    fn digest(&self) -> FileDigest {
        FileDigest { bytes: self.length, sha256: hexadecimal(&self.sha256.clone().finalize()) }
    }

    /// Discards all downloaded bytes. The next bytes belong to `version`.
    fn start_again(&mut self, version: Version) -> Result<(), Problem> {
        let emptied = self.file.set_len(0).and_then(|()| self.file.seek(SeekFrom::Start(0)));
        emptied.map_err(Problem::on("write"))?;
        (self.length, self.sha256) = (0, Sha256::new());
        let place = version_of(self.name);
        // Without a tag, another process could not resume.
        let written = match &version.tag {
            Some(_) if !self.is_immutable => self.kept.write(&place, version.to_text().as_bytes()),
            _ => self.kept.remove_file(&place),
        };
        self.version = version;
        written.map_err(Problem::on("write"))
    }

    /// Makes attempts until the file is complete or an attempt makes no progress.
    fn complete<S: DownloadSource>(&mut self, source: &S, progress: &mut dyn Transfer) -> Result<Ended, S::Error> {
        let mut longest = self.length;
        loop {
            let ended = self.attempt(source, progress)?;
            if matches!(ended, Ended::Complete) || self.length <= longest {
                return Ok(ended);
            }
            longest = self.length;
            if !self.can_go_on() {
                // The received bytes cannot be resumed, and the next answer may come from another file.
                self.start_again(Version::default()).map_err(|problem| source.failed(problem))?;
            }
        }
    }

    /// Requests the missing bytes, and appends the answer.
    fn attempt<S: DownloadSource>(&mut self, source: &S, progress: &mut dyn Transfer) -> Result<Ended, S::Error> {
        loop {
            if self.length > 0 && self.size() == Some(self.length) {
                return Ok(Ended::Complete);
            }
            let tag = self.version.tag.as_deref().filter(|_| self.length > 0);
            let answer = match source.ask(self.length, tag)? {
                Response::Answer(answer) => answer,
                Response::Cut(reason) => return Ok(Ended::Cut(reason)),
            };
            // Each turn begins with fewer bytes than the one before, or ends here.
            match self.take(*answer, progress) {
                Ok(None) => {}
                Ok(Some(ended)) => return Ok(ended),
                Err(problem) => return Err(self.refused(problem, source)),
            }
        }
    }

    /// The source's error. Bytes of an altered file are discarded.
    fn refused<S: DownloadSource>(&mut self, problem: Problem, source: &S) -> S::Error {
        if matches!(problem, Problem::Altered { .. })
            && let Err(problem) = self.start_again(Version::default())
        {
            return source.failed(problem);
        }
        source.failed(problem)
    }

    /// Takes the content of an answer. `None`: the downloaded bytes are discarded, and the file must be requested
    /// again.
    fn take(&mut self, mut answer: Answer, progress: &mut dyn Transfer) -> Result<Option<Ended>, Problem> {
        let expected_a_file = |found: &str| Problem::Answer(format!("expected the file, found {found}"));
        let range = answer.header(CONTENT_RANGE).map(str::to_owned);
        let parsed = range.as_deref().and_then(|range| range.parse::<ContentRange>().ok());
        let stated = match (answer.status(), self.length) {
            (200, _) => {
                let version = Version::of(&answer);
                let stated = version.size;
                self.start_again(version)?;
                stated
            }
            (206, 0) => return Err(expected_a_file("a part of it")),
            (206, length) => {
                let Some(ContentRange { bytes: Some((first, _)), total }) =
                    parsed.filter(|range| range.bytes.is_some_and(|(first, _)| first == length))
                else {
                    let found = range.as_deref().unwrap_or("no range").escape_debug();
                    return Err(Problem::Answer(format!("expected the bytes from {length} on, found {found}")));
                };
                let now = Version::of(&answer);
                let is_other = now.tag.is_some() && self.version.tag.is_some() && now.tag != self.version.tag;
                if is_other || (self.version.size.is_some() && total.is_some() && self.version.size != total) {
                    self.start_again(Version::default())?;
                    return Ok(None);
                }
                total.or(now.size.map(|rest| first.saturating_add(rest)))
            }
            (416, 0) => return Err(expected_a_file("the answer 416, which is for parts")),
            (416, length) => {
                // Either nothing is missing, or the downloaded bytes belong to another file.
                if parsed == Some(ContentRange { bytes: None, total: Some(length) }) {
                    return Ok(Some(Ended::Complete));
                }
                self.start_again(Version::default())?;
                return Ok(None);
            }
            (status, _) => return Err(expected_a_file(&format!("the answer {status}"))),
        };
        if let Some(found) = answer.header(CONTENT_ENCODING).filter(|found| *found != "identity") {
            return Err(expected_a_file(&format!("it in the encoding {}", found.escape_debug())));
        }
        if let (Some(expected), Some(found)) = (self.expected.size, stated)
            && expected != found
        {
            return Err(bytes(expected, found));
        }
        let size = self.expected.size.or(stated);
        let most = self.most(size)?;
        // If a server does not state the file's length, only chunked encoding or a digest distinguishes the end from a
        // cut.
        let has_chunks = answer.header(TRANSFER_ENCODING).is_some_and(|found| found.eq_ignore_ascii_case("chunked"));
        if size.is_none() && !has_chunks && self.expected.sha256.is_none() {
            return Err(expected_a_file("one whose length the server does not say, so that its end could be a cut"));
        }
        progress.begin(self.expected.name, size, self.length);
        if let Some(reason) = self.append(&mut answer, size, most, progress)? {
            return Ok(Some(Ended::Cut(reason)));
        }
        let is_whole = match (size, self.expected.sha256) {
            (Some(size), _) => self.length == size,
            (None, Some(_)) => has_chunks || self.check().is_ok(),
            (None, None) => true,
        };
        let of = size.map_or_else(String::new, |size| format!(" of {size}"));
        let reason = || format!("the connection ended after {}{of} bytes", self.length);
        Ok(Some(if is_whole { Ended::Complete } else { Ended::Cut(reason()) }))
    }

    /// The maximum length of the file, given its stated length.
    fn most(&self, size: Option<u64>) -> Result<u64, Problem> {
        let most = self.expected.most;
        if let Some(found) = size.filter(|size| *size > most) {
            return Err(Problem::Altered { expected: format!("at most {most} bytes"), found: found.to_string() });
        }
        let free = self.kept.free_bytes().map_err(Problem::on("inspect"))?;
        let Some(size) = size else { return Ok(most.min(self.length.saturating_add(free / 2))) };
        let needed = size.saturating_sub(self.length);
        if needed > free { Err(Problem::Space { needed, free }) } else { Ok(size) }
    }

    /// Appends the body of an answer. Returns the reason of a cut, if there was one.
    fn append(
        &mut self,
        answer: &mut Answer,
        size: Option<u64>,
        most: u64,
        progress: &mut dyn Transfer,
    ) -> Result<Option<String>, Problem> {
        let mut body = answer.response.body_mut().as_reader();
        let mut buffer = vec![0; CHUNK];
        loop {
            let count = match body.read(&mut buffer) {
                Ok(0) => return Ok(None),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Ok(Some(error.to_string())),
            };
            if count as u64 > most.saturating_sub(self.length) {
                let expected = if size.is_some() { "" } else { "at most " };
                return Err(Problem::Altered { expected: format!("{expected}{most} bytes"), found: "more".into() });
            }
            self.file.write_all(&buffer[..count]).map_err(Problem::on("write"))?;
            self.sha256.update(&buffer[..count]);
            self.length += count as u64;
            self.came += count as u64;
            progress.advance(count as u64);
        }
    }

    /// Compares the downloaded file with the published length and digest.
    fn check(&self) -> Result<(), Problem> {
        let (found, expected) = (self.digest(), self.expected);
        let problem = match (expected.size, expected.sha256) {
            (Some(size), _) if size != found.bytes => bytes(size, found.bytes),
            (_, Some(sha256)) if !sha256.eq_ignore_ascii_case(&found.sha256) => Problem::Altered {
                expected: format!("the SHA-256 {}", sha256.to_ascii_lowercase()),
                found: found.sha256,
            },
            // None of our files is empty. An empty file without a digest is a server's mistake.
            (None, None) if found.bytes == 0 => Problem::Answer("expected the file, found no byte of it".into()),
            _ => return Ok(()),
        };
        Err(problem)
    }
}

fn bytes(expected: u64, found: u64) -> Problem {
    Problem::Altered { expected: format!("{expected} bytes"), found: found.to_string() }
}

/// The length of an answer's body.
fn length_of(answer: &Answer) -> Option<u64> {
    answer.header(CONTENT_LENGTH)?.parse().ok()
}
