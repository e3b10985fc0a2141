//! How two engines differ.

use crate::{Bundle, Result};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// One difference between two engines.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// Where in the manifest, such as `graphs.0.file` or `files.model.weights.sha256`.
    pub key: String,
    /// What the first engine has; `None` if it has no such key.
    pub first: Option<Value>,
    /// What the second engine has.
    pub second: Option<Value>,
}

/// Compares the manifests of two engines, and through the digests in them every byte of the files.
///
/// # Errors
/// One of the engines is not whole.
pub fn diff(first: &Path, second: &Path) -> Result<Vec<Difference>> {
    let leaves = |directory: &Path| -> Result<BTreeMap<String, Value>> {
        let manifest = Bundle::open(directory)?.manifest_json()?;
        let mut leaves = BTreeMap::new();
        flatten(String::new(), manifest, &mut leaves);
        Ok(leaves)
    };
    let (mut one, mut other) = (leaves(first)?, leaves(second)?);
    let keys: std::collections::BTreeSet<String> = one.keys().chain(other.keys()).cloned().collect();
    let differences =
        keys.into_iter().map(|key| Difference { first: one.remove(&key), second: other.remove(&key), key });
    Ok(differences.filter(|difference| difference.first != difference.second).collect())
}

/// Every value within `value` that contains no other values, with the keys that lead to it.
fn flatten(key: String, value: Value, leaves: &mut BTreeMap<String, Value>) {
    let within = |inner: &str| if key.is_empty() { inner.to_owned() } else { format!("{key}.{inner}") };
    match value {
        // Manifests leave empty objects out.
        Value::Object(object) => {
            object.into_iter().for_each(|(name, value)| flatten(within(&name), value, leaves));
        }
        // Shapes and ranges are shown as one value.
        Value::Array(values) if values.iter().any(|value| value.is_object() || value.is_array()) => {
            values
                .into_iter()
                .enumerate()
                .for_each(|(place, value)| flatten(within(&place.to_string()), value, leaves));
        }
        value => drop(leaves.insert(key, value)),
    }
}
