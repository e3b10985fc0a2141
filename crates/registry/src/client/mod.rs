//! The connection to one repository of a registry, by the OCI distribution specification 1.1.

mod authorization;

use std::io::{Cursor, Read};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use serde::Deserialize;
use ureq::http::header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HeaderName, LOCATION, RANGE};
use ureq::http::{Response, Uri};
use ureq::{Agent, Body, SendBody};

use crate::authorities::Authorities;
use crate::credentials::{Credentials, Login, is_docker_hub};
use crate::document::{DOCUMENT_MAXIMUM_BYTES, Digest, Document, INDEX, Index, MANIFEST};
use crate::error::{Error, Result};
use crate::http;
use crate::reason::{failed, quoted};
use crate::reference::{Reference, Version};

/// How long a registry may send nothing.
const PATIENCE: Duration = Duration::from_secs(60);
/// The header by which a registry says that it lists what refers to a manifest.
const OCI_SUBJECT: HeaderName = HeaderName::from_static("oci-subject");
/// A registry is asked whether it takes a file of more bytes before they are sent. It may want another token, and
/// servers that refuse cut the connection after as many (Go's `net/http`), so that their answer is lost.
const SENT_UNASKED: u64 = 256 << 10;

/// What is done with a repository. Token servers ask.
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
    agent: Agent,
    /// `https://HOST`, or `http://HOST`.
    base: String,
    encrypted: bool,
    /// Whether a server could be trusted, where one has to be.
    has_certificates: bool,
    credentials: Credentials,
    /// Asked for when the registry asks.
    login: OnceLock<Login>,
    /// The value of the header that the registry wants, once it is known.
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
    /// Prepares the connection; nothing is sent yet. `plain_http`: without encryption, which is otherwise for this
    /// machine alone, and there only as long as no authorities are named for the registry.
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
        let base = format!("{}://{host}", if encrypted { "https" } else { "http" });
        let mut certificates = authorities.unwrap_or_default();
        if encrypted {
            certificates.extend(http::system_certificates());
        }
        Ok(Self {
            has_certificates: !encrypted || !certificates.is_empty(),
            agent: http::agent(PATIENCE, certificates, encrypted),
            login: OnceLock::new(),
            authorization: Mutex::default(),
            reference: reference.clone(),
            credentials,
            purpose,
            encrypted,
            base,
        })
    }

    /// What it was opened with.
    pub fn reference(&self) -> &Reference {
        &self.reference
    }

    /// How the manifest of this digest is called in messages.
    pub(crate) fn reference_of(&self, digest: &Digest) -> String {
        self.reference.at(digest).to_string()
    }

    fn url(&self, rest: &str) -> String {
        format!("{}/v2/{}/{rest}", self.base, self.reference.name())
    }

    /// The manifest or index of a version, with its digest. Bytes of another digest than was asked for are refused.
    pub(crate) fn document(&self, version: &Version) -> Result<(Vec<u8>, Digest)> {
        self.optional_document(version)?.ok_or_else(|| {
            let reference = match version {
                Version::Tag(tag) => {
                    format!("{}{}/{}:{tag}", Reference::SCHEME, self.reference.host(), self.reference.name())
                }
                Version::Digest(digest) => self.reference_of(digest),
            };
            Error::NotThere { reference }
        })
    }

    /// As [`Registry::document`]; `None` if the registry has nothing of this name.
    pub(crate) fn optional_document(&self, version: &Version) -> Result<Option<(Vec<u8>, Digest)>> {
        let url = self.url(&format!("manifests/{version}"));
        let mut answer = self.send(&url, |agent, authorization| {
            let request = agent.get(&url).header(ACCEPT, format!("{MANIFEST}, {INDEX}"));
            with(request, authorization).call()
        })?;
        match answer.status().as_u16() {
            200 => {}
            404 => return Ok(None),
            _ => return Err(self.unexpected(&url, &mut answer)),
        }
        let bytes = read(&mut answer, DOCUMENT_MAXIMUM_BYTES, &url)?;
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

    /// What is wrong with the document of this digest.
    pub(crate) fn broken(&self, digest: &Digest, problem: impl Into<String>) -> Error {
        Error::Document { reference: self.reference_of(digest), problem: problem.into() }
    }

    /// Sends a manifest or an index. Returns whether the registry lists what refers to its subject.
    pub(crate) fn put_document(&self, version: &Version, media_type: &str, bytes: &[u8]) -> Result<bool> {
        let url = self.url(&format!("manifests/{version}"));
        let mut answer = self.send(&url, |agent, authorization| {
            with(agent.put(&url).header(CONTENT_TYPE, media_type), authorization).send(bytes)
        })?;
        match answer.status().as_u16() {
            200..=202 => Ok(answer.headers().contains_key(OCI_SUBJECT)),
            _ => Err(self.unexpected(&url, &mut answer)),
        }
    }

    /// What refers to a manifest; `None` if the registry does not know such lists.
    pub(crate) fn referrers(&self, digest: &Digest) -> Result<Option<Index>> {
        let url = self.url(&format!("referrers/{digest}"));
        let mut answer =
            self.send(&url, |agent, authorization| with(agent.get(&url).header(ACCEPT, INDEX), authorization).call())?;
        match answer.status().as_u16() {
            200 => {}
            // Registries without this part of the specification answer in various ways.
            400..=499 => return Ok(None),
            _ => return Err(self.unexpected(&url, &mut answer)),
        }
        let bytes = read(&mut answer, DOCUMENT_MAXIMUM_BYTES, &url)?;
        match Document::parse(&bytes) {
            Ok(Document::Index(index)) => Ok(Some(index)),
            Ok(Document::Manifest(_)) => Err(answered(&url, "expected an index, found a manifest")),
            Err(problem) => Err(answered(&url, problem)),
        }
    }

    /// Whether the registry has a file already.
    pub(crate) fn has_blob(&self, digest: &Digest) -> Result<bool> {
        let url = self.url(&format!("blobs/{digest}"));
        let mut answer = self.send(&url, |agent, authorization| with(agent.head(&url), authorization).call())?;
        match answer.status().as_u16() {
            200 => Ok(true),
            404 => Ok(false),
            _ => Err(self.unexpected(&url, &mut answer)),
        }
    }

    /// Asks for the bytes of a file from `start` on. The answer may have any status.
    pub(crate) fn blob(&self, digest: &Digest, start: u64) -> Result<Response<Body>> {
        let url = self.url(&format!("blobs/{digest}"));
        self.send(&url, |agent, authorization| {
            let request = agent.get(&url);
            let request = if start > 0 { request.header(RANGE, format!("bytes={start}-")) } else { request };
            with(request, authorization).call()
        })
    }

    /// Sends a file in one piece, so that registries digest it while it comes.
    pub(crate) fn put_blob(&self, digest: &Digest, size: u64, content: &mut dyn Content) -> Result<()> {
        let (mut url, mut answer) = self.put_once(digest, size, content)?;
        // A token may expire between the request for a place and the file. A second request for a place gets another.
        if answer.status().as_u16() == 401 {
            content.restart()?;
            (url, answer) = self.put_once(digest, size, content)?;
        }
        match answer.status().as_u16() {
            201 | 204 => Ok(()),
            _ => Err(self.unexpected(&url, &mut answer)),
        }
    }

    /// Asks for a place for a file, and sends the file there. Returns the answer, and the address that was asked.
    fn put_once(&self, digest: &Digest, size: u64, content: &mut dyn Content) -> Result<(String, Response<Body>)> {
        let url = self.url("blobs/uploads/");
        let mut answer = self.send(&url, |agent, authorization| with(agent.post(&url), authorization).send_empty())?;
        if answer.status().as_u16() != 202 {
            return Err(self.unexpected(&url, &mut answer));
        }
        let place = answer.headers().get(LOCATION).and_then(|place| place.to_str().ok());
        let place = place.ok_or_else(|| answered(&url, "expected a place to send a file to, found none"))?;
        let place = if place.starts_with('/') { format!("{}{place}", self.base) } else { place.to_owned() };
        let mark = if place.contains('?') { '&' } else { '?' };
        let target = format!("{place}{mark}digest={digest}");
        let authorization = if same_origin(&target, &self.base) { self.authorization() } else { None };
        let request = self.agent.put(&target).header(CONTENT_TYPE, "application/octet-stream");
        let request = with(request.header(CONTENT_LENGTH, size), authorization.as_deref());
        let request = if size > SENT_UNASKED { request.header(EXPECT, "100-continue") } else { request };
        let content: &mut dyn Read = content;
        match request.send(SendBody::from_reader(content)) {
            Ok(answer) => Ok((url, answer)),
            Err(error) => Err(failed(&url, &error)),
        }
    }

    /// Sends a request, and sends it again with what the registry wants to know of the user, if it asks.
    fn send(
        &self,
        url: &str,
        request: impl Fn(&Agent, Option<&str>) -> Result<Response<Body>, ureq::Error>,
    ) -> Result<Response<Body>> {
        if !self.has_certificates {
            return Err(Error::NoCertificates { url: url.to_owned() });
        }
        let once = || request(&self.agent, self.authorization().as_deref()).map_err(|error| failed(url, &error));
        let answer = once()?;
        if answer.status().as_u16() != 401 {
            return Ok(answer);
        }
        match self.authorize(url, &answer)? {
            true => once(),
            false => Ok(answer),
        }
    }

    /// What is wrong with an answer of a status that was not expected.
    pub(crate) fn unexpected(&self, url: &str, answer: &mut Response<Body>) -> Error {
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
        let status = answer.status().as_u16();
        if matches!(status, 401 | 403) {
            let has_login = self.login.get().is_some_and(|login| *login != Login::Anonymous);
            return Error::Refused { url: url.to_owned(), status, has_login };
        }
        let body = read(answer, 1 << 14, url).unwrap_or_default();
        let problem = serde_json::from_slice::<Problems>(&body).ok().and_then(|said| said.errors.into_iter().next());
        let said = match problem {
            Some(Problem { code, message }) => format!(" ({code}: {message})"),
            // The answer to HEAD has no text.
            None if body.is_empty() && status == 400 && !self.encrypted => " (it may expect HTTPS)".into(),
            None => quoted(&body),
        };
        match status {
            429 | 500..=599 => {
                Error::Unreachable { url: url.to_owned(), reason: format!("it answered {status}{said}") }
            }
            _ => answered(url, format!("the registry answered {status}{said}")),
        }
    }
}

