//! Graphs that OpenVINO compiled on this machine.
//!
//! The time to compile grows with a graph's nodes. The time to open a compiled graph grows with its bytes, because it
//! contains the weights. So a graph is kept if compiling it took longer than opening it would.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tileforge_engine::store::Facts;
use tileforge_engine::{Error, Result};

/// The folder of the cache.
pub(super) const FOLDER: &str = "openvino";

/// Bytes that are read, digested and opened in a second on an otherwise idle machine.
const BYTES_PER_SECOND: f64 = 150e6;

/// Everything that a graph compiled by OpenVINO depends on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OpenVinoFacts {
    /// SHA-256 of the graph's file and of the weight files.
    pub(super) sha256: Vec<String>,
    /// OpenVINO's release and build number.
    pub(super) openvino: String,
    /// The processor's name, and the types that it computes in.
    pub(super) processor: String,
    /// The options.
    pub(super) properties: Vec<(String, String)>,
}

impl Facts for OpenVinoFacts {
    const MAIN: &'static str = "graph.blob";

    fn texts(&self) -> Vec<&str> {
        let digests = self.sha256.iter().map(String::as_str);
        let properties = self.properties.iter().flat_map(|(name, value)| [name.as_str(), value]);
        digests.chain([&*self.openvino, &self.processor]).chain(properties).collect()
    }

    fn check(folder: &Path, names: &[&str]) -> Result<()> {
        let missing = || Error::file(&folder.join(Self::MAIN), "find", std::io::ErrorKind::NotFound.into());
        if names.contains(&Self::MAIN) { Ok(()) } else { Err(missing()) }
    }
}

/// Whether a graph is worth keeping, by the time that compiling took and the bytes of its files.
pub(super) fn is_worth_it(compiling: Duration, bytes: u64) -> bool {
    compiling.as_secs_f64() * BYTES_PER_SECOND > bytes as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_compiled_is_found_by_everything_that_it_depends_on() {
        let facts = OpenVinoFacts {
            sha256: vec!["graph".into(), "weights".into()],
            openvino: "2026.4.1".into(),
            processor: "a processor".into(),
            properties: vec![("threads".into(), "2".into())],
        };
        assert_eq!(facts.texts(), ["graph", "weights", "2026.4.1", "a processor", "threads", "2"]);
        assert!(OpenVinoFacts::check(Path::new("x"), &["graph.blob", "facts.json"]).is_ok());
        assert!(OpenVinoFacts::check(Path::new("x"), &["facts.json"]).is_err());
    }

    #[test]
    fn a_graph_is_kept_if_opening_it_is_faster_than_compiling() {
        let second = BYTES_PER_SECOND as u64;
        assert!(is_worth_it(Duration::from_secs(2), second));
        assert!(!is_worth_it(Duration::from_secs(1), second) && !is_worth_it(Duration::from_secs(1), 2 * second));
    }
}
