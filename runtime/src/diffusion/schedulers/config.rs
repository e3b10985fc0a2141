//! `scheduler_config.json`: a class and its values.

use std::io::Read;
use std::path::Path;

use serde_json::{Map, Value};

use super::class::Class;
use super::error::{Error, Result};
use super::keys::KEYS;
use crate::diffusion::quote::quoted;

/// The most bytes of a file. The longest published ones list 1000 betas.
const MOST_BYTES: u64 = 1 << 20;
/// The most training timesteps: more than any published model has, but still little memory.
const MOST_TRAIN_TIMESTEPS: usize = 100_000;

/// A scheduler's class and values, as diffusers writes them.
///
/// A value that is absent or null is the default of the class. A value of another class is kept and has no effect, as
/// in diffusers, so that [`Config::with_class`] can use it.
#[derive(Clone, Debug)]
pub struct Config {
    class: Class,
    values: Map<String, Value>,
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// The file cannot be read or is larger than 1 MiB; otherwise as [`Config::parse`].
    pub fn open(path: &Path) -> Result<Self> {
        let failed = |source| Error::Read { path: path.into(), source };
        let mut text = String::new();
        let file = std::fs::File::open(path).map_err(failed)?;
        file.take(MOST_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
        if text.len() as u64 > MOST_BYTES {
            return Err(Error::Large { path: path.into(), most: MOST_BYTES });
        }
        Self::parse(&text)
    }

    /// Takes the bytes of a file.
    ///
    /// # Errors
    /// As [`Config::parse`].
    pub fn parse_bytes(bytes: &[u8]) -> Result<Self> {
        // Checked first, so that no large input is copied.
        if bytes.len() as u64 > MOST_BYTES {
            return Err(Error::Long { found: bytes.len(), most: MOST_BYTES });
        }
        Self::parse(&String::from_utf8_lossy(bytes))
    }

    /// Takes the text of a file.
    ///
    /// # Errors
    /// The text is larger than 1 MiB or no JSON object, names no class or an unknown one, or has a key that no
    /// scheduler of diffusers has. Values are checked only when a scheduler is made.
    pub fn parse(text: &str) -> Result<Self> {
        if text.len() as u64 > MOST_BYTES {
            return Err(Error::Long { found: text.len(), most: MOST_BYTES });
        }
        let mut values: Map<String, Value> = serde_json::from_str(&quote_infinity(text))?;
        let class = match values.remove("_class_name") {
            Some(Value::String(class)) => class,
            other => other.unwrap_or_default().to_string(),
        };
        // Names that start with an underscore are diffusers' own notes, such as its version.
        for key in values.keys().filter(|key| !key.starts_with('_')) {
            if KEYS.binary_search(&key.as_str()).is_err() {
                let nearest = KEYS.into_iter().filter(|known| strsim::damerau_levenshtein(known, key) <= 2);
                let nearest = nearest.min_by_key(|known| strsim::damerau_levenshtein(known, key));
                return Err(Error::Key { key: key.clone(), nearest });
            }
        }
        Ok(Self { class: Class::named(&class)?, values })
    }

    /// The same values for another class, as in diffusers' `from_config`.
    ///
    /// # Errors
    /// There is no such class.
    pub fn with_class(self, class: &str) -> Result<Self> {
        Ok(self.of_kind(Class::named(class)?))
    }

    pub(super) fn set(&mut self, key: &'static str, value: impl Into<Value>) {
        self.values.insert(key.into(), value.into());
    }

    pub(super) fn of_kind(mut self, class: Class) -> Self {
        // diffusers drops values that the new class does not have. Some classes use these two anyway if they are
        // present.
        let has_bounds = |class| matches!(class, Class::EulerDiscrete | Class::UniPcMultistep);
        if has_bounds(self.class) && !has_bounds(class) {
            self.values.shift_remove("sigma_min");
            self.values.shift_remove("sigma_max");
        }
        self.class = class;
        self
    }

    /// The name of the class in diffusers.
    pub fn class(&self) -> &'static str {
        self.class.name()
    }

