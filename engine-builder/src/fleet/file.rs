//! The file of a fleet.

use crate::{Error, Result, yaml};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use std::path::Path;
use tileforge_image::Size;

/// The cards that engines are needed for, and the models.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fleet {
    /// Profiles: their names, or paths that end in `.yaml`.
    pub cards: Vec<String>,
    /// Models: names, or paths of checkpoints, graphs, pipelines and model files.
    pub models: Vec<String>,
    /// Sizes of the pictures in pixels; they replace the sizes of model files and profiles.
    #[serde(default, deserialize_with = "sizes")]
    pub sizes: Vec<Size>,
}

fn sizes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Size>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    let size = |text: &String| {
        text.parse().map_err(|expected| D::Error::custom(format!("`sizes`: {expected}, found `{text}`")))
    };
    texts.iter().map(size).collect()
}

impl Fleet {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// It cannot be read, is not valid, names no card or no model, or names one twice.
    pub fn read(path: &Path) -> Result<Self> {
        let fleet: Self = yaml::read(path)?;
        for (key, names) in [("cards", &fleet.cards), ("models", &fleet.models)] {
            if names.is_empty() {
                return Err(Error::input(path, format!("`{key}`: expected at least one")));
            }
            let twice = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name));
            if let Some((_, name)) = twice {
                return Err(Error::input(path, format!("`{key}`: expected each once, found {name} twice")));
            }
        }
        Ok(fleet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fleet_has_cards_and_models() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fleet.yaml");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            Fleet::read(&path).map_err(|error| error.to_string())
        };
        let fleet = read("cards: [rtx4090]\nmodels: [compact-x4, a/b.safetensors]\n").unwrap();
        assert_eq!((fleet.cards.len(), fleet.models[1].as_str()), (1, "a/b.safetensors"));
        assert!(fleet.sizes.is_empty());
        let fleet = read("cards: [rtx4090]\nmodels: [compact-x4]\nsizes: [1920x1080]\n").unwrap();
        assert_eq!(fleet.sizes, [Size { width: 1920, height: 1080 }]);
        for (text, expected) in [
            ("cards: []\nmodels: [compact-x4]\n", "`cards`: expected at least one"),
            ("cards: [rtx4090]\nmodels: []\n", "`models`: expected at least one"),
            ("cards: [rtx4090]\nmodels: [a, b, a]\n", "`models`: expected each once, found a twice"),
            ("cards: [rtx4090]\nmodels: [a]\nsizes: [512]\n", "found `512`"),
            ("cards: [rtx4090]\n", "missing field `models`"),
            ("cards: [rtx4090]\nmodel: [a]\n", "did you mean `models`?"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
