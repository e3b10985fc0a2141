//! The options that only some precisions use.

/// A field of [`PrecisionOptions`](super::PrecisionOptions) that only some precisions use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrecisionOption {
    /// [`PrecisionOptions::calibration`](super::PrecisionOptions::calibration).
    Calibration,
    /// [`PrecisionOptions::all_layers`](super::PrecisionOptions::all_layers).
    AllLayers,
    /// [`PrecisionOptions::sensitivity`](super::PrecisionOptions::sensitivity).
    Sensitivity,
}

impl std::fmt::Display for PrecisionOption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Calibration => "calibration",
            Self::AllLayers => "quantising all layers",
            Self::Sensitivity => "the sensitivity of layers",
        })
    }
}
