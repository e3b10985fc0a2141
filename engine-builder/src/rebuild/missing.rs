//! What a rebuild lacks.

use std::fmt;

/// What a manifest does not record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unrecorded {
    /// Which files belong to the engine. Without them, it cannot be replaced.
    Files {
        /// The older schema.
        schema: u64,
    },
    /// What the engine was made of.
    Model,
    /// The folder of the calibration data.
    Calibration,
    /// A profile.
    Profile,
}

impl fmt::Display for Unrecorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Files { schema } => {
                write!(f, "its manifest has the older schema {schema}, which does not list the engine's files")
            }
            Self::Model => f.write_str("its manifest does not record what it was made of"),
            Self::Calibration => {
                f.write_str("activations were measured on a folder, and its manifest does not say which")
            }
            Self::Profile => f.write_str("its manifest names no profile"),
        }
    }
}

/// What an engine is made of, except weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ingredient {
    /// [`RebuildRequest::model`](super::RebuildRequest::model).
    Model,
    /// [`RebuildRequest::config`](super::RebuildRequest::config).
    Config,
    /// One of [`RebuildRequest::adaptations`](super::RebuildRequest::adaptations).
    Adaptation,
    /// [`RebuildRequest::calibration`](super::RebuildRequest::calibration).
    Calibration,
}
