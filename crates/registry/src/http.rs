//! The HTTP client of everything that downloads or sends.

use std::sync::Arc;
use std::time::Duration;

use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};

/// Bytes that are sent or received at once.
pub(crate) const CHUNK: usize = 1 << 18;

/// The certificates of the authorities that this system trusts, so that it works behind a company's proxy.
pub fn system_certificates() -> Vec<Certificate<'static>> {
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::warn!("the system's certificates: {error}");
    }
    found.certs.iter().map(|certificate| Certificate::from_der(certificate).to_owned()).collect()
}

/// A client that trusts these certificates. It takes a server that sends nothing for `patience` for a cut connection,
/// and gives every answer as it is, whatever its status. `encrypted`: it never follows a server to plain HTTP.
pub fn agent(patience: Duration, certificates: Vec<Certificate<'static>>, encrypted: bool) -> Agent {
    let tls = TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .root_certs(RootCerts::Specific(Arc::new(certificates)))
        .build();
    Agent::config_builder()
        .tls_config(tls)
        .https_only(encrypted)
        .timeout_connect(Some(patience))
        .timeout_per_read(Some(patience))
        .timeout_per_write(Some(patience))
        .http_status_as_error(false)
        .input_buffer_size(CHUNK)
        .output_buffer_size(CHUNK)
        .user_agent(concat!("tileforge/", env!("CARGO_PKG_VERSION")))
        .build()
        .into()
}
