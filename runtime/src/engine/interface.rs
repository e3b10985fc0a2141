//! Reading an [`Interface`] or a [`Component`] from the metadata that the exporter writes into an ONNX file.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use super::manifest::{Component, Interface, Task};
use crate::error::{Error, Result};

impl Interface {
    /// Reads the keys `tileforge.task`, `.input`, `.output`, `.scale`, `.channels`, `.range`
    /// ("0..1"), `.size_multiple`, `.size_minimum`, `.padding`, `.receptive_field` (a number of
    /// pixels or "unbounded") and `.safe_precisions` ("fp32,fp16").
    ///
    /// # Errors
    /// [`Error::Manifest`] that names the key which is missing or cannot be understood.
    pub fn from_metadata(metadata: &BTreeMap<String, String>) -> Result<Self> {
        let metadata = Metadata(metadata);
        let task: Task = metadata.parse("task")?;
        if task != Task::Upscale {
            return Err(bad(
                "task",
                task.name(),
                format!("expected {}, as other networks take no pictures", Task::Upscale),
            ));
        }
        let interface = Self {
            task,
            input: metadata.text("input")?.to_owned(),
            output: metadata.text("output")?.to_owned(),
            scale: metadata.parse("scale")?,
            channels: metadata.parse("channels")?,
            range: metadata.range()?,
            size_multiple: metadata.parse("size_multiple")?,
            size_minimum: metadata.parse("size_minimum")?,
            padding: metadata.parse("padding")?,
            receptive_field: match metadata.text("receptive_field")? {
                "unbounded" => None,
                _ => Some(metadata.parse("receptive_field")?),
            },
            safe_precisions: metadata.list("safe_precisions")?,
        };
        interface.validate()?;
        Ok(interface)
    }
}

impl Component {
    /// Reads the keys `tileforge.task` and `.safe_precisions`, and keeps what else there is but `.architecture`,
    /// `.hyperparameters` and `.parameters`.
    ///
    /// # Errors
    /// [`Error::Manifest`] that names the key which is missing or cannot be understood.
    pub fn from_metadata(metadata: &BTreeMap<String, String>) -> Result<Self> {
        const ELSEWHERE: [&str; 5] = ["task", "safe_precisions", "architecture", "hyperparameters", "parameters"];
        let facts = metadata
            .iter()
            .filter_map(|(key, value)| Some((key.strip_prefix("tileforge.")?.to_owned(), value.clone())));
        let facts = facts.filter(|(key, _)| !ELSEWHERE.contains(&key.as_str())).collect();
        let metadata = Metadata(metadata);
        let component =
            Self { task: metadata.parse("task")?, facts, safe_precisions: metadata.list("safe_precisions")? };
        component.validate()?;
        Ok(component)
    }
}

/// The task that the metadata of a graph names.
///
/// # Errors
/// [`Error::Manifest`]: there is none, or it is unknown.
pub fn task(metadata: &BTreeMap<String, String>) -> Result<Task> {
    Metadata(metadata).parse("task")
}

struct Metadata<'m>(&'m BTreeMap<String, String>);

impl<'m> Metadata<'m> {
    fn text(&self, key: &str) -> Result<&'m str> {
        let text = self.0.get(&format!("tileforge.{key}")).map(|text| text.trim());
        text.ok_or_else(|| {
            Error::Manifest(format!("the graph's metadata lacks tileforge.{key}; export it with Tileforge's exporter"))
        })
    }

    fn parse<T: FromStr<Err: Display>>(&self, key: &str) -> Result<T> {
        let text = self.text(key)?;
        text.parse().map_err(|error| bad(key, text, error))
    }

    fn list<T: FromStr<Err: Display>>(&self, key: &str) -> Result<Vec<T>> {
        let text = self.text(key)?;
        text.split(',').map(|item| item.trim().parse().map_err(|error| bad(key, text, error))).collect()
    }

    fn range(&self) -> Result<[f32; 2]> {
        let text = self.text("range")?;
        let (low, high) = text.split_once("..").ok_or_else(|| bad("range", text, "expected low..high"))?;
        let number = |part: &str| part.trim().parse::<f32>().map_err(|error| bad("range", text, error));
        Ok([number(low)?, number(high)?])
    }
}

fn bad(key: &str, text: &str, problem: impl Display) -> Error {
    Error::Manifest(format!("the graph's metadata has tileforge.{key} = \"{text}\": {problem}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::manifest::Precision;

    fn metadata() -> BTreeMap<String, String> {
        [
            ("task", "upscale"),
            ("input", "input"),
            ("output", "output"),
            ("scale", "4"),
            ("channels", "3"),
            ("range", "0..1"),
            ("size_multiple", "1"),
            ("size_minimum", "1"),
            ("padding", "reflect"),
            ("receptive_field", "18"),
            ("safe_precisions", "fp32, fp16"),
        ]
        .map(|(key, value)| (format!("tileforge.{key}"), value.to_owned()))
        .into()
    }

    #[test]
    fn all_keys_are_read() {
        let interface = Interface::from_metadata(&metadata()).unwrap();
        assert_eq!((interface.scale, interface.channels, interface.range), (4, 3, [0.0, 1.0]));
        assert_eq!(interface.receptive_field, Some(18));
        assert_eq!(interface.safe_precisions, [Precision::Fp32, Precision::Fp16]);
    }

    #[test]
    fn an_unbounded_receptive_field_is_none() {
        let mut metadata = metadata();
        metadata.insert("tileforge.receptive_field".into(), "unbounded".into());
        assert_eq!(Interface::from_metadata(&metadata).unwrap().receptive_field, None);
    }

    #[test]
    fn a_component_keeps_what_is_said_of_it() {
        let mut metadata = metadata();
        metadata.extend(
            [("task", "vae_decoder"), ("scaling_factor", "0.13025"), ("architecture", "AutoencoderKL")]
                .map(|(key, value)| (format!("tileforge.{key}"), value.to_owned())),
        );
        let component = Component::from_metadata(&metadata).unwrap();
        assert_eq!((component.task, component.facts["scaling_factor"].as_str()), (Task::VaeDecoder, "0.13025"));
        assert!(!component.facts.contains_key("architecture") && !component.facts.contains_key("task"));
        assert!(Interface::from_metadata(&metadata).unwrap_err().to_string().contains("tileforge.task"));
        metadata.insert("tileforge.task".into(), "upscale".into());
        assert!(Component::from_metadata(&metadata).unwrap_err().to_string().contains("component.task"));
    }

    #[test]
    fn every_key_is_needed_and_named_when_it_is_missing_or_bad() {
        for key in metadata().keys() {
            let mut missing = metadata();
            missing.remove(key);
            let error = Interface::from_metadata(&missing).unwrap_err().to_string();
            assert!(error.contains(key.as_str()), "{error}");
            if !key.ends_with("put") {
                let mut bad = metadata();
                bad.insert(key.clone(), "?".into());
                let error = Interface::from_metadata(&bad).unwrap_err().to_string();
                assert!(error.contains(key.as_str()), "{error}");
            }
        }
    }
}
