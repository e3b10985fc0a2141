//! References to engines: `oci://HOST[:PORT]/NAME[:TAG][@sha256:…]`.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use crate::document::Digest;
use crate::error::{Error, Result};

/// The longest name of a repository.
const NAME_MAXIMUM: usize = 255;
/// The longest tag.
const TAG_MAXIMUM: usize = 128;

/// A reference to engines in a registry, by the rules of the OCI distribution specification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    host: String,
    name: String,
    version: Version,
}

/// A version of a repository's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Version {
    /// The version that currently has this tag.
    Tag(String),
    /// The version of this digest, which never changes.
    Digest(Digest),
}

impl fmt::Display for Version {
    /// The form in requests.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tag(tag) => formatter.write_str(tag),
            Self::Digest(digest) => digest.fmt(formatter),
        }
    }
}

impl Reference {
    /// The prefix of references.
    pub const SCHEME: &str = "oci://";

    /// The registry's host, with a port if it has one.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The repository's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The tag or the digest; `latest` where none was given.
    pub fn version(&self) -> &Version {
        &self.version
    }

    /// The same repository at the version of a digest.
    #[must_use]
    pub fn at(&self, digest: &Digest) -> Self {
        Self { version: Version::Digest(digest.clone()), ..self.clone() }
    }

    /// Whether the host is this machine.
    pub fn is_loopback(&self) -> bool {
        is_loopback(host_without_port(&self.host))
    }
}

/// Whether a host, without a port, is this machine.
pub(crate) fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// The host without `:PORT`.
fn host_without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !host.is_empty() => host,
        _ => host,
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, name, version } = self;
        let mark = if matches!(version, Version::Tag(_)) { ':' } else { '@' };
        write!(formatter, "{}{host}/{name}{mark}{version}", Self::SCHEME)
    }
}

impl FromStr for Reference {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refused = |problem: &str| Error::Reference { text: text.to_owned(), problem: problem.to_owned() };
        let rest = text.strip_prefix(Self::SCHEME).ok_or_else(|| refused("it does not begin with oci://"))?;
        let (host, path) = rest.split_once('/').ok_or_else(|| refused("there is no name behind the host"))?;
        if !is_host(host) {
            return Err(refused("the host is not a host name or an address, with a port or without one"));
        }
        let (path, digest) = match path.split_once('@') {
            None => (path, None),
            Some((path, digest)) => {
                let digest = digest.parse().map_err(|_| refused("the digest is not sha256: and 64 hexadecimal digits"));
                (path, Some(digest?))
            }
        };
        let (name, tag) = path.split_once(':').map_or((path, None), |(name, tag)| (name, Some(tag)));
        if !is_name(name) {
            return Err(refused(
                "the name may have lower-case letters, digits, and between them `.`, `_`, `__`, `-` and `/`",
            ));
        }
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(refused("the tag may have letters, digits, `_`, `.` and `-`, and 128 of them at most"));
        }
        let version = match digest {
            Some(digest) => Version::Digest(digest),
            None => Version::Tag(tag.unwrap_or("latest").to_owned()),
        };
        Ok(Self { host: host.to_owned(), name: name.to_owned(), version })
    }
}

fn is_host(host: &str) -> bool {
    let name = host_without_port(host);
    if let Some(address) = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return address.parse::<Ipv6Addr>().is_ok();
    }
    let is_label = |label: &str| {
        !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    name.split('.').all(is_label)
}

fn is_name(name: &str) -> bool {
    let is_separator = |text: &str| text == "." || text == "_" || text == "__" || text.bytes().all(|byte| byte == b'-');
    let is_part = |part: &str| {
        let letters = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let bounds = part.bytes().next().is_some_and(letters) && part.bytes().last().is_some_and(letters);
        let mut between = part.split(|sign: char| sign.is_ascii_lowercase() || sign.is_ascii_digit());
        bounds && between.all(|text| text.is_empty() || is_separator(text))
    };
    name.len() <= NAME_MAXIMUM && name.split('/').all(is_part)
}

pub(crate) fn is_tag(tag: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    tag.len() <= TAG_MAXIMUM
        && tag.bytes().next().is_some_and(is_word)
        && tag.bytes().all(|byte| is_word(byte) || byte == b'.' || byte == b'-')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<Reference, String> {
        text.parse().map_err(|error: Error| error.to_string())
    }

    #[test]
    fn a_reference_names_host_repository_and_version() {
        let digest = format!("sha256:{}", "0".repeat(64));
        for (text, host, name, version) in [
            ("oci://ghcr.io/someone/x4plus:1.0", "ghcr.io", "someone/x4plus", "1.0"),
            ("oci://localhost:5000/x4plus", "localhost:5000", "x4plus", "latest"),
            ("oci://[::1]:5000/a/b/c:v-1_2.3", "[::1]:5000", "a/b/c", "v-1_2.3"),
            (&format!("oci://127.0.0.1/a__b--c.d@{digest}"), "127.0.0.1", "a__b--c.d", &digest),
            (&format!("oci://127.0.0.1/a:1@{digest}"), "127.0.0.1", "a", &digest),
        ] {
            let reference = parse(text).unwrap();
            assert_eq!((reference.host(), reference.name(), &*reference.version().to_string()), (host, name, version));
        }
        assert_eq!(parse("oci://ghcr.io/a").unwrap().to_string(), "oci://ghcr.io/a:latest");
    }

    #[test]
    fn what_is_wrong_with_a_reference_is_said() {
        for (text, words) in [
            ("ghcr.io/a", "does not begin with oci://"),
            ("oci://ghcr.io", "no name"),
            ("oci:///a", "the host"),
            ("oci://user@ghcr.io/a", "the host"),
            ("oci://a b/c", "the host"),
            ("oci://ghcr.io/", "the name"),
            ("oci://ghcr.io/A", "the name"),
            ("oci://ghcr.io/a/../b", "the name"),
            ("oci://ghcr.io/a//b", "the name"),
            ("oci://ghcr.io/a?x", "the name"),
            ("oci://ghcr.io/-a", "the name"),
            ("oci://ghcr.io/a:", "the tag"),
            ("oci://ghcr.io/a:-1", "the tag"),
            ("oci://ghcr.io/a@sha256:0", "the digest"),
            ("oci://ghcr.io/a@md5:0", "the digest"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(words) && error.contains(text), "{error}");
        }
    }

    #[test]
    fn loopback_is_this_machine_alone() {
        let is_loopback = |host: &str| parse(&format!("oci://{host}/a")).unwrap().is_loopback();
        assert!(
            ["localhost", "localhost:5000", "127.0.0.1:1", "127.8.8.8", "[::1]", "[::1]:80"]
                .into_iter()
                .all(is_loopback)
        );
        assert!(!["localhost.example.org", "127.0.0.1.example.org", "10.0.0.1", "[::2]"].into_iter().any(is_loopback));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic_and_what_it_takes_is_written_the_same(text in "oci://[a-zA-Z0-9:/@._\\[\\]-]{0,40}") {
            if let Ok(reference) = text.parse::<Reference>() {
                prop_assert_eq!(reference.to_string().parse::<Reference>().unwrap(), reference);
            }
        }
    }
}
