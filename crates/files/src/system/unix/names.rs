//! Names as bytes.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;

/// A name from these bytes, which are text and parts of other names.
pub(crate) fn from_bytes(bytes: Vec<u8>) -> OsString {
    OsString::from_vec(bytes)
}

/// Whether the system uses a name for something else than a file in a folder.
pub(crate) fn is_reserved(name: &OsStr) -> bool {
    let _ = name;
    false
}
