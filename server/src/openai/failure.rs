//! Errors in OpenAI's form: <https://platform.openai.com/docs/guides/error-codes>.

use serde_json::{Value, json};

use crate::failure::{Failure, FailureKind};

/// The error in the form that clients expect.
pub(crate) fn respond(failure: &Failure) -> Value {
    let (kind, code) = match failure.kind {
        FailureKind::Unauthenticated => ("invalid_request_error", Some("invalid_api_key")),
        FailureKind::NotFound => ("invalid_request_error", Some("model_not_found")),
        FailureKind::Busy => ("rate_limit_error", Some("rate_limit_exceeded")),
        FailureKind::NotReady | FailureKind::Deadline | FailureKind::DoesNotFit | FailureKind::Internal => {
            ("server_error", None)
        }
        _ => ("invalid_request_error", None),
    };
    // Messages about a value begin with its name.
    let param = failure.message.split_once(": ").map(|(name, _)| name).filter(|name| is_name(name));
    json!({ "error": { "message": failure.message, "type": kind, "param": param, "code": code } })
}

fn is_name(text: &str) -> bool {
    text.len() <= 32 && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}
