//! Why an engine has nothing compiled in it.

use std::fmt;

/// Why an engine is portable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotCompiled {
    /// Its GPU, or what TensorRT needs there, is not here.
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
