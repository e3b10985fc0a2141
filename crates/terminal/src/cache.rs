//! Where programs keep what they can make again.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::system::places;

/// `tileforge` in `XDG_CACHE_HOME`, or in `~/.cache`; `None` if there is neither.
///
/// By the XDG base directory specification, a relative `XDG_CACHE_HOME` is ignored. On Windows, the folder is in the
/// user's folder for local application data.
pub fn cache_folder() -> Option<PathBuf> {
    folder(|name| std::env::var_os(name))
}

fn folder(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    places::caches(variable).map(|caches| caches.join("tileforge"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(variables: &[(&str, &str)]) -> Option<PathBuf> {
        folder(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into()))
    }

    #[test]
    fn the_cache_is_where_the_user_keeps_caches() {
        assert_eq!(with(&[("XDG_CACHE_HOME", "/c"), ("HOME", "/h")]), Some("/c/tileforge".into()));
        assert_eq!(with(&[("HOME", "/h")]), Some("/h/.cache/tileforge".into()));
        assert_eq!(with(&[("XDG_CACHE_HOME", "c"), ("HOME", "/h")]), Some("/h/.cache/tileforge".into()));
        assert_eq!(with(&[("XDG_CACHE_HOME", ""), ("HOME", "")]), None);
        assert_eq!(with(&[]), None);
    }
}
