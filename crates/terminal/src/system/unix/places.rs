//! Where users keep caches and data, by the XDG base directory specification: a relative path in a variable is
//! ignored.

use std::ffi::OsString;
use std::path::PathBuf;

/// `XDG_CACHE_HOME`, or `~/.cache`.
pub(crate) fn caches(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    folder(variable, "XDG_CACHE_HOME", ".cache")
}

/// `XDG_DATA_HOME`, or `~/.local/share`.
pub(crate) fn data(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    folder(variable, "XDG_DATA_HOME", ".local/share")
}

fn folder(variable: impl Fn(&str) -> Option<OsString>, named: &str, in_home: &str) -> Option<PathBuf> {
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute(named).or_else(|| absolute("HOME").map(|home| home.join(in_home)))
}
