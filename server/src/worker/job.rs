//! A job, as it stands in messages.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer};

use crate::bounded_json;
use crate::failure::{Failure, Result};
use crate::jobs::KINDS;
use crate::repository::is_name;

/// Larger messages become dead letters without being parsed.
pub(super) const BYTES_MAXIMUM: usize = 512 << 10;

/// The longest URL.
const URL_MAXIMUM: usize = 2048;

/// The files that a job may have.
const FILES: [&str; 2] = ["image", "mask"];

/// A job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Job {
    /// The client's id. Messages with the same id are one job.
    pub(super) id: String,
    /// One of [`KINDS`].
    pub(super) kind: &'static str,
    /// Its files, by the names of the form's fields.
    pub(super) inputs: Vec<(String, Input)>,
    /// The URL of the object that the result becomes.
    pub(super) output: String,
    /// Its settings, by the names of the form's fields.
    pub(super) options: BTreeMap<String, String>,
}

/// A file of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// It is in the message.
    Inline(Bytes),
    /// It is at this URL.
    Object(String),
}

/// A job without its id and its kind, which some brokers have outside of it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Fields {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    kind: Option<String>,
    #[serde(default)]
    inputs: BTreeMap<String, String>,
    output: String,
    #[serde(default)]
    options: BTreeMap<String, Setting>,
}

/// The value of a setting: a text, a number, `true` or `false`.
#[derive(Debug)]
struct Setting(String);

impl<'de> Deserialize<'de> for Setting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct OfSetting;
        impl Visitor<'_> for OfSetting {
            type Value = Setting;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a text, a number, true or false")
            }

            fn visit_str<E>(self, text: &str) -> std::result::Result<Setting, E> {
                Ok(Setting(text.to_owned()))
            }

            fn visit_bool<E>(self, value: bool) -> std::result::Result<Setting, E> {
                Ok(Setting(value.to_string()))
            }

            fn visit_i64<E>(self, value: i64) -> std::result::Result<Setting, E> {
                Ok(Setting(value.to_string()))
            }

            fn visit_u64<E>(self, value: u64) -> std::result::Result<Setting, E> {
                Ok(Setting(value.to_string()))
            }

            fn visit_f64<E: de::Error>(self, value: f64) -> std::result::Result<Setting, E> {
                Ok(Setting(value.to_string()))
            }
        }
        deserializer.deserialize_any(OfSetting)
    }
}

impl Job {
    /// The job in a message.
    pub(super) fn parse(message: &[u8]) -> Result<Self> {
        if message.len() > BYTES_MAXIMUM {
            return Err(Failure::invalid(format!("expected a message of at most {BYTES_MAXIMUM} bytes, found more")));
        }
        let mut fields: Fields = bounded_json::object(message)?;
        let id = fields.id.take().ok_or_else(|| Failure::invalid("id: expected a text"))?;
        let kind = fields.kind.take().ok_or_else(|| Failure::invalid("kind: expected a text"))?;
        Self::of(&id, &kind, fields)
    }

    /// A job whose id and kind are outside of its fields.
    pub(super) fn of(id: &str, kind: &str, fields: Fields) -> Result<Self> {
        let Fields { id: other_id, kind: other_kind, inputs, output, options } = fields;
        if other_id.is_some() || other_kind.is_some() {
            return Err(Failure::invalid("id, kind: expected none beside those of the message"));
        }
        if !is_name(id) {
            let message = "id: expected 1 to 128 letters, digits, `.`, `_` and `-`, of which the first is no `.`";
            return Err(Failure::invalid(message));
        }
        let known = KINDS.into_iter().find(|known| *known == kind);
        let kind = known.ok_or_else(|| Failure::invalid(format!("kind: expected one of {}", KINDS.join(", "))))?;
        let mut files = Vec::new();
        for (name, text) in inputs {
            if !FILES.contains(&name.as_str()) {
                return Err(Failure::invalid(format!("inputs: expected {}, found another one", FILES.join(", "))));
            }
            let input = Input::read(text).map_err(|problem| Failure::invalid(format!("inputs.{name}: {problem}")))?;
            files.push((name, input));
        }
        let output = url(output).map_err(|problem| Failure::invalid(format!("output: {problem}")))?;
        let options = options.into_iter().map(|(name, Setting(text))| (name, text)).collect();
        Ok(Self { id: id.to_owned(), kind, inputs: files, output, options })
    }
}

