//! Certificates, which are read again when their files change.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::RwLock;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::settings::TlsFiles;

/// Certificates, which are read again when their files change.
#[derive(Debug)]
pub(crate) struct Tls {
    files: TlsFiles,
    state: RwLock<State>,
}

#[derive(Debug)]
struct State {
    stamps: [Option<SystemTime>; 2],
    http: Arc<ServerConfig>,
    grpc: Arc<ServerConfig>,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// The invalid file, with the reason.
    pub(crate) fn read(files: TlsFiles) -> Result<Self, (PathBuf, String)> {
        let state = RwLock::new(State::read(&files)?);
        Ok(Self { files, state })
    }

    /// Reads the files again. If that fails, nothing changes.
    ///
    /// # Errors
    /// As [`Tls::read`].
    pub(crate) fn read_again(&self) -> Result<(), (PathBuf, String)> {
        let state = State::read(&self.files)?;
        *self.state.write() = state;
        Ok(())
    }

    /// Whether a file has changed since it was last read or tried.
    pub(crate) fn has_changed(&self) -> bool {
        let stamps = stamps(&self.files);
        let mut state = self.state.write();
        let has_changed = state.stamps != stamps;
        state.stamps = stamps;
        has_changed
    }

    /// The configuration for HTTP/1.
    pub(crate) fn http(&self) -> Arc<ServerConfig> {
        self.state.read().http.clone()
    }

    /// The configuration for HTTP/2.
    pub(crate) fn grpc(&self) -> Arc<ServerConfig> {
        self.state.read().grpc.clone()
    }
}

impl State {
    fn read(files: &TlsFiles) -> Result<Self, (PathBuf, String)> {
        let stamps = stamps(files);
        let at = |path: &Path, error: &dyn std::fmt::Display| (path.to_owned(), error.to_string());
        let TlsFiles { certificate, key } = files;
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(certificate)
            .and_then(|all| all.collect::<Result<Vec<_>, _>>())
            .map_err(|error| at(certificate, &error))?;
        if chain.is_empty() {
            return Err(at(certificate, &"expected a certificate in PEM, found none"));
        }
        let private = PrivateKeyDer::from_pem_file(key).map_err(|error| at(key, &error))?;
        let with = |protocol: &[u8]| -> Result<Arc<ServerConfig>, (PathBuf, String)> {
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
            let builder = builder.map_err(|error| at(certificate, &error))?.with_no_client_auth();
            let config = builder.with_single_cert(chain.clone(), private.clone_key());
            let mut config = config.map_err(|error| at(certificate, &error))?;
            config.alpn_protocols = vec![protocol.to_vec()];
            Ok(Arc::new(config))
        };
        Ok(Self { stamps, http: with(b"http/1.1")?, grpc: with(b"h2")? })
    }
}

fn stamps(files: &TlsFiles) -> [Option<SystemTime>; 2] {
    let of = |path: &Path| -> io::Result<SystemTime> { path.metadata()?.modified() };
    [&files.certificate, &files.key].map(|path| of(path).ok())
}
