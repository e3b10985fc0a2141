//! Export of spans to a collector of OpenTelemetry.

use std::env;
use std::time::Duration;

use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use reqwest::blocking::Client;
use reqwest::redirect::Policy;
use tracing::{Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::registry::LookupSpan;

use crate::failure::{CommandResult, Error};

/// The service name, unless the environment sets another one.
const NAME: &str = "tileforge-server";

/// The variables that name a collector.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

/// The time limit for a collector's answer, and for sending the last spans.
const ANSWER: Duration = Duration::from_secs(5);

/// The exporter of spans.
pub(crate) struct Traces(SdkTracerProvider);

impl Traces {
    /// An exporter to the collector at this URL, else to the one that the environment names, if any. OpenTelemetry's
    /// own variables (`OTEL_TRACES_SAMPLER`, ...) control sampling and more.
    pub(crate) fn open(url: Option<&str>) -> CommandResult<Option<Self>> {
        if env::var_os("OTEL_SDK_DISABLED").is_some_and(|disabled| disabled.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        let is_named = ENDPOINTS.iter().any(|name| env::var_os(name).is_some_and(|value| !value.is_empty()));
        if url.is_none() && !is_named {
            return Ok(None);
        }
        let tls = tileforge_server::client_tls().map_err(|error| Error::Traces(error.to_string()))?;
        let client = Client::builder()
            .tls_backend_preconfigured(tls)
            .redirect(Policy::none())
            .timeout(ANSWER)
            .build()
            .map_err(|error| Error::Traces(error.to_string()))?;
        let mut exporter = SpanExporter::builder().with_http().with_http_client(client).with_timeout(ANSWER);
        if let Some(url) = url {
            exporter = exporter.with_endpoint(format!("{}/v1/traces", checked(url)?.trim_end_matches('/')));
        }
        let exporter = exporter.build().map_err(|error| Error::Traces(error.to_string()))?;
        let version = opentelemetry::KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
        let mut resource = Resource::builder().with_attribute(version);
        if env::var_os("OTEL_SERVICE_NAME").is_none() {
            resource = resource.with_service_name(NAME);
        }
        let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource.build());
        Ok(Some(Self(provider.build())))
    }

    /// The layer that receives spans.
    pub(crate) fn layer<S: Subscriber + for<'span> LookupSpan<'span>>(&self) -> impl Layer<S> + use<S> {
        tracing_opentelemetry::layer()
            .with_tracer(self.0.tracer(NAME))
            .with_location(false)
            .with_target(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_filter(Targets::new().with_target(tileforge_server::TRACES, Level::INFO))
    }

    /// Sends the last spans.
    pub(crate) fn end(self) {
        if let Err(error) = self.0.shutdown_with_timeout(ANSWER) {
            tracing::warn!(error = error.to_string(), "the last spans could not be sent");
        }
    }
}

/// The URL of a collector.
fn checked(url: &str) -> CommandResult<&str> {
    let is_url = url.starts_with("http://") || url.starts_with("https://");
    if is_url { Ok(url) } else { Err(Error::Traces(format!("found {url}"))) }
}
