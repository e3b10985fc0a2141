//! The handling that all requests share: id, limits, log line, metrics.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::FutureExt;
use http::{HeaderMap, HeaderValue, Method, header};
use http_body::Body as _;
use tonic::Status;
use tracing::{Instrument, Span};

use crate::app::App;
use crate::body::{Keeping, Limited};
use crate::caller::Caller;
use crate::failure::{Failure, FailureKind, Result};
use crate::protocol::Protocol;
use crate::{openai, page, sdapi, traces};

/// The index of all models, a POST path that does not count as work.
pub(crate) const INDEX: &str = "/v2/repository/index";

/// The header with the id of a request, in both directions.
const REQUEST_ID: &str = "x-request-id";

/// The longest id that a client may give, and the longest path in the log.
const TEXT_MAXIMUM: usize = 128;

/// The log's reason for a request that was not answered.
const GONE: &str = "the client disconnected before the answer";

/// gRPC calls that count as work. All others are answered at once.
const WORK: [&str; 3] = ["/ModelInfer", "/RepositoryModelLoad", "/RepositoryModelUnload"];

/// The deadline of a gRPC call, as its client states it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallTimeout(pub(crate) Duration);

/// Serves one request within the limits, and logs it.
pub(crate) async fn handle(
    State((app, protocol)): State<(Arc<App>, Protocol)>,
    mut request: Request,
    next: Next,
) -> Response {
    let mut line = Line::new(app.clone(), protocol, &request);
    let held = app.budget.open();
    let mut accepted = None;
    let response = 'answer: {
        if request.body().size_hint().lower() > app.limits.body_bytes {
            let most = app.limits.body_bytes;
            let message = format!("expected a body of at most {most} bytes, found more");
            break 'answer refused(protocol, Failure::new(FailureKind::TooLarge, message));
        }
        match caller(&app, protocol, &request) {
            Ok(caller) => drop(request.extensions_mut().insert(caller)),
            Err(failure) => break 'answer refused(protocol, failure),
        }
        if protocol == Protocol::Http {
            let has_keys = app.keys.read().is_some();
            if let Err(failure) = app.names.check(request.headers(), has_keys) {
                break 'answer refused(protocol, failure);
            }
        }
        if is_work(protocol, &request) {
            match app.admission.enter() {
                Ok(entered) => {
                    let entered = Arc::new(entered);
                    request.extensions_mut().insert(entered.clone());
                    accepted = Some(entered);
                }
                Err(failure) => break 'answer refused(protocol, failure),
            }
        }
        if let Some(timeout) = request.headers().get("grpc-timeout").and_then(|value| timeout_of(value.to_str().ok()?))
        {
            request.extensions_mut().insert(CallTimeout(timeout));
        }
        request.extensions_mut().insert(held.clone());
        let limits = &app.limits;
        let limited = |body| Body::new(Limited::new(body, limits.body_bytes, limits.body_time, held.clone()));
        // A panic ends only this request, even if others share its connection.
        let served =
            AssertUnwindSafe(next.run(request.map(limited))).catch_unwind().instrument(line.span.clone()).await;
        served.unwrap_or_else(|_| refused(protocol, Failure::internal("the request failed here")))
    };
    line.answered(&response);
    let (mut parts, body) = in_form_of(&line.path, response).into_parts();
    parts.headers.insert(REQUEST_ID, line.id.clone());
    if protocol == Protocol::Http {
        parts.headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    }
    if app.admission.is_closing() && protocol == Protocol::Http {
        parts.headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    // The server counts the request until its answer was sent.
    Response::from_parts(parts, Keeping::body(body, (held, accepted)))
}

/// The caller: the number of the key that the client shows. Health needs no key.
fn caller(app: &App, protocol: Protocol, request: &Request) -> Result<Caller> {
    let Some(keys) = app.keys.read().clone() else { return Ok(Caller(0)) };
    let path = request.uri().path();
    let open = match protocol {
        Protocol::Http => path.starts_with("/v2/health/") || page::has(path),
        Protocol::Grpc => path.starts_with("/grpc.health.v1.Health/"),
    };
    let shown = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let shown = shown.and_then(|text| text.split_once(' ')).and_then(|(scheme, token)| key_of(scheme, token.trim()));
    match shown.and_then(|key| keys.number_of(&key)) {
        Some(number) => Ok(Caller(number)),
        None if open => Ok(Caller(0)),
        None => {
            Err(Failure::new(FailureKind::Unauthenticated, "expected a key that is known: Authorization: Bearer KEY"))
        }
    }
}

