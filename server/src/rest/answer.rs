//! Answers and errors in JSON.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;

use crate::failure::{Failure, FailureKind};

/// The error of the protocol.
#[derive(Serialize)]
struct ErrorText<'t> {
    error: &'t str,
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = json(self.status(), &ErrorText { error: &self.message });
        if let Some(after) = self.retry_after() {
            response.headers_mut().insert(header::RETRY_AFTER, after.as_secs().into());
        }
        if self.kind == FailureKind::Unauthenticated {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        // The middleware converts the error to the form of the interface that was called.
        response.extensions_mut().insert(self);
        response
    }
}

/// An answer in JSON.
pub(crate) fn json(status: StatusCode, content: &impl Serialize) -> Response {
    let (status, text) = match serde_json::to_vec(content) {
        Ok(text) => (status, text),
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, br#"{"error":"the answer cannot be written"}"#.to_vec()),
    };
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
