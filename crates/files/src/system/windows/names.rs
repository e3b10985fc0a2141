//! Names as bytes.
//!
//! Names are 16-bit units. As bytes, they are UTF-8 in which halves of surrogate pairs may stand alone (WTF-8), which
//! is what [`OsStr::as_encoded_bytes`] gives.

use std::ffi::{OsStr, OsString};
use std::os::windows::ffi::OsStringExt;

/// Names that are devices, with or without an ending. See "Naming Files, Paths, and Namespaces" in Microsoft's
/// reference.
const DEVICES: [&str; 7] = ["CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$", "CLOCK$"];

/// A name from these bytes, which are text and parts of other names.
pub(crate) fn from_bytes(bytes: Vec<u8>) -> OsString {
    match String::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(other) => OsString::from_wide(&units(other.as_bytes())),
    }
}

/// The 16-bit units of WTF-8: UTF-8 is decoded, and the three bytes of a lone surrogate become one unit. Any other
/// byte becomes U+FFFD.
fn units(bytes: &[u8]) -> Vec<u16> {
    let mut units = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let valid = rest.utf8_chunks().next().map_or("", |chunk| chunk.valid());
        units.extend(valid.encode_utf16());
        rest = &rest[valid.len()..];
        match rest {
            [0xED, high @ 0xA0..=0xBF, low @ 0x80..=0xBF, ..] => {
                units.push(0xD000 | (u16::from(high & 0x3F) << 6) | u16::from(low & 0x3F));
                rest = &rest[3..];
            }
            [_, ..] => {
                units.push(0xFFFD);
                rest = &rest[1..];
            }
            [] => {}
        }
    }
    units
}

/// Whether the system uses a name for something else than a file in a folder, or does not allow or keep the name.
pub(crate) fn is_reserved(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    let stem = name.split('.').next().unwrap_or_default().trim_end().to_uppercase();
    let is_port = |kind: &str| {
        let number = stem.strip_prefix(kind).map(|rest| rest.chars().collect::<Vec<_>>());
        matches!(number.as_deref(), Some(['0'..='9' | '¹' | '²' | '³']))
    };
    // Windows drops dots and spaces at the end of a name.
    name.ends_with(['.', ' '])
        || name.contains(['<', '>', '"', '|', '?', '*'])
        || DEVICES.contains(&stem.as_str())
        || is_port("COM")
        || is_port("LPT")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_units_become_bytes_and_back() {
        for units in [&[0x61_u16, 0x62][..], &[0xD83D, 0xDE00], &[0xD800], &[0x61, 0xDFFF, 0xD800, 0xE9]] {
            let name = OsString::from_wide(units);
            assert_eq!(from_bytes(name.as_encoded_bytes().to_vec()), name, "{units:x?}");
        }
    }

    #[test]
    fn devices_are_no_names_of_files() {
        for name in ["NUL", "nul", "nul.txt", "con.tar.gz", "COM1", "lpt9.weights", "a.", "a ", "aux .x", "a?", "com¹"]
        {
            assert!(is_reserved(OsStr::new(name)), "{name}");
        }
        for name in ["a", "COM", "com10", "nulls", "console", ".nul", "a.nul", "model.weights"] {
            assert!(!is_reserved(OsStr::new(name)), "{name}");
        }
    }
}
