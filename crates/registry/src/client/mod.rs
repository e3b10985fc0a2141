//! The connection to one repository of a registry, by the OCI distribution specification 1.1.

mod authorization;

use std::io::{Cursor, Read};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use serde::Deserialize;
use ureq::http::Method;
use ureq::http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HeaderName, LOCATION, RANGE};
use ureq::{Body, SendBody};

use crate::authorities::Authorities;
use crate::credentials::{Credentials, Login, is_docker_hub};
use crate::document::{DOCUMENT_MAXIMUM_BYTES, Digest, Document, INDEX, Index, MANIFEST};
use crate::error::{Error, Result};
use crate::http::{self, Address, Answer, Client, check_encryption};
use crate::reason::quoted;
use crate::reference::{Reference, Version};

/// The longest time without data from a registry.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The header by which a registry confirms that it lists the referrers of a manifest.
const OCI_SUBJECT: HeaderName = HeaderName::from_static("oci-subject");
/// For a file of more bytes, the client asks the registry for consent before it sends them. The registry may want
/// another token, and a server that refuses cuts the connection after this number of bytes (Go's `net/http`), so that
/// its answer is lost.
const SENT_UNASKED: u64 = 256 << 10;

/// The purpose of a connection, which token servers ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Something is pulled.
    Pull,
    /// Something is pushed.
    Push,
}

/// Bytes that are sent to a registry.
pub(crate) trait Content: Read {
    /// Goes back to the first byte.
    fn restart(&mut self) -> Result<()>;
}

impl Content for Cursor<&[u8]> {
    fn restart(&mut self) -> Result<()> {
        self.set_position(0);
        Ok(())
    }
}

/// A repository of a registry.
pub struct Registry {
    reference: Reference,
    purpose: Purpose,
    client: Client,
    /// `https://HOST/v2/NAME/`, or `http://HOST/v2/NAME/`.
    base: Address,
    credentials: Credentials,
    /// Looked up when the registry asks for it.
    login: OnceLock<Login>,
    /// The value of the `Authorization` header, once it is known.
    authorization: Mutex<Option<String>>,
}

/// Passwords and tokens do not get into logs.
impl std::fmt::Debug for Registry {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { reference, purpose, .. } = self;
        formatter
            .debug_struct("Registry")
            .field("reference", reference)
            .field("purpose", purpose)
            .finish_non_exhaustive()
    }
}

impl Registry {
    /// Prepares the connection; nothing is sent yet.
    ///
    /// With `plain_http`, the connection is not encrypted. Otherwise, only a registry on this machine is reached
    /// without encryption, and only if no authorities are configured for it.
    ///
    /// # Errors
    /// The certificates of the registry's authorities cannot be read.
    pub fn new(
        reference: &Reference,
        purpose: Purpose,
        credentials: Credentials,
        authorities: &Authorities,
        plain_http: bool,
    ) -> Result<Self> {
        let authorities = if plain_http { None } else { authorities.of(reference.host())? };
        let encrypted = !plain_http && (authorities.is_some() || !reference.is_loopback());
        let host = if is_docker_hub(reference.host()) { "registry-1.docker.io" } else { reference.host() };
        let scheme = if encrypted { "https" } else { "http" };
        let base = format!("{scheme}://{host}/v2/{}/", reference.name());
        let base = Address::parse(&base).map_err(|problem| answered(&base, problem))?;
        let mut certificates = authorities.unwrap_or_default();
        if encrypted {
            certificates.extend(http::system_certificates());
        }
        Ok(Self {
            client: Client::new(TIMEOUT, certificates),
            login: OnceLock::new(),
            authorization: Mutex::default(),
            reference: reference.clone(),
            credentials,
            purpose,
            base,
        })
    }

    /// The reference that the connection was opened with.
    pub fn reference(&self) -> &Reference {
        &self.reference
    }

    /// The name of the manifest of this digest in messages.
    pub(crate) fn reference_of(&self, digest: &Digest) -> String {
        self.reference.at(digest).to_string()
    }

    /// The address of something in the repository.
    fn url(&self, rest: &str) -> Result<Address> {
        self.base.join(rest).map_err(|problem| answered(&self.base.to_string(), problem))
    }

    /// Requests a document of one of these types.
    fn get(&self, url: &Address, accepted: &str) -> Result<Answer> {
        let headers = [(ACCEPT, accepted.to_owned())];
        self.send(url, |authorization| self.client.get(url, &headers, authorization))
    }

    /// The manifest or index of a version, with its digest. Bytes with a digest other than the requested one are
    /// refused.
    pub(crate) fn document(&self, version: &Version) -> Result<(Vec<u8>, Digest)> {
        self.optional_document(version)?.ok_or_else(|| {
            let reference = match version {
                Version::Tag(tag) => {
                    format!("{}{}/{}:{tag}", Reference::SCHEME, self.reference.host(), self.reference.name())
                }
                Version::Digest(digest) => self.reference_of(digest),
            };
            Error::NotFound { reference }
        })
    }

