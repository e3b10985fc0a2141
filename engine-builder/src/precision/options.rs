//! The caller's options for precision and calibration.

use super::RangeMethod;
use super::option::PrecisionOption;
use crate::{CalibrationBudget, Error, Result};
use std::path::PathBuf;
use tileforge_contract::Precision;

/// Lossy precisions.
const EVERY_BUT_FP32: &str = "fp16, bf16, int8, fp8, fp16-weights or int8-weights";

/// How an engine is converted to its precision.
#[derive(Debug, Clone)]
pub struct PrecisionOptions {
    /// A folder of pictures like those that the engine will see; `None` for the built-in ones.
    pub calibration: Option<PathBuf>,
    /// Number of tiles to draw from them, if the budget allows it.
    pub calibration_tiles: usize,
    /// What calibration and gates may run.
    pub budget: CalibrationBudget,
    /// How INT8 chooses the range of an activation.
    pub range: RangeMethod,
    /// Whether the first and the last layer are also quantised.
    pub all_layers: bool,
    /// Whether every layer is tried alone, for [`Sensitivity`](super::Sensitivity).
    pub sensitivity: bool,
}

impl Default for PrecisionOptions {
    fn default() -> Self {
        PrecisionOptions {
            calibration: None,
            calibration_tiles: 32,
            budget: CalibrationBudget::default(),
            range: RangeMethod::default(),
            all_layers: false,
            sensitivity: false,
        }
    }
}

impl PrecisionOptions {
    /// The same options without those that a precision does not use.
    pub(crate) fn used_by(&self, precision: Precision) -> Self {
        let is_used = |option: PrecisionOption| option.is_used_by(precision);
        Self {
            calibration: self.calibration.clone().filter(|_| is_used(PrecisionOption::Calibration)),
            all_layers: self.all_layers && is_used(PrecisionOption::AllLayers),
            sensitivity: self.sensitivity && is_used(PrecisionOption::Sensitivity),
            ..self.clone()
        }
    }

    /// Checks that the precision uses every given option, and that the calibration folder exists.
    ///
    /// # Errors
    /// [`Error::NoEffect`] for an option without effect; [`Error::File`] if the folder cannot be listed.
    pub(crate) fn check(&self, precision: Precision) -> Result<()> {
        if let Some(folder) = &self.calibration {
            folder.read_dir().map_err(|e| Error::file(folder, "list", e))?;
        }
        for (option, given, users) in [
            (PrecisionOption::Calibration, self.calibration.is_some(), "fp16, int8 or fp8"),
            (PrecisionOption::AllLayers, self.all_layers, "int8 or fp8"),
            (PrecisionOption::Sensitivity, self.sensitivity, EVERY_BUT_FP32),
        ] {
            if given && !option.is_used_by(precision) {
                return Err(Error::NoEffect { option, precision, users });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_what_a_precision_does_not_use_options_suit_it() {
        let folder = tempfile::tempdir().unwrap();
        let calibration = Some(folder.path().to_owned());
        let all = PrecisionOptions { calibration, all_layers: true, sensitivity: true, ..PrecisionOptions::default() };
        for &precision in Precision::ALL {
            let used = all.used_by(precision);
            used.check(precision).unwrap();
            let kept = (used.calibration.is_some(), used.all_layers, used.sensitivity);
            assert_eq!(kept.2, precision != Precision::Fp32);
            assert_eq!(kept.0 && kept.1, all.check(precision).is_ok(), "{precision}: {kept:?}");
        }
    }

    #[test]
    fn an_option_that_a_precision_does_not_use_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let missing = Some(folder.path().join("missing"));
        let calibration = Some(folder.path().to_owned());
        let plain = PrecisionOptions::default;
        let of_missing = PrecisionOptions { calibration: missing, ..plain() };
        assert!(matches!(of_missing.check(Precision::Int8), Err(Error::File { .. })));
        for (options, name, users) in [
            (PrecisionOptions { calibration, ..plain() }, "calibration", "fp16, int8 or fp8"),
            (PrecisionOptions { all_layers: true, ..plain() }, "quantising all layers", "int8 or fp8"),
            (
                PrecisionOptions { sensitivity: true, ..plain() },
                "the sensitivity of layers",
                "fp16, bf16, int8, fp8, fp16-weights or int8-weights",
            ),
        ] {
            for &precision in Precision::ALL {
                plain().check(precision).unwrap();
                match options.check(precision) {
                    Ok(()) => assert!(users.contains(precision.name()), "{name} for {precision}"),
                    Err(Error::NoEffect { option, precision: refused, users: named }) => {
                        assert_eq!((option.to_string().as_str(), refused, named), (name, precision, users));
                        assert!(!users.contains(precision.name()), "{name} for {precision}");
                    }
                    Err(other) => panic!("{other}"),
                }
            }
        }
    }
}
