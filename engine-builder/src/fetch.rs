//! Downloads of weights: resumed where they were cut, and checked before they get their name.

use crate::{Error, FileFacts, ModelFile, Origin, Result, weights};
use std::fs::{self, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tileforge_engine::digest::{FileDigest, sha256_file};
use tileforge_files::{TEXT_MAXIMUM_BYTES, Transfer};
use tileforge_registry::http;
use tileforge_registry::partial::{Ended, NotKept, Partial};
use ureq::Agent;
use ureq::http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_RANGE, ETAG, IF_RANGE, RANGE};

/// A hub with Hugging Face's addresses.
#[derive(Debug, Clone)]
pub struct Hub {
    /// Its address.
    pub endpoint: String,
    /// The user's token; it is sent to the hub alone.
    pub token: Option<String>,
    /// Nothing may be downloaded.
    pub is_offline: bool,
    /// How long a server may send nothing before the download counts as cut.
    pub patience: Duration,
}

/// A file of a model after a download.
#[derive(Debug, Clone)]
pub struct Fetched {
    /// Where it is.
    pub path: PathBuf,
    /// Bytes that were downloaded; 0 for a file that was there.
    pub downloaded: u64,
}

/// Downloads the files of a model into `folder/NAME`. Files that are there or beside the model file are checked.
///
/// # Errors
/// The model has no address, the machine is offline, the server refuses, the disk is full, or a file has another digest
/// or length than was published. What was downloaded stays beside the file's place, and the next call goes on from
/// there; a file of a wrong digest is removed.
pub fn fetch(model: &ModelFile, folder: &Path, hub: &Hub, progress: &mut dyn Transfer) -> Result<Vec<Fetched>> {
    let certificates = http::system_certificates();
    let has_certificates = !certificates.is_empty();
    let agent = http::agent(hub.patience, certificates, false);
    let mut fetched = Vec::new();
    for (file, facts) in &model.files {
        let beside = model.path.with_file_name(file);
        let path = if beside.is_file() { beside } else { folder.join(&model.name).join(file) };
        if path.is_file() {
            let found = sha256_file(&path)?.sha256;
            weights::check_digest(&path, Some(&weights::record_beside(&path)), facts, &found)?;
            fetched.push(Fetched { path, downloaded: 0 });
            continue;
        }
        let (url, token) = address(model, file, hub)?;
        if hub.is_offline {
            return Err(Error::Offline { model: model.name.clone(), url });
        }
        if url.starts_with("https:") && !has_certificates {
            return Err(Error::NoCertificates { url });
        }
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(|e| Error::file(parent, "create", e))?;
        }
        let download = Download { agent: &agent, url: &url, token, path: &path, facts };
        let downloaded = download.run(&format!("{}/{file}", model.name), progress)?;
        fetched.push(Fetched { path, downloaded });
    }
    Ok(fetched)
}

/// The address of a file, and the token for it.
fn address<'h>(model: &ModelFile, file: &str, hub: &'h Hub) -> Result<(String, Option<&'h str>)> {
    match &model.source {
        Some(Origin::Hub { repository, revision }) => {
            let endpoint = hub.endpoint.trim_end_matches('/');
            Ok((format!("{endpoint}/{repository}/resolve/{revision}/{file}"), hub.token.as_deref()))
        }
        Some(Origin::Folder(folder)) => Ok((format!("{}/{file}", folder.trim_end_matches('/')), None)),
        Some(Origin::Page(page)) => {
            Err(Error::NoAddress { model: model.name.clone(), file: file.to_owned(), page: Some(page.clone()) })
        }
        None => Err(Error::NoAddress { model: model.name.clone(), file: file.to_owned(), page: None }),
    }
}

struct Download<'a> {
    agent: &'a Agent,
    url: &'a str,
    token: Option<&'a str>,
    path: &'a Path,
    facts: &'a FileFacts,
}

