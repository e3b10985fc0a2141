//! The versions of TensorRT that a graph may be for.

use serde::Serialize;
use std::fmt;

/// The TensorRT version that a graph is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Target {
    /// TensorRT 10.14 and newer: what ONNX Runtime's provider uses.
    #[serde(rename = "tensorrt-10")]
    TensorRt10,
    /// TensorRT 11, which has strongly typed networks only.
    #[serde(rename = "tensorrt-11")]
    TensorRt11,
    /// TensorRT for RTX, whose builder runs without a GPU. There is no table for it.
    #[serde(rename = "tensorrt-rtx")]
    TensorRtRtx,
}

impl std::str::FromStr for Target {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|target| target.name() == name);
        found.ok_or_else(|| format!("expected one of {}, found \"{name}\"", Self::ALL.map(Self::name).join(", ")))
    }
}

impl Target {
    /// Every version.
    pub const ALL: [Self; 3] = [Self::TensorRt10, Self::TensorRt11, Self::TensorRtRtx];

    /// The versions with a table of operators.
    pub const TABLES: [Self; 2] = [Self::TensorRt10, Self::TensorRt11];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::TensorRt10 => "tensorrt-10",
            Self::TensorRt11 => "tensorrt-11",
            Self::TensorRtRtx => "tensorrt-rtx",
        }
    }

    /// The oldest and the newest version of ONNX's operator set that the parser reads. TensorRT 11: NVIDIA's ONNX
    /// opset guide. TensorRT 10: the table states 20, but NVIDIA/TensorRT#4705 reports that 10.14 reads 23, which
    /// brought Attention.
    pub(super) fn opsets(self) -> Option<(i64, i64)> {
        match self {
            Self::TensorRt10 => Some((9, 23)),
            Self::TensorRt11 => Some((9, 25)),
            Self::TensorRtRtx => None,
        }
    }

    /// Whether this version has a feature that came with version `since`.
    pub(super) fn has(self, since: &str) -> bool {
        let major = since.split('.').next().and_then(|major| major.parse::<u32>().ok());
        major.is_some_and(|major| major <= if self == Self::TensorRt10 { 10 } else { 11 })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}
