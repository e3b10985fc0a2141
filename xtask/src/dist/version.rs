//! The version of a release.

/// The version of all packages of the workspace.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");
