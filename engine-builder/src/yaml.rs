//! Strict reading of YAML files. No other module uses the YAML library.

use crate::{Error, Result};
use serde::de::DeserializeOwned;
use serde_saphyr::Error as YamlError;
use std::path::Path;
use tileforge_files::TEXT_MAXIMUM_BYTES;

/// Reads a YAML file into `T`. An error shows the line, the column and the offending text, and for an unknown key the
/// nearest valid one.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = tileforge_files::read_text(path, TEXT_MAXIMUM_BYTES).map_err(|e| Error::file(path, "read", e))?;
    serde_saphyr::from_str(&text).map_err(|e| Error::input(path, describe(&e)))
}

fn describe(error: &YamlError) -> String {
    let text = error.to_string();
    let text = text.trim_start_matches("error: ");
    let (found, expected) = match error.without_snippet() {
        YamlError::SerdeUnknownField { field, expected, .. } => (field, expected),
        YamlError::SerdeUnknownVariant { variant, expected, .. } => (variant, expected),
        _ => return text.into(),
    };
    match nearest(found, expected) {
        Some(near) => format!("{text}\n`{found}` is not known here; did you mean `{near}`?"),
        None => text.into(),
    }
}

/// The valid name that was probably meant, if one is close enough.
fn nearest<'n>(found: &str, expected: &[&'n str]) -> Option<&'n str> {
    let similar = |name: &&'n str| (strsim::damerau_levenshtein(found, name), *name);
    let (distance, name) = expected.iter().map(similar).min()?;
    // At most a third of the letters may differ. Beyond that, names have little in common.
    (distance * 3 <= name.len().max(found.len())).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_errors_find_their_name_and_other_words_do_not() {
        let names = ["streams", "precision", "provider"];
        assert_eq!(nearest("stream", &names), Some("streams"));
        assert_eq!(nearest("precison", &names), Some("precision"));
        assert_eq!(nearest("colour", &names), None);
        assert_eq!(nearest("x", &[]), None);
    }
}
