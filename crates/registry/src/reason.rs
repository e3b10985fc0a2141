//! The reasons of failed requests, in plain words.

use rustls::CertificateError;

use crate::error::Error;

/// The quoted length of an error that is not JSON.
const QUOTED_CHARACTERS: usize = 200;

/// The beginning of an answer that is a line of text, such as from an HTTPS server that received an HTTP request.
pub(crate) fn quoted(body: &[u8]) -> String {
    let line = str::from_utf8(body).unwrap_or_default().trim();
    if line.is_empty() || line.starts_with(['<', '{']) || line.contains('\n') {
        return String::new();
    }
    format!(" ({})", line.chars().take(QUOTED_CHARACTERS).collect::<String>().escape_debug())
}

/// The error for a request without an answer.
pub(crate) fn failed(url: &str, error: &ureq::Error) -> Error {
    let url = url.to_owned();
    let tls = match error {
        ureq::Error::Rustls(error) => Some(error),
        ureq::Error::Io(error) => error.get_ref().and_then(|inner| inner.downcast_ref()),
        _ => None,
    };
    match tls {
        // A bad signature means that a known authority of the same name has another key.
        Some(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature)) => {
            Error::UnknownAuthority { url }
        }
        Some(rustls::Error::InvalidCertificate(problem)) => Error::Untrusted { url, reason: untrusted(problem) },
        Some(rustls::Error::InvalidMessage(_)) => {
            Error::Unreachable { url, reason: "the server does not answer with TLS".into() }
        }
        _ => Error::Unreachable { url, reason: error.to_string() },
    }
}

/// What is wrong with a certificate.
fn untrusted(problem: &CertificateError) -> String {
    match problem {
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "it is for another host".into()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "it has expired".into(),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => "it is not valid yet".into(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_quoted_if_it_is_a_line_of_text() {
        assert_eq!(quoted(b"Client sent an HTTP request.\n"), " (Client sent an HTTP request.)");
        assert_eq!(quoted(b"a\x1b[2Jb"), " (a\\u{1b}[2Jb)");
        for body in [&b""[..], b"<html>", b"{}", b"one\ntwo", b"\xff"] {
            assert_eq!(quoted(body), "");
        }
        assert!(quoted(&[b'a'; 1000]).len() < 300);
    }

    #[test]
    fn a_certificate_that_is_not_trusted_is_told_from_a_server_that_is_not_there() {
        let reason = |problem| match failed("https://example.org", &ureq::Error::Rustls(problem)) {
            Error::Untrusted { reason, .. } | Error::Unreachable { reason, .. } => reason,
            other => other.to_string(),
        };
        let of_certificate = |problem| reason(rustls::Error::InvalidCertificate(problem));
        assert_eq!(of_certificate(CertificateError::Expired), "it has expired");
        assert_eq!(of_certificate(CertificateError::NotValidYet), "it is not valid yet");
        assert_eq!(of_certificate(CertificateError::NotValidForName), "it is for another host");
        for unknown in [CertificateError::UnknownIssuer, CertificateError::BadSignature] {
            assert!(of_certificate(unknown).contains("does not know the authority"));
        }
        let foreign = rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType);
        assert!(reason(foreign).contains("does not answer with TLS"));
    }
}
