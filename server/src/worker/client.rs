//! How object stores are reached over HTTPS.

use std::time::Duration;

use object_store::client::{ClientConfigKey, ClientOptions, HttpClient, HttpConnector};
use reqwest::redirect::Policy;
use rustls::ClientConfig;

use crate::trust::client_tls;

/// How long a connection may take to open.
const CONNECT: Duration = Duration::from_secs(5);

/// How long a connection may say nothing.
const SILENT: Duration = Duration::from_secs(30);

/// Makes clients with TLS of this program, so that no provider of the whole process is chosen.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    tls: ClientConfig,
}

impl Connector {
    /// With the certificates that the system trusts.
    pub(super) fn new() -> Result<Self, rustls::Error> {
        Ok(Self { tls: client_tls()? })
    }
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let plain = options.get_config_value(&ClientConfigKey::AllowHttp).is_some_and(|value| value == "true");
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(self.tls.clone())
            .https_only(!plain)
            // A store answers by itself: nobody else sees what is signed for it.
            .redirect(Policy::none())
            .connect_timeout(CONNECT)
            .read_timeout(SILENT)
            .build();
        let failed = |source| object_store::Error::Generic { store: "HTTP", source: Box::new(source) };
        client.map(HttpClient::new).map_err(failed)
    }
}