impl Input {
    fn read(text: String) -> std::result::Result<Self, String> {
        let Some(inline) = text.strip_prefix("data:") else { return url(text).map(Self::Object) };
        let coded = inline.split_once(";base64,").map(|(_, coded)| coded);
        let bytes = coded.and_then(|coded| STANDARD.decode(coded).ok());
        bytes.map(|bytes| Self::Inline(bytes.into())).ok_or_else(|| "expected data:MEDIA;base64,BYTES".into())
    }
}

fn url(text: String) -> std::result::Result<String, String> {
    let is_sound = text.len() <= URL_MAXIMUM && text.contains("://");
    if is_sound { Ok(text) } else { Err(format!("expected a URL of at most {URL_MAXIMUM} bytes")) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test's way to fail

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn refused(text: &str) -> String {
        Job::parse(text.as_bytes()).unwrap_err().message
    }

    #[test]
    fn a_job_is_read() {
        let text = json!({
            "id": "a-1", "kind": "upscale", "output": "s3://b/out.png",
            "inputs": { "image": "s3://b/in.png", "mask": "data:image/png;base64,aGk=" },
            "options": { "engine": "photo", "steps": 20, "strength": 0.5, "stream": false },
        });
        let job = Job::parse(text.to_string().as_bytes()).unwrap();
        assert_eq!((job.id.as_str(), job.kind, job.output.as_str()), ("a-1", "upscale", "s3://b/out.png"));
        let [image, mask] = <[_; 2]>::try_from(job.inputs).unwrap();
        assert_eq!(image, ("image".into(), Input::Object("s3://b/in.png".into())));
        assert_eq!(mask, ("mask".into(), Input::Inline(Bytes::from_static(b"hi"))));
        let options: Vec<_> = job.options.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        assert_eq!(options, [("engine", "photo"), ("steps", "20"), ("stream", "false"), ("strength", "0.5")]);
    }

    #[test]
    fn what_is_no_job_is_refused_with_a_reason() {
        for (text, expected) in [
            ("", "the body: expected a JSON object"),
            ("[]", "the body: expected a JSON object"),
            ("{", "the body: EOF"),
            ("{}", "the body: missing field `output`"),
            (r#"{"output": 1}"#, "the body: invalid type: integer `1`, expected a string"),
            (r#"{"output": "s3://b/x", "id": "a"}"#, "kind: expected a text"),
            (r#"{"output": "s3://b/x", "id": "../a", "kind": "upscale"}"#, "id: expected 1 to 128"),
            (r#"{"output": "s3://b/x", "id": "a", "kind": "shell"}"#, "kind: expected one of upscale, depth"),
            (r#"{"output": "s3://b/x", "id": "a", "kind": "depth", "engin": "x"}"#, "the body: unknown field `engin`"),
            (r#"{"output": "x", "id": "a", "kind": "depth"}"#, "output: expected a URL"),
            (
                r#"{"output": "s3://b/x", "id": "a", "kind": "depth", "inputs": {"image": "data:,x"}}"#,
                "inputs.image: expected data:",
            ),
            (
                r#"{"output": "s3://b/x", "id": "a", "kind": "depth", "inputs": {"../x": "s3://b/x"}}"#,
                "inputs: expected image, mask",
            ),
            (
                r#"{"output": "s3://b/x", "id": "a", "kind": "depth", "options": {"n": [1]}}"#,
                "the body: invalid type: sequence, expected a text, a number",
            ),
        ] {
            let found = refused(text);
            assert!(found.starts_with(expected), "{text}: {found}");
        }
        let deep = format!("{}{}", r#"{"options":{"a":"#, "[".repeat(100_000));
        assert!(refused(&deep).starts_with("the body: "), "{}", refused(&deep));
        assert!(refused(&" ".repeat(BYTES_MAXIMUM + 1)).starts_with("expected a message of at most"));
    }

    proptest! {
        /// Any bytes give a job or a reason, and every parsed job is within the limits.
        #[test]
        fn no_message_does_harm(message in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..256),
            r#"\{("(id|kind|inputs|output|options)": ?("[a-z:/.]{0,9}"|[0-9]{1,20}|\{\}|\[\]|null),? ?){0,6}\}"#
                .prop_map(String::into_bytes),
        ]) {
            if let Ok(job) = Job::parse(&message) {
                prop_assert!(is_name(&job.id) && KINDS.contains(&job.kind) && job.output.len() <= URL_MAXIMUM);
            }
        }
    }
}
