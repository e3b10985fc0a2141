//! The GPUs that plans can be built for.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A GPU's compute capability, if TensorRT for RTX builds for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ComputeCapability {
    /// 7.5, Turing: T4, RTX 20.
    Sm75,
    /// 8.0, Ampere: A100.
    Sm80,
    /// 8.6, Ampere: A10, RTX 30.
    Sm86,
    /// 8.9, Ada: L4, L40S, RTX 40.
    Sm89,
    /// 12.0, Blackwell: RTX 50.
    Sm120,
    /// 12.1, Blackwell: GB10.
    Sm121,
}

impl ComputeCapability {
    /// All of them, oldest first.
    pub const ALL: [ComputeCapability; 6] = [Self::Sm75, Self::Sm80, Self::Sm86, Self::Sm89, Self::Sm120, Self::Sm121];

    /// The capability of a version such as 8.9, if the builder has it.
    pub fn from_version(major: u32, minor: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|capability| capability.version() == (major, minor))
    }

    /// Major and minor version.
    pub fn version(self) -> (u32, u32) {
        match self {
            Self::Sm75 => (7, 5),
            Self::Sm80 => (8, 0),
            Self::Sm86 => (8, 6),
            Self::Sm89 => (8, 9),
            Self::Sm120 => (12, 0),
            Self::Sm121 => (12, 1),
        }
    }

    /// Whether ONNX Runtime's provider runs plans on such a GPU: 8.6, 8.9 and 12.0 or newer
    /// (`IsTargetSMSupported` of the provider's options header, release 0.5).
    pub fn has_provider(self) -> bool {
        matches!(self, Self::Sm86 | Self::Sm89 | Self::Sm120 | Self::Sm121)
    }
}

impl fmt::Display for ComputeCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.version();
        write!(f, "{major}.{minor}")
    }
}

impl FromStr for ComputeCapability {
    type Err = String;

    /// Reads `8.9`.
    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|capability| capability.to_string() == text).ok_or_else(|| {
            let known = Self::ALL.map(|capability| capability.to_string()).join(", ");
            format!("expected a compute capability that TensorRT for RTX builds for ({known}), found `{text}`")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capability_is_read_as_it_is_written() {
        for capability in ComputeCapability::ALL {
            let (major, minor) = capability.version();
            assert_eq!(capability.to_string().parse(), Ok(capability));
            assert_eq!(ComputeCapability::from_version(major, minor), Some(capability));
        }
        assert_eq!(ComputeCapability::from_version(9, 0), None);
        let error = "9.0".parse::<ComputeCapability>().unwrap_err();
        assert!(error.contains("8.6, 8.9, 12.0") && error.contains("`9.0`"), "{error}");
    }
}
