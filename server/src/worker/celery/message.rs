//! A task by Celery's protocol, version 2, in the envelope of kombu, and its answer.
//!
//! <https://docs.celeryq.dev/en/stable/internals/protocol.html>

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, SecondsFormat, Utc};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::super::broker::{TRACE_HEADERS, TraceHeaders};
use super::super::job::{BYTES_MAXIMUM, Fields, Job};
use super::super::marker::Done;
use crate::bounded_json::{self, HasEntries};
use crate::failure::{Failure, Result};
use crate::repository::is_name;

/// The prefix of a task's name, before the kind of the job.
const TASK: &str = "tileforge.";

/// A task.
#[derive(Debug)]
pub(super) struct Task {
    /// The id under which the client waits for an answer.
    pub(super) id: Option<String>,
    pub(super) job: Result<Job>,
    pub(super) trace: TraceHeaders,
}

/// The envelope of a message.
#[derive(Debug, Deserialize)]
struct Envelope {
    body: String,
    #[serde(default)]
    headers: Headers,
    #[serde(default)]
    properties: Properties,
    #[serde(default, rename = "content-type")]
    content_type: Option<String>,
    #[serde(default, rename = "content-encoding")]
    content_encoding: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct Headers {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    task: Option<String>,
    #[serde(default)]
    eta: Option<String>,
    #[serde(default)]
    expires: Option<String>,
    #[serde(default)]
    compression: Option<String>,
    #[serde(default)]
    traceparent: Option<String>,
    #[serde(default)]
    tracestate: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct Properties {
    #[serde(default)]
    body_encoding: Option<String>,
}

/// The body: positional arguments, keyword arguments, and the tasks to call afterwards.
#[derive(Debug, Deserialize)]
struct Body(HasEntries, Fields, After);

#[derive(Debug, Deserialize)]
struct After {
    #[serde(default)]
    callbacks: Option<HasEntries>,
    #[serde(default)]
    errbacks: Option<HasEntries>,
    #[serde(default)]
    chain: Option<HasEntries>,
    #[serde(default)]
    chord: Option<IgnoredAny>,
}

impl Task {
    /// The task in a message, at the time `now`.
    pub(super) fn parse(message: &[u8], now: DateTime<Utc>) -> Self {
        if message.len() > BYTES_MAXIMUM {
            let failure = Failure::invalid(format!("expected a message of at most {BYTES_MAXIMUM} bytes, found more"));
            return Self::refused(failure);
        }
        match bounded_json::object::<Envelope>(message) {
            Ok(envelope) => {
                let id = envelope.headers.id.clone().filter(|id| is_name(id));
                let Headers { traceparent, tracestate, .. } = &envelope.headers;
                let values = [traceparent.clone(), tracestate.clone()];
                let headers = TRACE_HEADERS.into_iter().zip(values);
                let trace = headers.filter_map(|(name, value)| Some((name.into(), value?))).collect();
                Self { id, trace, job: envelope.job(now) }
            }
            Err(failure) => Self::refused(failure),
        }
    }

    fn refused(failure: Failure) -> Self {
        Self { id: None, job: Err(failure), trace: TraceHeaders::new() }
    }
}

impl Envelope {
    fn job(self, now: DateTime<Utc>) -> Result<Job> {
        let Self { body, headers, properties, content_type, content_encoding } = self;
        let expected = |what: &str| Failure::invalid(format!("expected a task of Celery's protocol 2: {what}"));
        if content_type.as_deref() != Some("application/json") {
            return Err(expected("content-type of application/json (task_serializer = \"json\")"));
        }
        if content_encoding.as_deref().is_some_and(|encoding| encoding != "utf-8") || headers.compression.is_some() {
            return Err(expected("content-encoding of utf-8, without compression"));
        }
        let id = headers.id.ok_or_else(|| expected("the header id"))?;
        let task = headers.task.ok_or_else(|| expected("the header task"))?;
        let kind = task.strip_prefix(TASK).ok_or_else(|| expected("a task tileforge.KIND"))?;
        if headers.eta.is_some() {
            return Err(Failure::invalid("eta, countdown: expected none; jobs are done as they come"));
        }
        if let Some(expires) = headers.expires {
            let until = DateTime::parse_from_rfc3339(&expires);
            let until = until.map_err(|_| Failure::invalid("expires: expected a time with its zone"))?;
            if until < now {
                return Err(Failure::invalid(format!("the job expired at {until}")));
            }
        }
        let body = match properties.body_encoding.as_deref() {
            Some("base64") => STANDARD.decode(body).map_err(|_| expected("a body in base64"))?,
            None => body.into_bytes(),
            Some(_) => return Err(expected("body_encoding of base64")),
        };
        let Body(positional, fields, after) = serde_json::from_slice(&body)
            .map_err(|error| Failure::invalid(format!("the body [args, kwargs, embed]: {error}")))?;
        if positional.0 {
            return Err(Failure::invalid("args: expected none; a job is given by names (kwargs)"));
        }
        let has = |entries: &Option<HasEntries>| entries.is_some_and(|entries| entries.0);
        if has(&after.callbacks) || has(&after.errbacks) || has(&after.chain) || after.chord.is_some() {
            return Err(Failure::invalid(
                "link, link_error, chain, chord: expected none; nothing is called afterwards",
            ));
        }
        Job::of(&id, kind, fields)
    }
}

/// The answer of a task that succeeded, as Celery's result backend has it.
pub(super) fn success(id: &str, done: &Done, now: DateTime<Utc>) -> Value {
    answer(id, "SUCCESS", json!(done), now)
}

/// The answer of a task that failed. Clients raise it as a RuntimeError.
pub(super) fn failure(id: &str, reason: &str, now: DateTime<Utc>) -> Value {
    let error = json!({ "exc_type": "RuntimeError", "exc_message": [reason], "exc_module": "builtins" });
    answer(id, "FAILURE", error, now)
}

fn answer(id: &str, status: &str, result: Value, now: DateTime<Utc>) -> Value {
    let time = now.to_rfc3339_opts(SecondsFormat::Micros, false);
    json!({
        "task_id": id, "status": status, "result": result, "traceback": null, "children": [], "date_done": time,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test's way to fail

    use proptest::prelude::*;

    use super::*;

    const ID: &str = "6d6b7f2e-3c53-4e40-9c23-8d0ba2f2c1aa";

    fn now() -> DateTime<Utc> {
        "2026-11-25T12:00:00Z".parse().unwrap()
    }

    /// A message as Celery 5.7 writes it, with a change.
    fn message(change: impl FnOnce(&mut Value, &mut Value)) -> Vec<u8> {
        let mut body = json!([
            [],
            { "inputs": { "image": "s3://b/in.png" }, "output": "s3://b/out.png", "options": { "engine": "x" } },
            { "callbacks": null, "errbacks": null, "chain": null, "chord": null },
        ]);
        let mut envelope = json!({
            "content-encoding": "utf-8", "content-type": "application/json",
            "headers": {
                "lang": "py", "task": "tileforge.upscale", "id": ID, "shadow": null, "eta": null, "expires": null,
                "group": null, "group_index": null, "retries": 0, "timelimit": [null, null], "root_id": ID,
                "parent_id": null, "argsrepr": "()", "kwargsrepr": "{}", "origin": "gen1@host",
                "ignore_result": false, "replaced_task_nesting": 0, "stamped_headers": null, "stamps": {},
            },
            "properties": {
                "correlation_id": ID, "reply_to": ID, "delivery_mode": 2, "priority": 0, "body_encoding": "base64",
                "delivery_info": { "exchange": "", "routing_key": "tileforge" }, "delivery_tag": ID,
            },
        });
        change(&mut envelope, &mut body);
        if envelope["body"].is_null() {
            envelope["body"] = STANDARD.encode(body.to_string()).into();
        }
        envelope.to_string().into_bytes()
    }

    #[test]
    fn a_task_is_a_job() {
        let task = Task::parse(&message(|_, _| {}), now());
        let job = task.job.unwrap();
        assert_eq!((task.id.as_deref(), job.id.as_str(), job.kind), (Some(ID), ID, "upscale"));
        assert_eq!((job.output.as_str(), job.options["engine"].as_str()), ("s3://b/out.png", "x"));
        let plain = message(|envelope, body| {
            envelope["body"] = body.to_string().into();
            envelope["properties"] = json!({});
        });
        assert!(Task::parse(&plain, now()).job.is_ok());
        let in_time = message(|envelope, _| envelope["headers"]["expires"] = "2026-11-25T13:00:00.5+00:00".into());
        assert!(Task::parse(&in_time, now()).job.is_ok());
    }

    #[test]
    fn what_is_not_served_is_refused_and_the_client_is_told() {
        type Change = fn(&mut Value, &mut Value);
        let cases: [(Change, &str); 14] = [
            (|e, _| e["content-type"] = "application/x-python-serialize".into(), "content-type of application/json"),
            (|e, _| e["headers"]["compression"] = "application/x-gzip".into(), "without compression"),
            (|e, _| e["headers"]["task"] = "os.system".into(), "a task tileforge.KIND"),
            (|e, _| e["headers"]["task"] = "tileforge.shell".into(), "kind: expected one of"),
            (|e, _| e["headers"]["eta"] = "2026-11-25T13:00:00+00:00".into(), "eta, countdown: expected none"),
            (|e, _| e["headers"]["expires"] = "2026-11-25T11:00:00+00:00".into(), "the job expired at"),
            (|e, _| e["headers"]["expires"] = "tomorrow".into(), "expires: expected a time"),
            (|e, _| e["properties"]["body_encoding"] = "rot13".into(), "body_encoding of base64"),
            (|e, _| e["body"] = "%%%".into(), "a body in base64"),
            (|_, b| b[0] = json!(["x"]), "args: expected none"),
            (|_, b| b[2]["chain"] = json!([{ "task": "x" }]), "nothing is called afterwards"),
            (|_, b| b[2]["chord"] = json!({}), "nothing is called afterwards"),
            (|_, b| b[1]["id"] = "other".into(), "id, kind: expected none"),
            (|_, b| *b = json!([]), "the body [args, kwargs, embed]"),
        ];
        for (change, expected) in cases {
            let task = Task::parse(&message(change), now());
            let found = task.job.unwrap_err().message;
            assert!(found.contains(expected) && task.id.as_deref() == Some(ID), "{expected}: {found}");
        }
        for bytes in [&b"\xff"[..], b"{}", b"[]", b"null", br#"{"body": 1}"#, br#"{"body": "", "headers": []}"#] {
            let task = Task::parse(bytes, now());
            assert!(task.job.is_err() && task.id.is_none());
        }
        // An id becomes a key in Redis.
        let strange = message(|e, _| e["headers"]["id"] = "a\r\nb".into());
        let task = Task::parse(&strange, now());
        assert!(task.id.is_none() && task.job.is_err());
        assert!(Task::parse(&vec![b' '; BYTES_MAXIMUM + 1], now()).job.is_err());
    }

    proptest! {
        /// Messages with changed bytes give a task or a reason.
        #[test]
        fn no_message_does_harm(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
            let mut bytes = message(|_, _| {});
            for (place, byte) in changes {
                let place = place.index(bytes.len());
                bytes[place] = byte;
            }
            let task = Task::parse(&bytes, now());
            if let Ok(job) = task.job {
                prop_assert!(is_name(&job.id));
            }
        }
    }
}
