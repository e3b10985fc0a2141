//! What was written.

use super::link::LinkedFile;
use std::path::PathBuf;

/// The files that were written.
#[derive(Debug, Clone, Default)]
pub struct SaveReport {
    /// The weight file, if one was needed, and its bytes.
    pub weights: Option<(PathBuf, u64)>,
    /// Checkpoints that the graph points into.
    pub linked: Vec<LinkedFile>,
}
