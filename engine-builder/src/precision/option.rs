//! The options that only some precisions use.

use tileforge_contract::Precision;

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

impl PrecisionOption {
    /// Whether a precision uses it.
    pub(super) fn is_used_by(self, precision: Precision) -> bool {
        match self {
            Self::Calibration => precision.is_calibrated(),
            Self::AllLayers => matches!(precision, Precision::Int8 | Precision::Fp8),
            Self::Sensitivity => precision != Precision::Fp32,
        }
    }
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
