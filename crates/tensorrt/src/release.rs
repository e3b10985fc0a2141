//! The builder's files, and its releases.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The library itself.
pub(crate) const BUILDER: &str = "libtensorrt_rtx.so.1";
/// Its parser of ONNX graphs.
pub(crate) const PARSER: &str = "libtensorrt_onnxparser_rtx.so.1";

/// A release of TensorRT for RTX, such as 1.7.1.116.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LibraryVersion {
    /// The first number.
    pub major: u32,
    /// The second.
    pub minor: u32,
    /// The third.
    pub patch: u32,
    /// The fourth.
    pub build: u32,
}

impl LibraryVersion {
    /// The release whose headers the bindings were made from. Other patch releases have the same interface.
    pub const EXPECTED: LibraryVersion = LibraryVersion { major: 1, minor: 7, patch: 1, build: 116 };
}

impl fmt::Display for LibraryVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}.{}", self.major, self.minor, self.patch, self.build)
    }
}
