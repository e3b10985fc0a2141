//! Where programs keep a user's caches and data on this machine: the folder for local application data, whose path
//! Windows gives to every process.

use std::ffi::OsString;
use std::path::PathBuf;

/// `%LOCALAPPDATA%`.
pub(crate) fn caches(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    local(variable)
}

/// `%LOCALAPPDATA%`.
pub(crate) fn data(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    local(variable)
}

fn local(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    variable("LOCALAPPDATA").map(PathBuf::from).filter(|path| path.is_absolute())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_are_in_the_folder_for_local_data() {
        let with = |value: &'static str| move |name: &str| (name == "LOCALAPPDATA").then(|| value.into());
        assert_eq!(caches(with(r"C:\d")), Some(r"C:\d".into()));
        assert_eq!(data(with(r"C:\d")), Some(r"C:\d".into()));
        assert_eq!(data(with("d")), None);
    }
}
