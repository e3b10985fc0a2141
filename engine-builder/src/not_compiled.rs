//! Why an engine has no compiled parts.

use std::fmt;

/// Why an engine is portable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotCompiled {
    /// This machine lacks the GPU, or something that TensorRT needs.
    Here(String),
    /// The builder of plans for RTX GPUs cannot be used.
    NoBuilder(tileforge_tensorrt::Error),
}

impl fmt::Display for NotCompiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Here(reason) => f.write_str(reason),
            Self::NoBuilder(error) => error.fmt(f),
        }
    }
}
