//! Contracts in the metadata of ONNX files.

use std::collections::BTreeMap;

use crate::{Contract, Error, Result};

/// The key of the contract, as JSON.
pub const CONTRACT_KEY: &str = "tileforge.contract";
/// The key of the architecture's name.
pub const ARCHITECTURE_KEY: &str = "tileforge.architecture";
/// The key of the detected hyperparameters, as JSON.
pub const HYPERPARAMETERS_KEY: &str = "tileforge.hyperparameters";
/// The key of the number of elements in the checkpoint's tensors.
pub const PARAMETERS_KEY: &str = "tileforge.parameters";
/// The key of the files that a graph takes its weights from, with their sizes and digests, as JSON: checkpoints that
/// the graph points into, and its own weight file.
pub const CHECKPOINTS_KEY: &str = "tileforge.checkpoints";

/// Longer texts are refused without parsing.
const BYTES_MAXIMUM: usize = 1 << 20;

impl Contract {
    /// The contract as JSON.
    ///
    /// # Errors
    /// [`Error::Rule`]: the contract breaks a rule. For example, a number in it is NaN, which has no JSON form.
    pub fn to_json(&self) -> Result<String> {
        self.validate()?;
        let failed = |error: serde_json::Error| Error::Metadata { key: CONTRACT_KEY, reason: error.to_string() };
        serde_json::to_string(self).map_err(failed)
    }

    /// Reads a contract and checks its rules. Never panics, whatever the text is.
    ///
    /// # Errors
    /// [`Error::Metadata`]: the text is not a contract; [`Error::Rule`]: the contract breaks a rule.
    pub fn from_json(text: &str) -> Result<Self> {
        let unreadable = |reason: String| Error::Metadata { key: CONTRACT_KEY, reason };
        if text.len() > BYTES_MAXIMUM {
            return Err(unreadable(format!("expected at most {BYTES_MAXIMUM} bytes, found {}", text.len())));
        }
        let contract: Self = serde_json::from_str(text).map_err(|error| unreadable(error.to_string()))?;
        contract.validate()?;
        Ok(contract)
    }

    /// The contract in a graph's metadata.
    ///
    /// # Errors
    /// [`Error::Missing`]: there is none; otherwise as [`Contract::from_json`].
    pub fn from_metadata(metadata: &BTreeMap<String, String>) -> Result<Self> {
        Self::from_json(metadata.get(CONTRACT_KEY).ok_or(Error::Missing { key: CONTRACT_KEY })?)
    }
}