    /// As [`Registry::document`]; `None` if the registry has no repository or tag of this name.
    pub(crate) fn optional_document(&self, version: &Version) -> Result<Option<(Vec<u8>, Digest)>> {
        let url = self.url(&format!("manifests/{version}"))?;
        let mut answer = self.get(&url, &format!("{MANIFEST}, {INDEX}"))?;
        match answer.status() {
            200 => {}
            404 => return Ok(None),
            _ => return Err(self.unexpected(&url, &mut answer)),
        }
        let bytes = read(&mut answer, DOCUMENT_MAXIMUM_BYTES)?;
        let found = Digest::of(&bytes);
        match version {
            Version::Digest(expected) if *expected != found => Err(Error::Altered {
                reference: self.reference_of(expected),
                file: "the manifest".into(),
                expected: expected.to_string(),
                found: found.to_string(),
            }),
            _ => Ok(Some((bytes, found))),
        }
    }

    /// Reads a document of the repository.
    pub(crate) fn parse(&self, bytes: &[u8], digest: &Digest) -> Result<Document> {
        Document::parse(bytes).map_err(|problem| self.broken(digest, problem))
    }

    /// The error for an invalid document of this digest.
    pub(crate) fn broken(&self, digest: &Digest, problem: impl Into<String>) -> Error {
        Error::Document { reference: self.reference_of(digest), problem: problem.into() }
    }

    /// Sends a manifest or an index. Returns whether the registry lists the referrers of its subject.
    pub(crate) fn put_document(&self, version: &Version, media_type: &str, bytes: &[u8]) -> Result<bool> {
        let url = self.url(&format!("manifests/{version}"))?;
        let headers = [(CONTENT_TYPE, media_type.to_owned())];
        let mut answer =
            self.send(&url, |authorization| self.client.send(&Method::PUT, &url, &headers, authorization, bytes))?;
        match answer.status() {
            200..=202 => Ok(answer.response.headers().contains_key(OCI_SUBJECT)),
            _ => Err(self.unexpected(&url, &mut answer)),
        }
    }

    /// The referrers of a manifest; `None` if the registry does not support such lists.
    pub(crate) fn referrers(&self, digest: &Digest) -> Result<Option<Index>> {
        let url = self.url(&format!("referrers/{digest}"))?;
        let mut answer = self.get(&url, INDEX)?;
        match answer.status() {
            200 => {}
            // Registries without this part of the specification answer in various ways.
            400..=499 => return Ok(None),
            _ => return Err(self.unexpected(&url, &mut answer)),
        }
        let bytes = read(&mut answer, DOCUMENT_MAXIMUM_BYTES)?;
        match Document::parse(&bytes) {
            Ok(Document::Index(index)) => Ok(Some(index)),
            Ok(Document::Manifest(_)) => Err(answered(&url.to_string(), "expected an index, found a manifest")),
            Err(problem) => Err(answered(&url.to_string(), problem)),
        }
    }

    /// Whether the registry has a file already.
    pub(crate) fn has_blob(&self, digest: &Digest) -> Result<bool> {
        let url = self.url(&format!("blobs/{digest}"))?;
        let mut answer = self.send(&url, |authorization| self.client.head(&url, authorization))?;
        match answer.status() {
            200 => Ok(true),
            404 => Ok(false),
            _ => Err(self.unexpected(&url, &mut answer)),
        }
    }

    /// Requests the bytes of a file from `start` on. The answer may have any status.
    pub(crate) fn blob(&self, digest: &Digest, start: u64) -> Result<Answer> {
        let url = self.url(&format!("blobs/{digest}"))?;
        let range = (start > 0).then(|| (RANGE, format!("bytes={start}-")));
        self.send(&url, |authorization| self.client.get(&url, range.as_slice(), authorization))
    }

    /// Sends a file in one piece, so that the registry can digest it while it arrives.
    pub(crate) fn put_blob(&self, digest: &Digest, size: u64, content: &mut dyn Content) -> Result<()> {
        let mut answer = self.put_once(digest, size, content)?;
        // A token may expire between the upload request and the upload itself. A second upload request gets a new
        // token.
        if answer.status() == 401 {
            content.restart()?;
            answer = self.put_once(digest, size, content)?;
        }
        match answer.status() {
            201 | 204 => Ok(()),
            _ => Err(self.unexpected(&self.base, &mut answer)),
        }
    }

