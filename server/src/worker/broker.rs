//! The interface of a broker.

use std::collections::HashMap;
use std::fmt::Debug;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Value, json};

use super::job::{BYTES_MAXIMUM, Job};
use super::marker::Done;
use crate::failure;

/// Why a broker's operation failed, for the log.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Error(pub(super) String);

pub(super) type Result<T, E = Error> = std::result::Result<T, E>;

/// A broker with one queue of jobs. A received message belongs to the receiver for the time of a lease; then the
/// broker delivers it again. Every method may be called while the broker is unreachable: then it fails within seconds.
#[async_trait]
pub(super) trait Broker: Debug + Send + Sync {
    /// The next message; `None` if none comes for about a second.
    async fn receive(&self) -> Result<Option<Delivery>>;

    /// Renews the lease.
    async fn progress(&self, lease: &Lease) -> Result<()>;

    /// The job is done: its message is removed.
    async fn done(&self, lease: &Lease, done: &Done) -> Result<()>;

    /// The message is delivered again after this time.
    async fn give_back(&self, lease: &Lease, after: Duration) -> Result<()>;

    /// The message is moved to the dead letters, with the reason.
    async fn dead_letter(&self, delivery: &Delivery, reason: &str) -> Result<()>;

    /// How many messages there are.
    async fn depth(&self) -> Result<Depth>;

    /// OpenTelemetry's name for this kind of broker.
    fn system(&self) -> &'static str;
}

/// How many messages there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Depth {
    /// Messages that no worker has.
    pub(super) waiting: u64,
    /// Messages that workers have, or that were given back for later.
    pub(super) taken: u64,
}

/// A received message.
#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) lease: Lease,
    /// The message, or its first [`BYTES_MAXIMUM`] bytes.
    pub(super) message: Bytes,
    /// Whether the message is longer.
    pub(super) truncated: bool,
    pub(super) job: failure::Result<Job>,
    /// The trace context that the client sent with it.
    pub(super) trace: TraceHeaders,
}

/// `traceparent` and `tracestate`, if a client sent them.
pub(super) type TraceHeaders = HashMap<String, String>;

/// The names of these headers.
pub(super) const TRACE_HEADERS: [&str; 2] = ["traceparent", "tracestate"];

/// The right to a received message.
#[derive(Clone, Debug)]
pub(super) struct Lease {
    /// The broker's identifier of the delivery.
    pub(super) token: String,
    /// The broker's identifier of the message, the same for each delivery.
    pub(super) message: String,
    /// How often the message was delivered, including this time.
    pub(super) tries: u64,
    /// The id under which the client waits for the answer, if the broker has answers.
    pub(super) reply: Option<String>,
}

impl Delivery {
    /// A delivery of a message; no more than the longest valid job is kept of it.
    pub(super) fn new(
        lease: Lease,
        message: &Bytes,
        trace: TraceHeaders,
        job: impl FnOnce(&[u8]) -> failure::Result<Job>,
    ) -> Self {
        let kept = message.slice(..message.len().min(BYTES_MAXIMUM));
        Self { lease, job: job(message), truncated: kept.len() < message.len(), message: kept, trace }
    }

    /// The message with the reason why it is not tried again, as JSON of at most `most` bytes. The message is in
    /// `message`, or in `message_base64` if it is not text.
    pub(super) fn dead_letter(&self, reason: &str, most: usize) -> String {
        let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let id = self.job.as_ref().map_or(Value::Null, |job| job.id.clone().into());
        let mut kept = self.message.clone();
        loop {
            let truncated = self.truncated || kept.len() < self.message.len();
            let mut letter = json!({ "id": id, "reason": reason, "tries": self.lease.tries, "time": seconds });
            letter["truncated"] = truncated.into();
            match std::str::from_utf8(&kept) {
                Ok(text) => letter["message"] = text.into(),
                Err(_) => letter["message_base64"] = STANDARD.encode(&kept).into(),
            }
            let text = letter.to_string();
            if text.len() <= most || kept.is_empty() {
                return text;
            }
            // Escaping makes a text up to six times as long.
            kept.truncate(kept.len() / 8);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_letter_keeps_what_fits() {
        let lease = || Lease { token: String::new(), message: String::new(), tries: 2, reply: None };
        let letter = |message: &[u8], most: usize| {
            let delivery = Delivery::new(lease(), &Bytes::copy_from_slice(message), TraceHeaders::new(), Job::parse);
            let text = delivery.dead_letter("why", most);
            assert!(text.len() <= most, "{} bytes", text.len());
            serde_json::from_str::<Value>(&text).unwrap_or_default()
        };
        let whole = letter(b"{}", 1 << 20);
        assert_eq!(
            [&whole["message"], &whole["reason"], &whole["truncated"]],
            [&json!("{}"), &json!("why"), &json!(false)]
        );
        assert_eq!(letter(b"\xff\x00", 1 << 20)["message_base64"], "/wA=");
        let escaped = letter(&[1; BYTES_MAXIMUM], 1 << 20);
        assert_eq!(
            (escaped["message"].as_str().map(str::len), &escaped["truncated"]),
            (Some(BYTES_MAXIMUM / 8), &json!(true))
        );
        let huge = letter(&[b'x'; BYTES_MAXIMUM * 2], 1 << 20);
        assert_eq!((huge["message"].as_str().map(str::len), &huge["truncated"]), (Some(BYTES_MAXIMUM), &json!(true)));
        assert_eq!(letter(&[b'x'; 1000], 200)["message"].as_str().map(str::len), Some(15));
    }
}
