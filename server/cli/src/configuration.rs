//! The file of settings that can change while the server runs.

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use tileforge::{Placement, Provider};
use tileforge_server::NamedModel;
use tileforge_terminal::{STREAMS_MAXIMUM, threads_maximum};

use crate::arguments::Engines;
use crate::failure::{CommandResult, Error};

/// Larger files are refused.
const BYTES_MAXIMUM: u64 = 1 << 20;

/// The content of the file of `--config`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Configuration {
    /// For each name, a source or a [`EnginePlacement`].
    models: BTreeMap<String, toml::Value>,
}

/// A source, and where its engine runs. Missing values come from the command line.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EnginePlacement {
    source: String,
    provider: Option<Provider>,
    strict: Option<bool>,
    devices: Option<Vec<u32>>,
    #[serde(default, deserialize_with = "streams")]
    streams: Option<usize>,
    #[serde(default, deserialize_with = "threads")]
    threads: Option<usize>,
}

fn streams<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    number(deserializer, STREAMS_MAXIMUM.into())
}

fn threads<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    number(deserializer, threads_maximum())
}

/// A number from 1.
fn number<'de, D: Deserializer<'de>>(deserializer: D, most: usize) -> Result<Option<usize>, D::Error> {
    let number = usize::deserialize(deserializer)?;
    let wrong = || D::Error::custom(format!("expected a number from 1 to {most}, found {number}"));
    (1..=most).contains(&number).then_some(Some(number)).ok_or_else(wrong)
}

impl EnginePlacement {
    fn placement(&self, usual: &Placement) -> Placement {
        let mut placement = usual.clone();
        placement.provider = self.provider.or(placement.provider);
        placement.streams = self.streams.or(placement.streams);
        placement.devices = self.devices.clone().unwrap_or(placement.devices);
        placement.session.threads = self.threads.or(placement.session.threads);
        placement.session.strict = self.strict.unwrap_or(placement.session.strict);
        placement
    }
}

/// The models of the command line and of a file; the command line's take precedence.
pub(crate) fn models(engines: &Engines) -> CommandResult<Vec<NamedModel>> {
    let placement = engines.placement();
    let given = |(name, source): &(String, String)| NamedModel {
        name: name.clone(),
        source: source.clone(),
        placement: placement.clone(),
    };
    let mut models: Vec<NamedModel> = engines.model_name.iter().map(given).collect();
    let Some(path) = &engines.config else { return Ok(models) };
    let failed = |source| Error::Configuration { path: path.to_owned(), source };
    if path.metadata().map_err(failed)?.len() > BYTES_MAXIMUM {
        return Err(failed(std::io::Error::other(format!("expected at most {BYTES_MAXIMUM} bytes"))));
    }
    let text = std::fs::read_to_string(path).map_err(failed)?;
    let wrong = |source| Error::NotConfiguration { path: path.to_owned(), source: Box::new(source) };
    let configuration: Configuration = toml::from_str(&text).map_err(wrong)?;
    for (name, said) in configuration.models {
        let model = match said {
            toml::Value::String(source) => NamedModel { name, source, placement: placement.clone() },
            said => {
                let wrong = |source| Error::NotModel { path: path.to_owned(), name: name.clone(), source };
                let placed: EnginePlacement = said.try_into().map_err(|source| wrong(Box::new(source)))?;
                NamedModel { placement: placed.placement(&placement), source: placed.source, name }
            }
        };
        if !models.iter().any(|known| known.name == model.name) {
            models.push(model);
        }
    }
    Ok(models)
}
