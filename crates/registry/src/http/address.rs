//! Addresses from a user or a server.

use std::fmt;

use ureq::http::Uri;

/// An HTTP or HTTPS address. Its text form omits a user's name and password.
#[derive(Clone, PartialEq, Eq)]
pub struct Address(Uri);

/// The origin of an address: scheme, host in lower case, and port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    is_encrypted: bool,
    host: String,
    port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_encrypted() { "https" } else { "http" };
        let authority = self.0.authority().map_or("", |authority| authority.as_str());
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let path = self.0.path_and_query().map_or("/", |path| path.as_str());
        write!(formatter, "{scheme}://{host}{path}")
    }
}

/// Passwords do not get into logs.
impl fmt::Debug for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl Address {
    /// Reads an address that a user gives.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.split('#').next().unwrap_or_default();
        let wrong = |problem: &str| format!("expected an address of HTTP or HTTPS, found {problem}");
        let uri: Uri = text.parse().map_err(|error| wrong(&format!("something else ({error})")))?;
        let is_known = |scheme: &str| ["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
        if !uri.scheme_str().is_some_and(is_known) {
            return Err(wrong("one of something else"));
        }
        if uri.host().is_none_or(str::is_empty) {
            return Err(wrong("one without a host"));
        }
        // The parser accepts any number as a port, and then reports no port.
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        let port = authority.rsplit_once(']').map_or(authority, |(_, rest)| rest).rsplit_once(':');
        if uri.port_u16().is_none() && port.is_some_and(|(_, port)| !port.contains('@')) {
            return Err(wrong("one with a port that is none"));
        }
        Ok(Self(uri))
    }

    /// Reads an address from a server, without a name and a password: no server decides the user's identity.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn named(text: &str) -> Result<Self, String> {
        let address = Self::parse(text)?;
        if address.0.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err("expected an address without a name and a password, found one with them".into());
        }
        Ok(address)
    }

    /// The address that a server at this address names, perhaps by a path alone (RFC 3986, section 5.2).
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn join(&self, location: &str) -> Result<Self, String> {
        let location = location.split('#').next().unwrap_or_default();
        let scheme = if self.is_encrypted() { "https" } else { "http" };
        let authority = self.0.authority().map_or("", |authority| authority.as_str());
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let has_scheme = location.split_once(':').is_some_and(|(before, _)| {
            before.starts_with(|first: char| first.is_ascii_alphabetic())
                && before.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
        });
        let path = self.0.path();
        Self::named(&if has_scheme {
            location.to_owned()
        } else if location.starts_with("//") {
            format!("{scheme}:{location}")
        } else if location.starts_with('/') {
            format!("{scheme}://{host}{location}")
        } else if location.is_empty() {
            self.to_string()
        } else if location.starts_with('?') {
            format!("{scheme}://{host}{path}{location}")
        } else {
            let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
            format!("{scheme}://{host}{folder}/{location}")
        })
    }

    /// The same address with these names and values appended to its query.
    ///
    /// # Errors
    /// The address gets too long.
    pub fn with_query(&self, pairs: &[(&str, &str)]) -> Result<Self, String> {
        let mark = if self.0.query().is_some() { '&' } else { '?' };
        Self::parse(&format!("{self}{mark}{}", form(pairs)))
    }

    /// Its origin.
    pub fn origin(&self) -> Origin {
        let is_encrypted = self.is_encrypted();
        let host = self.0.host().unwrap_or_default().to_ascii_lowercase();
        Origin { is_encrypted, host, port: self.0.port_u16().unwrap_or(if is_encrypted { 443 } else { 80 }) }
    }

    /// Whether the connection is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.0.scheme_str().is_some_and(|scheme| scheme.eq_ignore_ascii_case("https"))
    }

    pub(crate) fn host(&self) -> &str {
        self.0.host().unwrap_or_default()
    }

    pub(super) fn uri(&self) -> &Uri {
        &self.0
    }
}

