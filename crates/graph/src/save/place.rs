//! Target folders of graphs and their weights.

use std::path::Path;

/// The reason why a file that the user has not named is not replaced.
pub(super) const FOREIGN: &str = "another file of this name is there; move it away, or give the graph another name";

/// The folder of a file.
pub(super) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
