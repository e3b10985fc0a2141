//! Downloads of weights: resumed where they were cut, and checked before they get their name.

use crate::{Error, FileFacts, ModelFile, Origin, Result, weights};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tileforge_files::TEXT_MAXIMUM_BYTES;
use tileforge_registry::{Progress, http};
use ureq::Agent;
use ureq::http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_RANGE, ETAG, IF_RANGE, RANGE};

const CHUNK: usize = 1 << 20;

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
pub fn fetch(model: &ModelFile, folder: &Path, hub: &Hub, progress: &mut dyn Progress) -> Result<Vec<Fetched>> {
    let certificates = http::system_certificates();
    let has_certificates = !certificates.is_empty();
    let agent = http::agent(hub.patience, certificates, false);
    let mut fetched = Vec::new();
    for (file, facts) in &model.files {
        let beside = model.path.with_file_name(file);
        let path = if beside.is_file() { beside } else { folder.join(&model.name).join(file) };
        if path.is_file() {
            weights::check(&path, Some(&weights::record_beside(&path)), facts)?;
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

/// How one answer of the server ended.
enum Ended {
    Complete,
    /// The connection was cut, with the reason.
    Cut(String),
}

impl Download<'_> {
    /// Downloads the file, and gives it its name once its digest is right. Returns the bytes that were downloaded.
    fn run(&self, name: &str, progress: &mut dyn Progress) -> Result<u64> {
        let part = self.beside(".part");
        let file = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&part);
        let mut file = file.map_err(|e| Error::file(&part, "create", e))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Error::Busy { path: part }),
            Err(TryLockError::Error(error)) => return Err(Error::file(&part, "lock", error)),
        }
        let downloaded = match self.all(name, &mut file, &part, progress) {
            Ok(downloaded) => downloaded,
            Err(error) => {
                if file.metadata().is_ok_and(|metadata| metadata.len() == 0) {
                    remove(&part)?;
                }
                return Err(error);
            }
        };
        let digest = self.check(&part)?;
        file.sync_all().map_err(|e| Error::file(&part, "write", e))?;
        weights::check_digest(self.path, Some(&weights::record_beside(self.path)), self.facts, &digest)?;
        fs::rename(&part, self.path).map_err(|e| Error::file(self.path, "rename", e))?;
        remove(&self.beside(".part.etag"))?;
        Ok(downloaded)
    }

    /// Downloads all that is missing. After a cut it goes on, as long as each attempt makes the file longer than it
    /// ever was: so a server that begins anew each time, and is cut each time, ends it.
    fn all(&self, name: &str, file: &mut File, part: &Path, progress: &mut dyn Progress) -> Result<u64> {
        let length = |file: &File| file.metadata().map(|of| of.len()).map_err(|e| Error::file(part, "read", e));
        let (mut downloaded, mut longest) = (0, length(file)?);
        loop {
            let reason = match self.attempt(name, file, part, &mut downloaded, progress)? {
                Ended::Complete => return Ok(downloaded),
                Ended::Cut(reason) => reason,
            };
            let here = length(file)?;
            if here <= longest {
                let url = self.url.to_owned();
                return Err(match here {
                    0 => Error::NoDownload { url, reason },
                    _ => Error::Cut { url, part: part.to_owned(), reason },
                });
            }
            longest = here;
        }
    }

    /// Asks for what is missing, and appends what comes.
    fn attempt(
        &self,
        name: &str,
        file: &mut File,
        part: &Path,
        downloaded: &mut u64,
        progress: &mut dyn Progress,
    ) -> Result<Ended> {
        let failed = |action: &'static str| move |e: io::Error| Error::file(part, action, e);
        let mut here = file.seek(SeekFrom::End(0)).map_err(failed("read"))?;
        let tag = self.beside(".part.etag");
        let mut request = self.agent.get(self.url);
        if let Some(token) = self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let known = match tileforge_files::read_text(&tag, TEXT_MAXIMUM_BYTES) {
            Ok(tag) => Some(tag),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(Error::file(&tag, "read", error)),
        };
        if here > 0 && known.is_none() && self.facts.sha256.is_none() {
            // Nothing would tell that the rest is of another file.
            file.set_len(0).map_err(failed("write"))?;
            here = 0;
        }
        if here > 0 {
            request = request.header(RANGE, format!("bytes={here}-"));
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
        let range = header(CONTENT_RANGE);
        match answer.status().as_u16() {
            206 => {
                let start = range.as_deref().and_then(http::start_of_range);
                if start != Some(here) {
                    let found = range.unwrap_or_else(|| "no range".into());
                    return Err(self.answered(format!("expected the bytes from {here} on, found {found}")));
                }
            }
            200 => {
                // Everything from the beginning.
                file.set_len(0).map_err(failed("write"))?;
                here = file.seek(SeekFrom::Start(0)).map_err(failed("write"))?;
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
                if range.as_deref().and_then(|range| range.strip_prefix("bytes */")) == Some(here.to_string().as_str())
                {
                    return Ok(Ended::Complete);
                }
                if here == 0 {
                    return Err(self.answered("expected the file, found the answer 416, which is for parts".into()));
                }
                file.set_len(0).map_err(failed("write"))?;
                remove(&tag)?;
                return self.attempt(name, file, part, downloaded, progress);
            }
            status @ (401 | 403) => {
                return Err(Error::Refused { url: self.url.to_owned(), status, has_token: self.token.is_some() });
            }
            404 => return Err(self.answered("there is no such file (404)".into())),
            status @ (429 | 500..=599) => return Ok(Ended::Cut(format!("the server answered {status}"))),
            status => return Err(self.answered(format!("expected the file, found the answer {status}"))),
        }
        let length = header(CONTENT_LENGTH).and_then(|length| length.parse::<u64>().ok()).map(|rest| here + rest);
        if let (Some(expected), Some(found)) = (self.facts.size, length)
            && expected != found
        {
            file.set_len(0).map_err(failed("write"))?;
            return Err(self.answered(format!("expected a file of {expected} bytes, found one of {found}")));
        }
        progress.begin(name, length.or(self.facts.size), here);
        let mut body = answer.body_mut().as_reader();
        let mut buffer = vec![0; CHUNK];
        loop {
            let read = match body.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Ok(Ended::Cut(error.to_string())),
            };
            file.write_all(&buffer[..read]).map_err(failed("write"))?;
            here += read as u64;
            *downloaded += read as u64;
            progress.advance(read as u64);
        }
        match length.filter(|length| *length != here) {
            Some(length) => Ok(Ended::Cut(format!("the connection ended after {here} of {length} bytes"))),
            None => Ok(Ended::Complete),
        }
    }

    /// Compares what was downloaded with what was published, and removes it if it is something else. Returns its
    /// digest.
    fn check(&self, part: &Path) -> Result<String> {
        let found = tileforge_engine::digest::sha256_file(part)?;
        let wrong = match (&self.facts.sha256, self.facts.size) {
            (Some(expected), _) if *expected.to_ascii_lowercase() != found.sha256 => {
                format!("expected the SHA-256 {expected}, found {}", found.sha256)
            }
            (_, Some(expected)) if expected != found.bytes => {
                format!("expected {expected} bytes, found {}", found.bytes)
            }
            _ => return Ok(found.sha256),
        };
        remove(part)?;
        remove(&self.beside(".part.etag"))?;
        Err(self.answered(format!("{wrong}: it is another file than the published one, and was removed")))
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