/// Names and values in the encoding of forms and queries (`application/x-www-form-urlencoded`).
pub(crate) fn form(pairs: &[(&str, &str)]) -> String {
    let encoded = |text: &str| {
        text.bytes().fold(String::new(), |mut encoded, byte| {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                encoded.push(char::from(byte));
            } else {
                encoded.push_str(&format!("%{byte:02X}"));
            }
            encoded
        })
    };
    pairs.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_a_scheme_makes_a_location_absolute() {
        let here = Address::parse("https://example.org:5000/v2/a?b").unwrap();
        assert_eq!(here.host(), "example.org");
        for (location, expected) in [
            ("http://other/c", "http://other/c"),
            ("1a:b", "https://example.org:5000/v2/1a:b"),
            ("a_b:c", "https://example.org:5000/v2/a_b:c"),
            ("?c", "https://example.org:5000/v2/a?c"),
            ("#c", "https://example.org:5000/v2/a?b"),
        ] {
            assert_eq!(here.join(location).unwrap().to_string(), expected, "{location}");
        }
    }

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        let origin = |text: &str| Address::parse(text).unwrap().origin();
        let own = origin("https://example.org:5000/v2/");
        assert_eq!(origin("HTTPS://Example.ORG:5000/other?b#c"), own);
        for other in [
            "https://example.org/v2/",
            "http://example.org:5000/v2/",
            "https://example.org.evil.net:5000/",
            "https://example.org.:5000/",
            "https://evil.net:5000/?example.org:5000",
            "https://example.org:5000@evil.net/",
        ] {
            assert_ne!(origin(other), own, "{other}");
        }
        assert_eq!(origin("https://example.org"), origin("https://example.org:443/"));
        assert_eq!(origin("http://example.org"), origin("http://example.org:80/"));
        assert_ne!(origin("http://example.org:443"), origin("https://example.org:443/"));
    }

    #[test]
    fn what_a_server_names_is_read_from_where_it_stands() {
        let base = Address::parse("https://me:secret@example.org:5000/v2/a/blobs?x=1").unwrap();
        let joined = |location: &str| base.join(location).map(|address| address.to_string());
        for (location, expected) in [
            ("/upload?a=b", "https://example.org:5000/upload?a=b"),
            ("next", "https://example.org:5000/v2/a/next"),
            ("next:1", "error"),
            ("?y=2", "https://example.org:5000/v2/a/blobs?y=2"),
            ("", "https://example.org:5000/v2/a/blobs?x=1"),
            ("#part", "https://example.org:5000/v2/a/blobs?x=1"),
            ("//evil.net/x", "https://evil.net/x"),
            ("http://evil.net", "http://evil.net/"),
            ("https://example.org:5000@evil.net/", "error"),
            ("https://me:secret@example.org:5000/", "error"),
            ("ftp://example.org/", "error"),
            ("file:///etc/passwd", "error"),
            ("https:///x", "error"),
            ("https://", "error"),
            ("https:example.org", "error"),
            ("https://example.org:99999/", "error"),
            ("https://exa mple.org/", "error"),
        ] {
            let found = joined(location).unwrap_or_else(|_| "error".into());
            assert_eq!(found, expected, "{location}");
        }
        assert!(!base.to_string().contains("secret"));
    }

    #[test]
    fn a_query_is_encoded_and_comes_behind_the_own_one() {
        let address = Address::parse("https://example.org/token?account=me").unwrap();
        let asked = address.with_query(&[("scope", "repository:a/b:pull,push"), ("service", "a&b=c d")]).unwrap();
        let expected =
            "https://example.org/token?account=me&scope=repository%3Aa%2Fb%3Apull%2Cpush&service=a%26b%3Dc%20d";
        assert_eq!(asked.to_string(), expected);
    }

    proptest! {
        #[test]
        fn any_text_is_an_address_or_an_error(text in ".{0,40}", location in ".{0,40}") {
            let base = Address::parse("https://example.org/v2/").unwrap();
            for joined in [base.join(&location), Address::named(&text)].into_iter().flatten() {
                prop_assert_eq!(Address::named(&joined.to_string()), Ok(joined.clone()));
            }
        }
    }
}
