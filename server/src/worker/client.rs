//! HTTP clients for object stores.

use std::time::Duration;

use object_store::client::{ClientConfigKey, ClientOptions, HttpClient, HttpConnector};
use reqwest::redirect::Policy;
use rustls::ClientConfig;

use crate::trust::client_tls;

/// How long a connection may take to open.
const CONNECT: Duration = Duration::from_secs(5);

/// How long a connection may be silent.
const SILENT: Duration = Duration::from_secs(30);

/// Makes clients with this program's own TLS configuration, so no crypto provider is installed for the whole process.
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
            // No redirects: no other server receives requests that were signed for the store.
            .redirect(Policy::none())
            .connect_timeout(CONNECT)
            .read_timeout(SILENT)
            .build();
        let failed = |source| object_store::Error::Generic { store: "HTTP", source: Box::new(source) };
        client.map(HttpClient::new).map_err(failed)
    }
}
