//! How errors name their place.

use std::path::Path;

/// An error with its place.
pub(super) fn at(path: &Path, reason: &dyn std::fmt::Display) -> String {
    format!("{}: {reason}", path.display())
}