    /// Requests an upload URL for a file, and sends the file to it.
    fn put_once(&self, digest: &Digest, size: u64, content: &mut dyn Content) -> Result<Answer> {
        let url = self.url("blobs/uploads/")?;
        let ask = |authorization: Option<&str>| self.client.send(&Method::POST, &url, &[], authorization, &[] as &[u8]);
        let mut answer = self.send(&url, ask)?;
        if answer.status() != 202 {
            return Err(self.unexpected(&url, &mut answer));
        }
        let refused = |problem: String| answered(&url.to_string(), problem);
        let place = answer.header(LOCATION);
        let place = place.ok_or_else(|| refused("expected a place to send a file to, found none".into()))?;
        let place = url.join(place).and_then(|place| place.with_query(&[("digest", &digest.to_string())]));
        let place = place.map_err(|problem| refused(format!("the place to send a file to: {problem}")))?;
        check_encryption(&url, &place)?;
        let is_from_origin = place.origin() == self.base.origin();
        let authorization = self.authorization().filter(|_| is_from_origin);
        let mut headers =
            vec![(CONTENT_TYPE, "application/octet-stream".to_owned()), (CONTENT_LENGTH, size.to_string())];
        if size > SENT_UNASKED {
            headers.push((EXPECT, "100-continue".into()));
        }
        let content: &mut dyn Read = content;
        let body = SendBody::from_reader(content);
        let answer = self.client.send(&Method::PUT, &place, &headers, authorization.as_deref(), body)?;
        Ok(Answer { is_from_origin, ..answer })
    }

    /// Sends a request. If the registry asks for credentials, sends the request again with them.
    ///
    /// Another server that the registry redirects to may ask for credentials, too. It gets none: the password is for
    /// the registry.
    fn send(&self, url: &Address, request: impl Fn(Option<&str>) -> Result<Answer>) -> Result<Answer> {
        let once = || request(self.authorization().as_deref());
        let answer = once()?;
        if answer.status() != 401 || !answer.is_from_origin {
            return Ok(answer);
        }
        match self.authorize(url, &answer)? {
            true => once(),
            false => Ok(answer),
        }
    }

    /// The error for an answer of an unexpected status.
    pub(crate) fn unexpected(&self, url: &Address, answer: &mut Answer) -> Error {
        #[derive(Deserialize)]
        struct Problems {
            errors: Vec<Problem>,
        }
        #[derive(Deserialize)]
        struct Problem {
            code: String,
            #[serde(default)]
            message: String,
        }
        let (status, url) = (answer.status(), url.to_string());
        if matches!(status, 401 | 403) && !answer.is_from_origin {
            return Error::LoginElsewhere { url, to: answer.address.to_string(), status };
        }
        if matches!(status, 401 | 403) {
            let has_login = self.login.get().is_some_and(|login| *login != Login::Anonymous);
            return Error::Refused { url, status, has_login };
        }
        let body = read(answer, 1 << 14).unwrap_or_default();
        let problem = serde_json::from_slice::<Problems>(&body).ok().and_then(|said| said.errors.into_iter().next());
        let said = match problem {
            Some(Problem { code, message }) => format!(" ({code}: {message})"),
            // The answer to HEAD has no text.
            None if body.is_empty() && status == 400 && !self.base.is_encrypted() => " (it may expect HTTPS)".into(),
            None => quoted(&body),
        };
        match status {
            429 | 500..=599 => Error::Unreachable { url, reason: format!("it answered {status}{said}") },
            _ => answered(&url, format!("the registry answered {status}{said}")),
        }
    }
}

fn answered(url: &str, problem: impl Into<String>) -> Error {
    Error::Answer { url: url.to_owned(), problem: problem.into() }
}

/// The whole body of an answer, which has at most `most` bytes.
pub(crate) fn read(answer: &mut Answer, most: u64) -> Result<Vec<u8>> {
    let (mut bytes, url) = (Vec::new(), answer.address.to_string());
    let body: &mut Body = answer.response.body_mut();
    let read = body.as_reader().take(most + 1).read_to_end(&mut bytes);
    read.map_err(|error| Error::Unreachable { url: url.clone(), reason: error.to_string() })?;
    if bytes.len() as u64 > most {
        return Err(answered(&url, format!("expected at most {most} bytes, found more")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::system::folder_of;

    #[test]
    fn other_machines_are_asked_with_encryption_unless_it_is_switched_off() {
        let certificates = tempfile::tempdir().unwrap();
        fs::create_dir(certificates.path().join(folder_of("127.0.0.1:5001"))).unwrap();
        let authorities = Authorities { folders: vec![certificates.path().to_owned()] };
        let base = |text: &str, plain_http| {
            let reference = text.parse().unwrap();
            let registry =
                Registry::new(&reference, Purpose::Pull, Credentials::default(), &authorities, plain_http).unwrap();
            registry.base.to_string()
        };
        // If authorities are configured for a registry on this machine, its connection is encrypted, too.
        assert_eq!(base("oci://127.0.0.1:5001/a", false), "https://127.0.0.1:5001/v2/a/");
        assert_eq!(base("oci://127.0.0.1:5001/a", true), "http://127.0.0.1:5001/v2/a/");
        assert_eq!(base("oci://127.0.0.1:5000/a", false), "http://127.0.0.1:5000/v2/a/");
        assert_eq!(base("oci://10.0.0.1:5000/a", true), "http://10.0.0.1:5000/v2/a/");
        assert_eq!(base("oci://10.0.0.1:5000/a", false), "https://10.0.0.1:5000/v2/a/");
        assert_eq!(base("oci://docker.io/a/b", false), "https://registry-1.docker.io/v2/a/b/");
    }
}
