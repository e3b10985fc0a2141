//! Why a request failed, as a status of each protocol.

use std::time::Duration;

use http::StatusCode;
use tileforge::ErrorKind;
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};

/// What a client can do about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// The request is invalid.
    Invalid,
    /// The client shows no known key.
    Unauthenticated,
    /// The client may not do this.
    Forbidden,
    /// The object does not exist.
    NotFound,
    /// The path exists, but does not allow this method.
    Method,
    /// The object's state does not allow this.
    Conflict,
    /// The body is too large.
    TooLarge,
    /// The media type or the encoding of the body is not supported.
    MediaType,
    /// The answer cannot have a media type that the client accepts.
    NotAcceptable,
    /// The body came too slowly.
    SlowClient,
    /// The server has too much work at the moment.
    Busy,
    /// The server or the model takes no requests now.
    NotReady,
    /// The request's time is over.
    Deadline,
    /// No device has enough memory.
    DoesNotFit,
    /// An internal failure.
    Internal,
}

/// Why a request failed.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
    /// For the client.
    pub(crate) message: String,
}

pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// When a refused request may be sent again.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(1);

impl Failure {
    pub(crate) fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: bounded(message.into()) }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Invalid, message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Internal, message)
    }

    /// Its status in HTTP.
    pub(crate) fn status(&self) -> StatusCode {
        match self.kind {
            FailureKind::Invalid => StatusCode::BAD_REQUEST,
            FailureKind::Unauthenticated => StatusCode::UNAUTHORIZED,
            FailureKind::Forbidden => StatusCode::FORBIDDEN,
            FailureKind::NotFound => StatusCode::NOT_FOUND,
            FailureKind::Method => StatusCode::METHOD_NOT_ALLOWED,
            FailureKind::Conflict => StatusCode::CONFLICT,
            FailureKind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            FailureKind::MediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            FailureKind::NotAcceptable => StatusCode::NOT_ACCEPTABLE,
            FailureKind::SlowClient => StatusCode::REQUEST_TIMEOUT,
            FailureKind::Busy => StatusCode::TOO_MANY_REQUESTS,
            FailureKind::NotReady => StatusCode::SERVICE_UNAVAILABLE,
            FailureKind::Deadline => StatusCode::GATEWAY_TIMEOUT,
            FailureKind::DoesNotFit => StatusCode::INSUFFICIENT_STORAGE,
            FailureKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The number of its status in HTTP.
    pub(crate) fn status_number(&self) -> u16 {
        self.status().as_u16()
    }

    /// Its status in gRPC.
    pub(crate) fn code(&self) -> Code {
        match self.kind {
            FailureKind::Invalid | FailureKind::MediaType | FailureKind::NotAcceptable => Code::InvalidArgument,
            FailureKind::Unauthenticated => Code::Unauthenticated,
            FailureKind::Forbidden => Code::PermissionDenied,
            FailureKind::NotFound => Code::NotFound,
            FailureKind::Method => Code::Unimplemented,
            FailureKind::Conflict => Code::FailedPrecondition,
            FailureKind::TooLarge | FailureKind::Busy | FailureKind::DoesNotFit => Code::ResourceExhausted,
            FailureKind::SlowClient | FailureKind::Deadline => Code::DeadlineExceeded,
            FailureKind::NotReady => Code::Unavailable,
            FailureKind::Internal => Code::Internal,
        }
    }

    /// When the same request may be sent again, if that helps.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        matches!(self.kind, FailureKind::Busy | FailureKind::NotReady).then_some(RETRY_AFTER)
    }
}

impl From<tileforge::Error> for Failure {
    fn from(error: tileforge::Error) -> Self {
        let text = chain(&error);
        let kind = match error.kind() {
            ErrorKind::InvalidInput => FailureKind::Invalid,
            ErrorKind::DoesNotFit => FailureKind::DoesNotFit,
            ErrorKind::Busy => FailureKind::Busy,
            ErrorKind::Deadline => FailureKind::Deadline,
            // Either the client has disconnected, or the server is ending.
            ErrorKind::Cancelled => FailureKind::NotReady,
            _ => FailureKind::Internal,
        };
        if kind == FailureKind::Internal {
            // The text may name files of this machine.
            tracing::error!(error = text, "a request failed");
            return Self::internal("the request failed here; the server's log says why");
        }
        Self::new(kind, text)
    }
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Self {
        let mut metadata = MetadataMap::new();
        if let Some(after) = failure.retry_after() {
            metadata.insert("retry-after", after.as_secs().into());
        }
        Self::with_metadata(failure.code(), failure.message, metadata)
    }
}

/// The longest message, in bytes. JSON errors quote the values that they are about, whatever their length.
const MESSAGE_MAXIMUM: usize = 2000;

/// Bytes that are kept of a longer message's end, which states the place of the error.
const MESSAGE_END: usize = 100;

fn bounded(message: String) -> String {
    if message.len() <= MESSAGE_MAXIMUM {
        return message;
    }
    let begin = message.floor_char_boundary(MESSAGE_MAXIMUM - MESSAGE_END);
    let end = message.ceil_char_boundary(message.len() - MESSAGE_END);
    format!("{} … {}", &message[..begin], &message[end..])
}

/// The longest word of a client in an error, such as the name of a tensor.
pub(crate) const WORD_MAXIMUM: usize = 64;

/// A client's word for an error message: at most `most` characters, without control characters.
pub(crate) fn shown(word: &str, most: usize) -> String {
    word.chars().take(most).flat_map(char::escape_debug).collect()
}

/// An error with its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_loses_its_middle() {
        let message = |length: usize| format!("the body: \"{}\" at line 1 column 9", "é".repeat(length));
        assert_eq!(Failure::invalid(message(10)).message, message(10));
        let cut = Failure::invalid(message(1_000_000)).message;
        assert!(cut.len() < MESSAGE_MAXIMUM + 10, "{}", cut.len());
        assert!(cut.starts_with("the body: \"é") && cut.ends_with("é\" at line 1 column 9"), "{cut}");
    }
}
