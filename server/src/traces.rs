//! OpenTelemetry spans, which show where the time of a request goes.
//!
//! These are spans of `tracing` with the target [`TARGET`]: without a subscriber for it, they cost nothing. Names and
//! attributes follow OpenTelemetry's semantic conventions where these define them.

use std::fmt::Display;

use axum::extract::{MatchedPath, Request};
use opentelemetry::Context;
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::{TraceContextExt, TraceId};
use opentelemetry_http::HeaderExtractor;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tonic::Code;
use tracing::Span;
use tracing::field::Empty;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::protocol::Protocol;

/// The `tracing` target of spans.
pub const TARGET: &str = "tileforge_trace";

/// Paths without spans: monitoring requests them every few seconds.
const WATCHING: [&str; 3] = ["/v2/health/", "/metrics", "/grpc.health.v1.Health/"];

/// Methods that spans name.
const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"];

/// The span of a request, below the client's span if it sends `traceparent`.
pub(crate) fn request(protocol: Protocol, id: &str, request: &Request) -> Span {
    let path = request.uri().path();
    if WATCHING.iter().any(|watching| path.starts_with(watching)) {
        return Span::none();
    }
    // Names have no parts that clients choose, because collectors group by name.
    let method = METHODS.into_iter().find(|known| request.method() == known);
    let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let called = method.unwrap_or("HTTP");
    let name = route.map_or_else(|| called.to_owned(), |route| format!("{called} {route}"));
    let span = match protocol {
        Protocol::Http => tracing::info_span!(
            target: TARGET, "request", otel.name = name, otel.kind = "server", otel.status_code = Empty,
            http.request.method = method.unwrap_or("_OTHER"), http.route = route, http.response.status_code = Empty, error.type = Empty, tileforge.request.id = id
        ),
        Protocol::Grpc => {
            let call = route.map_or("call", |_| path.trim_start_matches('/'));
            tracing::info_span!(
                target: TARGET, "request", otel.name = call, otel.kind = "server", otel.status_code = Empty,
                rpc.system.name = "grpc", rpc.method = call, rpc.response.status_code = Empty, error.type = Empty,
                tileforge.request.id = id
            )
        }
    };
    below(&span, &HeaderExtractor(request.headers()));
    span
}

/// The span of a delivery, below the client's span if it sent `traceparent` with the message.
///
/// It names the broker's queue, and the job's id and kind.
pub(crate) fn delivery(
    (system, queue): (&str, &str),
    (id, kind): (&str, &str),
    tries: u64,
    parent: &dyn Extractor,
) -> Span {
    let span = tracing::info_span!(
        target: TARGET, "process", otel.name = format!("process {queue}"), otel.kind = "consumer",
        otel.status_code = Empty, messaging.system = system, messaging.destination.name = queue,
        messaging.operation.type = "process", messaging.message.id = id, tileforge.job.kind = kind,
        tileforge.job.tries = i64::try_from(tries).unwrap_or(i64::MAX), tileforge.job.outcome = Empty
    );
    below(&span, parent);
    span
}

/// The span of work that goes on after its request was answered: a job, or a stream of events.
pub(crate) fn apart(name: &'static str) -> Span {
    let span = tracing::info_span!(target: TARGET, parent: None, "apart", otel.name = name);
    if !span.is_disabled() {
        // Its parent is the request's context, not the request's span, which would otherwise last as long as this
        // span.
        set_parent(&span, Span::current().context());
    }
    span
}

/// The span of a part of a request.
pub(crate) fn part(name: &'static str) -> Span {
    tracing::info_span!(target: TARGET, "part", otel.name = name)
}

/// The span of an engine's work on a request: waiting for its turn, and the runs of its networks.
pub(crate) fn infer(model: &str) -> Span {
    tracing::info_span!(target: TARGET, "infer", tileforge.model = model)
}

/// Records the status of an answer.
pub(crate) fn answered(span: &Span, protocol: Protocol, status: u16) {
    let (is_error, status) = match protocol {
        Protocol::Http => {
            span.record("http.response.status_code", i64::from(status));
            (status >= 500, status.to_string())
        }
        Protocol::Grpc => {
            let code = Code::from_i32(i32::from(status));
            // By the conventions, these codes are failures of the server, not of its client.
            let failed = [
                Code::Unknown,
                Code::DeadlineExceeded,
                Code::Unimplemented,
                Code::Internal,
                Code::Unavailable,
                Code::DataLoss,
            ];
            let name = name_of(code);
            span.record("rpc.response.status_code", &name);
            (failed.contains(&code), name)
        }
    };
    if is_error {
        failed(span, status);
    }
}

/// Records a failure with its reason.
pub(crate) fn failed(span: &Span, reason: impl Display) {
    span.record("otel.status_code", "ERROR");
    span.record("error.type", tracing::field::display(reason));
}

/// The id of the trace that a span belongs to, for the log.
pub(crate) fn trace_id(span: &Span) -> Option<String> {
    if span.is_disabled() {
        return None;
    }
    let id = span.context().span().span_context().trace_id();
    (id != TraceId::INVALID).then(|| id.to_string())
}

fn below(span: &Span, headers: &dyn Extractor) {
    if !span.is_disabled() {
        set_parent(span, TraceContextPropagator::new().extract_with_context(&Context::new(), headers));
    }
}

fn set_parent(span: &Span, context: Context) {
    // This fails for spans of subscribers without OpenTelemetry; they have no such parent.
    let _ = span.set_parent(context);
}

/// The name of a code as gRPC writes it: `DEADLINE_EXCEEDED`.
fn name_of(code: Code) -> String {
    let mut name = String::new();
    for letter in format!("{code:?}").chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}
