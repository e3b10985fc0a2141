//! Downloads of weights: resumed after an interruption, and checked before they get their final name.

use crate::{Error, FileFacts, ModelFile, Origin, Result, weights};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tileforge_engine::digest::sha256_file;
use tileforge_files::{Kept, NotKept, Transfer};
use tileforge_registry::Error as HttpError;
use tileforge_registry::download::{DownloadSource, Expected, Problem, Response, download, forget};
use tileforge_registry::http::{self, Address, Client};
use ureq::http::header::{IF_RANGE, RANGE};

/// More bytes than any file of weights has: the limit where no length is published.
const FILE_MAXIMUM_BYTES: u64 = 256 << 30;

/// The name of the received data in the folder of an unfinished download.
const CONTENT: &str = "content";

/// A hub with Hugging Face's addresses.
#[derive(Debug, Clone)]
pub struct Hub {
    /// Its address.
    pub endpoint: String,
    /// The user's token; it is sent only to the hub.
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
    /// Bytes that were downloaded; 0 for a file that was already on this machine.
    pub downloaded: u64,
}

/// Downloads the files of a model into `folder/NAME`. Files that exist there or beside the model file are checked.
///
/// # Errors
/// The model has no address, the machine is offline, the server refuses, the disk is full, or a file has another
/// digest or length than published. The received part stays beside the file's place, and the next call resumes it; a
/// file with a wrong digest is removed.
pub fn fetch(model: &ModelFile, folder: &Path, hub: &Hub, progress: &mut dyn Transfer) -> Result<Vec<Fetched>> {
    let client = Client::new(hub.patience, http::system_certificates());
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
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(|e| Error::file(parent, "create", e))?;
        }
        let address = Address::parse(&url).map_err(|reason| Error::Server { url, reason })?;
        let download = Download { client: &client, address, token, path: &path, facts };
        let downloaded = download.run(&format!("{}/{file}", model.name), progress)?;
        fetched.push(Fetched { path, downloaded });
    }
    Ok(fetched)
}

/// The address of a file, and the token for it.
fn address<'h>(model: &ModelFile, file: &str, hub: &'h Hub) -> Result<(String, Option<&'h str>)> {
    match model.origin_of(file) {
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
    client: &'a Client,
    address: Address,
    token: Option<&'a str>,
    path: &'a Path,
    facts: &'a FileFacts,
}

impl Download<'_> {
    /// Downloads the file, checks its digest, and then gives it its name. Returns the number of downloaded bytes.
    fn run(&self, name: &str, progress: &mut dyn Transfer) -> Result<u64> {
        let kept = Kept::beside(self.path, || false).map_err(|not_kept| match not_kept {
            NotKept::File { path, action, source } => Error::File { path, action, source },
            other => Error::Busy { path: busy(other, self.path) },
        })?;
        let part = kept.path().to_owned();
        let fetched = self.fetch(&kept, name, progress);
        if fetched.is_ok() || kept.is_empty().unwrap_or(false) {
            let removed = kept.remove(|_| false).map_err(|e| Error::file(&part, "remove", e));
            return fetched.and_then(|came| removed.map(|()| came));
        }
        fetched
    }

    fn fetch(&self, kept: &Kept, name: &str, progress: &mut dyn Transfer) -> Result<u64> {
        let expected = Expected {
            name,
            sha256: self.facts.sha256.as_deref(),
            size: self.facts.size,
            most: self.facts.size.unwrap_or(FILE_MAXIMUM_BYTES),
        };
        let source = Weights { download: self, part: kept.path() };
        let downloaded = download(kept, CONTENT, &expected, &source, progress)?;
        let failed = |action| move |source| Error::file(kept.path(), action, source);
        // The data is synced to disk before the file gets its name, so it survives a power failure.
        kept.open(CONTENT).and_then(|file| file.sync_all()).map_err(failed("write"))?;
        let record = weights::record_beside(self.path);
        let checked = weights::check_digest(self.path, Some(&record), self.facts, &downloaded.digest.sha256);
        if checked.is_ok() {
            kept.rename(CONTENT, self.path).map_err(|e| Error::file(self.path, "rename", e))?;
        }
        // A file with a wrong digest is of no use for a later download.
        forget(kept, CONTENT).map_err(failed("clear"))?;
        checked.map(|()| downloaded.came)
    }
}

/// The folder that another process uses.
fn busy(not_kept: NotKept, place: &Path) -> PathBuf {
    match not_kept {
        NotKept::Busy { path } => path,
        _ => place.to_owned(),
    }
}

/// A file on a server of weights.
struct Weights<'a> {
    download: &'a Download<'a>,
    /// The folder of the unfinished download.
    part: &'a Path,
}

impl Weights<'_> {
    fn url(&self) -> String {
        self.download.address.to_string()
    }

    fn answered(&self, reason: String) -> Error {
        Error::Server { url: self.url(), reason }
    }
}

impl DownloadSource for Weights<'_> {
    type Error = Error;
    const IS_IMMUTABLE: bool = false;

    fn ask(&self, start: u64, version: Option<&str>) -> Result<Response> {
        let mut headers = Vec::new();
        if start > 0 {
            headers.push((RANGE, format!("bytes={start}-")));
            // If the file has changed since, the server sends the whole file.
            headers.extend(version.map(|version| (IF_RANGE, version.to_owned())));
        }
        let token = self.download.token.map(|token| format!("Bearer {token}"));
        let answer = match self.download.client.get(&self.download.address, &headers, token.as_deref()) {
            Ok(answer) => answer,
            Err(HttpError::Unreachable { reason, .. }) => return Ok(Response::Cut(reason)),
            Err(HttpError::NoCertificates { url }) => return Err(Error::NoCertificates { url }),
            Err(error) => return Err(Error::Download(Box::new(error))),
        };
        match answer.status() {
            200 | 206 | 416 => Ok(Response::Answer(Box::new(answer))),
            status @ (401 | 403) if answer.is_from_origin => {
                Err(Error::Refused { url: self.url(), status, has_token: self.download.token.is_some() })
            }
            404 => Err(self.answered("there is no such file (404)".into())),
            status @ (429 | 500..=599) => Ok(Response::Cut(format!("the server answered {status}"))),
            status if !answer.is_from_origin => {
                Err(self.answered(format!("it sent us to {}, which answered {status}", answer.address)))
            }
            status => Err(self.answered(format!("expected the file, found the answer {status}"))),
        }
    }

    fn failed(&self, problem: Problem) -> Error {
        match problem {
            Problem::Cut { reason, kept: 0 } => Error::NoDownload { url: self.url(), reason },
            Problem::Cut { reason, .. } => Error::Cut { url: self.url(), part: self.part.to_owned(), reason },
            Problem::Altered { expected, found } => self.answered(format!(
                "expected {expected}, found {found}: it is another file than the published one, and was removed"
            )),
            Problem::Answer(reason) => self.answered(reason),
            Problem::Space { needed, free } => Error::Space { path: self.part.to_owned(), needed, free },
            Problem::File { action, source } => Error::file(self.part, action, source),
        }
    }
}