impl Download<'_> {
    /// Downloads the file, and gives it its name once its digest is right. Returns the bytes that were downloaded.
    fn run(&self, name: &str, progress: &mut dyn Transfer) -> Result<u64> {
        let part = self.beside(".part");
        let file = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&part);
        let file = file.map_err(|e| Error::file(&part, "create", e))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Error::Busy { path: part }),
            Err(TryLockError::Error(error)) => return Err(Error::file(&part, "lock", error)),
        }
        let mut here = Partial::of(file, None).map_err(|not_kept| self.not_kept(not_kept))?;
        let ended = here.complete(|here| self.attempt(name, here, progress)).and_then(|ended| match ended {
            Ended::Complete => Ok(()),
            Ended::Cut(reason) if here.length() == 0 => Err(Error::NoDownload { url: self.url.to_owned(), reason }),
            Ended::Cut(reason) => Err(Error::Cut { url: self.url.to_owned(), part: part.clone(), reason }),
        });
        if let Err(error) = ended {
            if here.length() == 0 {
                remove(&part)?;
            }
            return Err(error);
        }
        let found = here.digest();
        self.check(&part, &found)?;
        here.sync().map_err(|not_kept| self.not_kept(not_kept))?;
        weights::check_digest(self.path, Some(&weights::record_beside(self.path)), self.facts, &found.sha256)?;
        fs::rename(&part, self.path).map_err(|e| Error::file(self.path, "rename", e))?;
        remove(&self.beside(".part.etag"))?;
        Ok(here.came())
    }

    /// Asks for what is missing, and appends what comes.
    fn attempt(&self, name: &str, here: &mut Partial, progress: &mut dyn Transfer) -> Result<Ended> {
        let forget = |here: &mut Partial| here.start_again().map_err(|not_kept| self.not_kept(not_kept));
        let tag = self.beside(".part.etag");
        let known = match tileforge_files::read_text(&tag, TEXT_MAXIMUM_BYTES) {
            Ok(tag) => Some(tag),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(Error::file(&tag, "read", error)),
        };
        if known.is_none() && self.facts.sha256.is_none() {
            // Nothing would tell that the rest is of another file.
            forget(here)?;
        }
        let mut request = self.agent.get(self.url);
        if let Some(token) = self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        if here.length() > 0 {
            request = request.header(RANGE, format!("bytes={}-", here.length()));
            // Where the file has changed since, the server sends all of it.
            if let Some(tag) = known {
                request = request.header(IF_RANGE, tag);
            }
        }
        let mut answer = match request.call() {
            Ok(answer) => answer,
            Err(error) => return Ok(Ended::Cut(error.to_string())),
        };
        let header = |name| answer.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        match answer.status().as_u16() {
            206 => here.goes_on_with(&answer).map_err(|reason| self.answered(reason))?,
            200 => {
                // Everything from the beginning.
                forget(here)?;
                match header(ETAG) {
                    // A weak tag does not name the bytes.
                    Some(found) if !found.starts_with("W/") => {
                        fs::write(&tag, found).map_err(|e| Error::file(&tag, "write", e))?;
                    }
                    _ => remove(&tag)?,
                }
            }
            416 => {
                // Nothing is missing, or what is here is of another file.
                if header(CONTENT_RANGE) == Some(format!("bytes */{}", here.length())) {
                    return Ok(Ended::Complete);
                }
                if here.length() == 0 {
                    return Err(self.answered("expected the file, found the answer 416, which is for parts".into()));
                }
                forget(here)?;
                remove(&tag)?;
                return self.attempt(name, here, progress);
            }
            status @ (401 | 403) => {
                return Err(Error::Refused { url: self.url.to_owned(), status, has_token: self.token.is_some() });
            }
            404 => return Err(self.answered("there is no such file (404)".into())),
            status @ (429 | 500..=599) => return Ok(Ended::Cut(format!("the server answered {status}"))),
            status => return Err(self.answered(format!("expected the file, found the answer {status}"))),
        }
        let length = header(CONTENT_LENGTH).and_then(|length| length.parse::<u64>().ok());
        let length = length.map(|rest| here.length().saturating_add(rest));
        if let (Some(expected), Some(found)) = (self.facts.size, length)
            && expected != found
        {
            forget(here)?;
            return Err(self.answered(format!("expected a file of {expected} bytes, found one of {found}")));
        }
        let size = length.or(self.facts.size);
        progress.begin(name, size, here.length());
        here.append(&mut answer, size, progress).map_err(|not_kept| self.not_kept(not_kept))
    }

    /// Compares what was downloaded with what was published, and removes it if it is something else.
    fn check(&self, part: &Path, found: &FileDigest) -> Result<()> {
        let wrong = match (&self.facts.sha256, self.facts.size) {
            (Some(expected), _) if *expected.to_ascii_lowercase() != found.sha256 => {
                format!("expected the SHA-256 {expected}, found {}", found.sha256)
            }
            (_, Some(expected)) if expected != found.bytes => {
                format!("expected {expected} bytes, found {}", found.bytes)
            }
            _ => return Ok(()),
        };
        remove(part)?;
        remove(&self.beside(".part.etag"))?;
        Err(self.answered(format!("{wrong}: it is another file than the published one, and was removed")))
    }

    fn not_kept(&self, not_kept: NotKept) -> Error {
        match not_kept {
            NotKept::File { action, source } => Error::file(&self.beside(".part"), action, source),
            NotKept::TooLong => self.answered("more bytes came than the file has".into()),
        }
    }

    fn answered(&self, reason: String) -> Error {
        Error::Server { url: self.url.to_owned(), reason }
    }

    fn beside(&self, ending: &str) -> PathBuf {
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(ending);
        self.path.with_file_name(name)
    }
}

/// Removes a file, if it is there.
fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::file(path, "remove", error)),
        _ => Ok(()),
    }
}