    /// The keys of the class's values, without diffusers' own notes.
    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str).filter(|key| !key.starts_with('_'))
    }

    /// The value of a key.
    pub(super) fn value(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    /// The same with the class's default for a key.
    pub(super) fn without(&self, key: &str) -> Self {
        let mut other = self.clone();
        other.values.shift_remove(key);
        other
    }

    pub(super) fn kind(&self) -> Class {
        self.class
    }

    fn get(&self, key: &'static str) -> Option<&Value> {
        self.values.get(key).filter(|value| !value.is_null())
    }

    fn wrong(&self, key: &'static str, value: &Value, expected: impl Into<String>) -> Error {
        Error::Value { class: self.class().into(), key, found: quoted(&value.to_string()), expected: expected.into() }
    }

    pub(super) fn conflict(&self, reason: &'static str) -> Error {
        Error::Combination { class: self.class().into(), reason }
    }

    /// A finite number, or infinity where JSON from Python writes `Infinity`.
    pub(super) fn number(&self, key: &'static str) -> Result<Option<f64>> {
        let number = |value: &Value| match value {
            Value::String(text) if text == "Infinity" => Some(f64::INFINITY),
            Value::String(text) if text == "-Infinity" => Some(f64::NEG_INFINITY),
            value => value.as_f64(),
        };
        self.get(key).map(|value| number(value).ok_or_else(|| self.wrong(key, value, "a number"))).transpose()
    }

    /// A number between two others, both included.
    pub(super) fn number_within(&self, key: &'static str, default: f64, least: f64, most: f64) -> Result<f64> {
        let found = self.number(key)?.unwrap_or(default);
        if !(least..=most).contains(&found) {
            let value = self.get(key).cloned().unwrap_or_default();
            return Err(self.wrong(key, &value, format!("a number from {least} to {most}")));
        }
        Ok(found)
    }

    /// A positive number.
    pub(super) fn positive(&self, key: &'static str) -> Result<Option<f64>> {
        match self.number(key)? {
            Some(found) if !(found > 0.0 && found.is_finite()) => {
                Err(self.wrong(key, self.get(key).unwrap_or(&Value::Null), "a positive number"))
            }
            found => Ok(found),
        }
    }

    /// An integer between two others, both included. The default is checked, too: the limits of some keys are the
    /// values of other keys.
    pub(super) fn count(&self, key: &'static str, default: usize, least: usize, most: usize) -> Result<usize> {
        let value = self.get(key).cloned().unwrap_or_else(|| default.into());
        let found = value.as_u64().and_then(|found| usize::try_from(found).ok());
        let found = found.filter(|found| (least..=most).contains(found));
        found.ok_or_else(|| self.wrong(key, &value, format!("a whole number from {least} to {most}")))
    }

    pub(super) fn flag(&self, key: &'static str, default: bool) -> Result<bool> {
        let Some(value) = self.get(key) else { return Ok(default) };
        value.as_bool().ok_or_else(|| self.wrong(key, value, "true or false"))
    }

    /// One of several names.
    pub(super) fn choice<T: Copy>(&self, key: &'static str, default: T, choices: &[(&str, T)]) -> Result<T> {
        let Some(value) = self.get(key) else { return Ok(default) };
        let found = choices.iter().find(|(name, _)| value.as_str() == Some(name));
        found.map(|(_, choice)| *choice).ok_or_else(|| {
            let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
            self.wrong(key, value, names.join(" or "))
        })
    }

    /// A list of finite numbers.
    pub(super) fn numbers(&self, key: &'static str) -> Result<Option<Vec<f64>>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let numbers: Option<Vec<f64>> = value.as_array().and_then(|list| list.iter().map(Value::as_f64).collect());
        numbers.map(Some).ok_or_else(|| self.wrong(key, value, "a list of numbers"))
    }

    /// Refuses values that diffusers knows for this class and that are not supported here.
    pub(super) fn refuse(&self, keys: &[&'static str]) -> Result<()> {
        for key in keys {
            if let Some(value) = self.get(key).filter(|value| **value != Value::Bool(false)) {
                return Err(self.wrong(key, value, "false or nothing: it is not supported"));
            }
        }
        Ok(())
    }

    pub(super) fn train_timesteps(&self) -> Result<usize> {
        self.count("num_train_timesteps", 1000, 2, MOST_TRAIN_TIMESTEPS)
    }
}

/// Python writes infinity as a bare word, which is no JSON: puts it into quotes.
fn quote_infinity(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len());
    let (mut in_string, mut escaped) = (false, false);
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let word = ["-Infinity", "Infinity"].into_iter().find(|word| !in_string && rest.starts_with(word));
        if let Some(word) = word {
            quoted.extend(["\"", word, "\""]);
            rest = &rest[word.len()..];
            continue;
        }
        in_string ^= character == '"' && !escaped;
        escaped = character == '\\' && !escaped;
        quoted.push(character);
        rest = &rest[character.len_utf8()..];
    }
    quoted
}

#[cfg(test)]
mod tests {
    use super::{Config, quote_infinity};

    fn refused(text: &str) -> String {
        Config::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn infinity_of_python_is_read() {
        assert_eq!(
            quote_infinity(r#"{"a": -Infinity, "b\"Infinity": "Infinity"}"#),
            r#"{"a": "-Infinity", "b\"Infinity": "Infinity"}"#
        );
        let config = Config::parse(r#"{"_class_name": "DDIMScheduler", "lambda_min_clipped": -Infinity}"#).unwrap();
        assert_eq!(config.number("lambda_min_clipped").unwrap(), Some(f64::NEG_INFINITY));
    }

    #[test]
    fn unknown_classes_and_keys_are_refused() {
        assert!(
            refused(r#"{"_class_name": "DDIMInverse"}"#).starts_with("unknown scheduler class \"DDIMInverse\"; ex")
        );
        assert!(refused("{}").starts_with("unknown scheduler class \"null\""));
        assert!(refused("[]").contains("is not a JSON object"));
        let text = refused(r#"{"_class_name": "DDIMScheduler", "beta_strat": 0.1}"#);
        assert!(text.contains("unknown key \"beta_strat\"") && text.contains("(is \"beta_start\" meant?)"), "{text}");
        let text = refused(r#"{"_class_name": "DDIMScheduler", "temperature": 0.1}"#);
        assert!(text.contains("configuration; remove it"), "{text}");
    }

    #[test]
    fn files_that_are_no_configurations_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("scheduler_config.json");
        assert!(Config::open(&path).unwrap_err().to_string().starts_with("cannot read"));
        std::fs::write(&path, " ".repeat(2 << 20)).unwrap();
        assert!(Config::open(&path).unwrap_err().to_string().contains("at most 1048576 bytes"));
    }
}