/// The key that a client shows: as a bearer token, or as the password of any user, as clients of AUTOMATIC1111 send
/// it.
fn key_of(scheme: &str, token: &str) -> Option<String> {
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(token.to_owned());
    }
    let decoded = STANDARD.decode(token).ok().filter(|_| scheme.eq_ignore_ascii_case("basic"))?;
    String::from_utf8(decoded).ok()?.split_once(':').map(|(_, password)| password.to_owned())
}

/// Whether a request counts as work, which is limited.
fn is_work(protocol: Protocol, request: &Request) -> bool {
    let path = request.uri().path();
    match protocol {
        Protocol::Http => request.method() == Method::POST && path != INDEX && !sdapi::NO_WORK.contains(&path),
        Protocol::Grpc => WORK.iter().any(|work| path.ends_with(work)),
    }
}

/// The answer, with its error in the form that clients of the path expect.
fn in_form_of(path: &str, response: Response) -> Response {
    let mut response = response;
    let Some(failure) = response.extensions_mut().remove::<Failure>() else { return response };
    let in_openai_form = path == "/v1/models" || path.starts_with("/v1/models/") || path.starts_with("/v1/images/");
    if in_openai_form {
        *response.body_mut() = Body::from(openai::respond(&failure).to_string());
    } else if path.starts_with("/sdapi/") {
        *response.body_mut() = Body::from(sdapi::respond(&failure).to_string());
    }
    response
}

fn refused(protocol: Protocol, failure: Failure) -> Response {
    match protocol {
        Protocol::Http => failure.into_response(),
        Protocol::Grpc => Status::from(failure).into_http(),
    }
}

/// The time in `grpc-timeout`: up to eight digits and a unit.
fn timeout_of(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number: u64 =
        digits.parse().ok().filter(|_| digits.len() <= 8 && digits.bytes().all(|byte| byte.is_ascii_digit()))?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

/// The log line of a request, and its span.
struct Line {
    app: Arc<App>,
    protocol: Protocol,
    id: HeaderValue,
    method: Method,
    path: String,
    began: Instant,
    span: Span,
    answered: bool,
}

impl Line {
    fn new(app: Arc<App>, protocol: Protocol, request: &Request) -> Self {
        let id = given_id(request.headers()).unwrap_or_else(new_id);
        let path = request.uri().path().chars().take(TEXT_MAXIMUM).collect();
        let method = request.method().clone();
        let span = traces::request(protocol, id.to_str().unwrap_or_default(), request);
        Self { app, protocol, id, method, path, began: Instant::now(), span, answered: false }
    }

    fn answered(&mut self, response: &Response) {
        self.answered = true;
        let status = match response.headers().get("grpc-status") {
            Some(code) => code.to_str().ok().and_then(|code| code.parse().ok()).unwrap_or(0),
            None if self.protocol == Protocol::Grpc => 0,
            None => response.status().as_u16(),
        };
        self.app.metrics.answered(self.protocol.name(), status);
        traces::answered(&self.span, self.protocol, status);
        self.log(Some(status));
    }

    fn log(&self, status: Option<u16>) {
        let Self { protocol, id, method, path, began, .. } = self;
        let (protocol, id) = (protocol.name(), id.to_str().unwrap_or_default());
        let milliseconds = began.elapsed().as_secs_f64() * 1e3;
        let outcome = status.is_none().then_some(GONE);
        let trace_id = traces::trace_id(&self.span);
        tracing::info!(
            target: "request", protocol, request_id = id, trace_id, %method, path, status, milliseconds, outcome
        );
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if !self.answered {
            self.app.metrics.cancelled.inc();
            traces::failed(&self.span, GONE);
            self.log(None);
        }
    }
}

fn given_id(headers: &HeaderMap) -> Option<HeaderValue> {
    let value = headers.get(REQUEST_ID)?;
    let is_sound = (1..=TEXT_MAXIMUM).contains(&value.len()) && value.as_bytes().iter().all(u8::is_ascii_graphic);
    is_sound.then(|| value.clone())
}

fn new_id() -> HeaderValue {
    let mut bytes = [0; 16];
    // Ids only distinguish requests: without random numbers, they do so less reliably.
    if getrandom::fill(&mut bytes).is_err() {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        bytes = now.as_nanos().to_le_bytes();
    }
    let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static("unknown"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_of_calls_are_read() {
        assert_eq!(timeout_of("100m"), Some(Duration::from_millis(100)));
        assert_eq!(timeout_of("99999999H"), Some(Duration::from_secs(99_999_999 * 3600)));
        for wrong in ["", "m", "100", "123456789S", "-1S", "1x", "1é", "+1S"] {
            assert_eq!(timeout_of(wrong), None, "{wrong}");
        }
    }
}
