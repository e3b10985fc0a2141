//! Names from files, and names as bytes.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::path::{Component, MAIN_SEPARATOR, Path};

use crate::system::names;

/// Whether a name from a file is one plain name: joined to a folder, it stays in that folder, on every system. It also
/// has no control characters, so a terminal can show it.
pub fn is_plain(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    matches!(parts.next(), Some(Component::Normal(part)) if part == name)
        && parts.next().is_none()
        && !name.contains(['/', '\\', ':'])
        && !name.chars().any(char::is_control)
        && !names::is_reserved(OsStr::new(name))
}

/// A name from these bytes. They must be text, and parts of names as [`OsStr::as_encoded_bytes`] gives them, which
/// begin and end next to text.
pub fn from_bytes(bytes: Vec<u8>) -> OsString {
    names::from_bytes(bytes)
}

/// A path as text with `/` between its names, on every system.
pub fn with_slashes(path: &str) -> Cow<'_, str> {
    if MAIN_SEPARATOR == '/' { path.into() } else { path.replace(MAIN_SEPARATOR, "/").into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_name_in_a_folder_is_plain() {
        for name in ["", ".", "..", "a/b", "/a", "a/", "./a", "a\\b", "c:a", "a\0", "a\nb", "a\u{1b}[2J", "a\u{9b}2J"] {
            assert!(!is_plain(name), "{name:?}");
        }
        for name in ["a", "model.weights", ".a", "..a", "tile 64.onnx", "Größe"] {
            assert!(is_plain(name), "{name:?}");
        }
    }
}
