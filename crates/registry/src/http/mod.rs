//! The HTTP client for all downloads and uploads.
//!
//! This module follows redirects itself, so that it knows which server answers. A password goes only to the first
//! server, a challenge of another server is ignored, and an encrypted request is never redirected to an unencrypted
//! address.

mod address;

use std::sync::Arc;
use std::time::Duration;

use ureq::http::header::{AUTHORIZATION, HeaderName, LOCATION};
use ureq::http::{Method, Request, Response};
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};
use ureq::{Agent, AsSendBody, Body};

pub use address::{Address, Origin};

pub(crate) use address::form;

use crate::error::{Error, Result};
use crate::reason::failed;

/// Bytes that are sent or received at once.
pub(crate) const CHUNK: usize = 1 << 18;
/// The maximum number of redirects, as in other clients.
const REDIRECTS_MAXIMUM: usize = 10;

/// The certificates of the authorities that this system trusts, so that downloads work behind a company's proxy.
pub fn system_certificates() -> Vec<Certificate<'static>> {
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::warn!("the system's certificates: {error}");
    }
    found.certs.iter().map(|certificate| Certificate::from_der(certificate).to_owned()).collect()
}

/// A client for one server, and for the servers that it redirects to.
#[derive(Clone, Debug)]
pub struct Client {
    agent: Agent,
    /// Whether there are certificates to verify a server with.
    has_certificates: bool,
}

/// An answer, and its origin.
#[derive(Debug)]
pub struct Answer {
    /// The answer, whatever its status.
    pub response: Response<Body>,
    /// The address that gave the answer.
    pub address: Address,
    /// Whether the answer came from the first server, without redirects through another one.
    pub is_from_origin: bool,
}

impl Answer {
    /// The HTTP status.
    pub fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    /// The value of a header; `None` also for one that is not ASCII.
    pub fn header(&self, name: HeaderName) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }
}

impl Client {
    /// A client that trusts these certificates. If a server sends nothing for `patience`, the connection counts as
    /// cut.
    pub fn new(patience: Duration, certificates: Vec<Certificate<'static>>) -> Self {
        let has_certificates = !certificates.is_empty();
        let tls = TlsConfig::builder()
            .provider(TlsProvider::Rustls)
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .root_certs(RootCerts::Specific(Arc::new(certificates)))
            .build();
        let agent = Agent::config_builder()
            .tls_config(tls)
            .max_redirects(0)
            .timeout_connect(Some(patience))
            .timeout_per_read(Some(patience))
            .timeout_per_write(Some(patience))
            .http_status_as_error(false)
            .input_buffer_size(CHUNK)
            .output_buffer_size(CHUNK)
            .user_agent(concat!("tileforge/", env!("CARGO_PKG_VERSION")))
            .build()
            .into();
        Self { agent, has_certificates }
    }

    /// Sends a GET request, and follows redirects. `authorization` is sent only to the server at `address`.
    ///
    /// # Errors
    /// A server cannot be reached or trusted, or it redirects to an unencrypted address, in circles, or to an invalid
    /// address.
    pub fn get(
        &self,
        address: &Address,
        headers: &[(HeaderName, String)],
        authorization: Option<&str>,
    ) -> Result<Answer> {
        self.follow(&Method::GET, address, headers, authorization)
    }

    /// As [`Client::get`], for the headers only.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn head(&self, address: &Address, authorization: Option<&str>) -> Result<Answer> {
        self.follow(&Method::HEAD, address, &[], authorization)
    }

    fn follow(
        &self,
        method: &Method,
        address: &Address,
        headers: &[(HeaderName, String)],
        authorization: Option<&str>,
    ) -> Result<Answer> {
        let (mut here, mut is_from_origin) = (address.clone(), true);
        for _ in 0..=REDIRECTS_MAXIMUM {
            let secret = authorization.filter(|_| is_from_origin);
            let response = self.ask(method, &here, headers, secret, ())?;
            let answer = Answer { response, address: here.clone(), is_from_origin };
            if !matches!(answer.status(), 301 | 302 | 303 | 307 | 308) {
                return Ok(answer);
            }
            let refused = |problem: String| Error::Answer { url: here.to_string(), problem };
            let location = answer.header(LOCATION);
            let location =
                location.ok_or_else(|| refused("it answered with a redirect without a Location header".into()))?;
            let next = here.join(location).map_err(|problem| refused(format!("it sends its clients on: {problem}")))?;
            check_encryption(&here, &next)?;
            // If another server redirects back to the first one, the first one does not get the password again.
            is_from_origin &= next.origin() == address.origin();
            here = next;
        }
        let problem = format!("expected an answer, was sent on more than {REDIRECTS_MAXIMUM} times");
        Err(Error::Answer { url: address.to_string(), problem })
    }

    /// Sends a request to an address, and follows no redirects.
    ///
    /// # Errors
    /// The server cannot be reached or trusted.
    pub(crate) fn send(
        &self,
        method: &Method,
        address: &Address,
        headers: &[(HeaderName, String)],
        authorization: Option<&str>,
        body: impl AsSendBody,
    ) -> Result<Answer> {
        let response = self.ask(method, address, headers, authorization, body)?;
        Ok(Answer { response, address: address.clone(), is_from_origin: true })
    }

    fn ask(
        &self,
        method: &Method,
        address: &Address,
        headers: &[(HeaderName, String)],
        authorization: Option<&str>,
        body: impl AsSendBody,
    ) -> Result<Response<Body>> {
        if address.is_encrypted() && !self.has_certificates {
            return Err(Error::NoCertificates { url: address.to_string() });
        }
        let mut request = Request::builder().method(method).uri(address.uri());
        for (name, value) in headers {
            request = request.header(name, value);
        }
        if let Some(value) = authorization {
            request = request.header(AUTHORIZATION, value);
        }
        let request = request.body(body).map_err(ureq::Error::from);
        let url = || address.to_string();
        request.and_then(|request| self.agent.run(request)).map_err(|error| failed(&url(), &error))
    }
}

/// Checks that an encrypted server does not redirect to an unencrypted one.
pub(crate) fn check_encryption(from: &Address, to: &Address) -> Result<()> {
    if from.is_encrypted() && !to.is_encrypted() {
        return Err(Error::Downgrade { url: from.to_string(), to: to.to_string() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encrypted_stays_encrypted_and_trusts_a_certificate() {
        let address = |text: &str| Address::parse(text).unwrap();
        let (plain, encrypted) = (address("http://127.0.0.1:1/a"), address("https://127.0.0.1:1/a"));
        for (from, to, allowed) in [
            (&plain, &plain, true),
            (&plain, &encrypted, true),
            (&encrypted, &encrypted, true),
            (&encrypted, &plain, false),
        ] {
            assert_eq!(check_encryption(from, to).is_ok(), allowed, "{from} {to}");
        }
        let client = Client::new(Duration::from_secs(1), Vec::new());
        assert!(matches!(client.get(&encrypted, &[], None), Err(Error::NoCertificates { .. })));
        assert!(matches!(client.get(&plain, &[], None), Err(Error::Unreachable { .. })));
    }
}
