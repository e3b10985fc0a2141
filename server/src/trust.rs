//! TLS of this program's own requests: to object stores, and to a collector of traces.

use std::sync::Arc;

use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};

/// A TLS configuration that trusts the system's certificates. It installs no crypto provider for the whole process.
///
/// # Errors
/// The crypto library supports no version of TLS.
pub fn client_tls() -> Result<ClientConfig, rustls::Error> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    Ok(builder.with_safe_default_protocol_versions()?.with_root_certificates(roots).with_no_client_auth())
}
