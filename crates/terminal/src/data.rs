//! Where users keep engines.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::system::places;

/// `tileforge` in `XDG_DATA_HOME`, or in `~/.local/share`; `None` if there is neither.
///
/// By the XDG base directory specification, a relative `XDG_DATA_HOME` is ignored. On Windows, the folder is in the
/// user's folder for local application data.
pub fn data_folder() -> Option<PathBuf> {
    folder(|name| std::env::var_os(name))
}

/// The folders to search for engines by name: `engines/` below the current folder, then in the user's data folder.
pub fn engine_folders() -> Vec<PathBuf> {
    std::iter::once("engines".into()).chain(data_folder().map(|data| data.join("engines"))).collect()
}

fn folder(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    places::data(variable).map(|data| data.join("tileforge"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_folder_is_where_the_user_keeps_data() {
        let with = |variables: &[(&str, &str)]| {
            folder(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into()))
        };
        assert_eq!(with(&[("XDG_DATA_HOME", "/d"), ("HOME", "/h")]), Some("/d/tileforge".into()));
        assert_eq!(with(&[("HOME", "/h")]), Some("/h/.local/share/tileforge".into()));
        assert_eq!(with(&[("XDG_DATA_HOME", "d"), ("HOME", "/h")]), Some("/h/.local/share/tileforge".into()));
        assert_eq!(with(&[("XDG_DATA_HOME", ""), ("HOME", "")]), None);
    }
}
