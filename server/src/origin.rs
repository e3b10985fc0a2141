//! Checks which web pages may send requests.
//!
//! A browser sends the requests of any web page, also to this machine. Two checks keep other pages out: `Origin` has
//! to be the server itself, and on a loopback address without keys, `Host` has to be a name of this machine. The
//! second check stops pages whose name resolves to this machine (DNS rebinding).

use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, Uri, header};

use crate::failure::{Failure, FailureKind, Result};

/// Which names a client may call the server by.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    /// The server listens on a loopback address.
    is_local: bool,
    /// More names that are allowed there.
    more: Vec<String>,
}

impl Names {
    pub(crate) fn new(address: Option<SocketAddr>, more: Vec<String>) -> Self {
        let is_local = address.is_some_and(|address| address.ip().is_loopback());
        Self { is_local, more }
    }

    /// Refuses requests of other pages. `has_keys`: the client has shown a key, which no other page knows.
    pub(crate) fn check(&self, headers: &HeaderMap, has_keys: bool) -> Result<()> {
        let text = |name| headers.get(name).map(|value: &http::HeaderValue| value.to_str().unwrap_or("?"));
        let host = text(header::HOST);
        if let Some(origin) = text(header::ORIGIN) {
            let own = origin.split_once("://").map(|(_, authority)| authority);
            if own.is_none() || host.is_none() || own != host {
                return Err(refused("the request comes from another web page: its Origin is not this server"));
            }
        }
        match host {
            Some(host) if self.is_local && !has_keys && !self.is_known(host) => {
                Err(refused("expected a name of this machine as Host; --allow-host adds names"))
            }
            _ => Ok(()),
        }
    }

    fn is_known(&self, host: &str) -> bool {
        let Ok(uri) = format!("http://{host}/").parse::<Uri>() else { return false };
        let Some(name) = uri.host() else { return false };
        let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        address.is_ok_and(|address| address.is_loopback())
            || name.eq_ignore_ascii_case("localhost")
            || name.to_ascii_lowercase().ends_with(".localhost")
            || self.more.iter().any(|more| more.eq_ignore_ascii_case(name))
    }
}

fn refused(message: &str) -> Failure {
    Failure::new(FailureKind::Forbidden, message)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test's way to fail

    use super::*;

    fn allowed(names: &Names, host: &str, origin: Option<&str>) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().unwrap());
        }
        names.check(&headers, false).is_ok()
    }

    #[test]
    fn other_pages_and_other_names_are_refused() {
        let local = Names::new("127.0.0.1:8000".parse().ok(), vec!["pictures.example".into()]);
        let open = Names::new("0.0.0.0:8000".parse().ok(), vec![]);
        for host in ["127.0.0.1:8000", "localhost:8000", "LOCALHOST", "[::1]:8000", "a.localhost", "127.9.9.9"] {
            assert!(allowed(&local, host, None) && allowed(&local, host, Some(&format!("http://{host}"))), "{host}");
        }
        assert!(allowed(&local, "pictures.example", None));
        for host in
            ["evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", "a@localhost b", ""]
        {
            assert!(!allowed(&local, host, None), "{host}");
        }
        assert!(allowed(&open, "any.example", None) && allowed(&open, "any.example", Some("https://any.example")));
        for origin in ["null", "http://evil.example", "http://localhost:9000", "file://", "http://localhost:8000/"] {
            assert!(!allowed(&local, "localhost:8000", Some(origin)), "{origin}");
            assert!(!allowed(&open, "localhost:8000", Some(origin)), "{origin}");
        }
        // With keys, the name is not checked.
        let headers = [(header::HOST, "any.example".parse().unwrap())].into_iter().collect();
        assert!(local.check(&headers, true).is_ok());
        assert!(local.check(&HeaderMap::new(), false).is_ok());
    }
}