fn with<B>(request: ureq::RequestBuilder<B>, authorization: Option<&str>) -> ureq::RequestBuilder<B> {
    match authorization {
        Some(value) => request.header(AUTHORIZATION, value),
        None => request,
    }
}

fn answered(url: &str, problem: impl Into<String>) -> Error {
    Error::Answer { url: url.to_owned(), problem: problem.into() }
}

/// Whether two addresses are on one server. Passwords and tokens are for that one alone.
fn same_origin(one: &str, other: &str) -> bool {
    let origin = |text: &str| {
        let uri = text.parse::<Uri>().ok()?;
        Some((uri.scheme_str()?.to_owned(), uri.authority()?.as_str().to_owned()))
    };
    origin(one).is_some() && origin(one) == origin(other)
}

/// The whole body of an answer, which has at most `most` bytes.
pub(crate) fn read(answer: &mut Response<Body>, most: u64, url: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = answer.body_mut().as_reader().take(most + 1).read_to_end(&mut bytes);
    read.map_err(|error| Error::Unreachable { url: url.to_owned(), reason: error.to_string() })?;
    if bytes.len() as u64 > most {
        return Err(answered(url, format!("expected at most {most} bytes, found more")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_password_is_for_one_server_alone() {
        let base = "https://example.org:5000";
        assert!(same_origin("https://example.org:5000/v2/a?b", base));
        for other in ["https://example.org/v2", "http://example.org:5000/v2", "https://example.org.evil:5000", "/v2"] {
            assert!(!same_origin(other, base), "{other}");
        }
    }

    #[test]
    fn other_machines_are_asked_with_encryption_unless_it_is_switched_off() {
        let certificates = tempfile::tempdir().unwrap();
        fs::create_dir(certificates.path().join("127.0.0.1:5001")).unwrap();
        let authorities = Authorities { folders: vec![certificates.path().to_owned()] };
        let base = |text: &str, plain_http| {
            let reference = text.parse().unwrap();
            Registry::new(&reference, Purpose::Pull, Credentials::default(), &authorities, plain_http).unwrap().base
        };
        // Who names authorities for a registry on this machine wants encryption there, too.
        assert_eq!(base("oci://127.0.0.1:5001/a", false), "https://127.0.0.1:5001");
        assert_eq!(base("oci://127.0.0.1:5001/a", true), "http://127.0.0.1:5001");
        assert_eq!(base("oci://127.0.0.1:5000/a", false), "http://127.0.0.1:5000");
        assert_eq!(base("oci://10.0.0.1:5000/a", true), "http://10.0.0.1:5000");
        assert_eq!(base("oci://10.0.0.1:5000/a", false), "https://10.0.0.1:5000");
        assert_eq!(base("oci://docker.io/a/b", false), "https://registry-1.docker.io");
    }
}
