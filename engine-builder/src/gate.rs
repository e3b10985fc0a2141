//! Gates: the figures that an engine must reach before it is written.

use crate::{Error, Floors, Result};
use ndarray::ArrayD;
use tileforge_contract::Precision;
use tileforge_engine::manifest::Gate;

/// An engine's output against its reference.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measurement {
    /// Whether every value is finite.
    pub finite: bool,
    /// Peak signal-to-noise ratio in dB; the peak is the range of the reference. Infinite for equal outputs.
    pub psnr_db: f64,
    /// Cosine of the angle between the two outputs as vectors: 1 for equal outputs, whatever their scale.
    pub cosine: f64,
    /// Largest absolute difference, over the range of the reference.
    pub maximum_error: f64,
}

/// Stands for an infinite ratio, which JSON cannot write. FP32 outputs that differ stay below it.
pub(crate) const EXACT_DB: f64 = 200.0;

impl Measurement {
    /// Compares two outputs of one shape.
    pub fn of(found: &ArrayD<f32>, reference: &ArrayD<f32>) -> Self {
        Self::of_all(&[(found, reference)])
    }

    /// Compares the outputs for several samples. The PSNR is the worst sample's. Peak and cosine are computed over all
    /// samples together, since a tile of one colour has no range and no direction.
    pub(crate) fn of_all(pairs: &[(&ArrayD<f32>, &ArrayD<f32>)]) -> Self {
        let references = pairs.iter().flat_map(|(_, reference)| reference.iter());
        let (low, high) =
            references.fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), v| (low.min(*v), high.max(*v)));
        // A constant reference has no range.
        let range = f64::from(high - low).max(f64::from(f32::EPSILON));
        let (mut worst_mean, mut largest) = (0.0_f64, 0.0_f64);
        let (mut product, mut lengths) = (0.0, [0.0; 2]);
        for (found, reference) in pairs {
            let mut squares = 0.0;
            for (a, b) in found.iter().zip(*reference) {
                let (a, b) = (f64::from(*a), f64::from(*b));
                product += a * b;
                lengths = [lengths[0] + a * a, lengths[1] + b * b];
                let difference = (a - b).abs();
                squares += difference * difference;
                largest = largest.max(difference);
            }
            let mean = squares / reference.len().max(1) as f64;
            // NaN counts as the worst value and propagates.
            worst_mean = if worst_mean.is_nan() || mean <= worst_mean { worst_mean } else { mean };
        }
        Measurement {
            finite: pairs.iter().flat_map(|(found, _)| found.iter()).all(|value| value.is_finite()),
            psnr_db: 10.0 * (range * range / worst_mean).log10(),
            // Zeros have no direction; two zero outputs are equal.
            cosine: if worst_mean == 0.0 {
                1.0
            } else {
                product / (lengths[0] * lengths[1]).sqrt().max(f64::MIN_POSITIVE)
            },
            maximum_error: largest / range,
        }
    }

    /// The worst value of each figure; `None` for no measurements.
    pub(crate) fn worst(all: impl IntoIterator<Item = Self>) -> Option<Self> {
        all.into_iter().reduce(|one, other| one.or_worse(&other))
    }

    /// The worse value of the two, for each figure.
    fn or_worse(&self, other: &Measurement) -> Measurement {
        // NaN counts as the worst value and propagates.
        let least = |a: f64, b: f64| if a.is_nan() || a < b { a } else { b };
        Measurement {
            finite: self.finite && other.finite,
            psnr_db: least(self.psnr_db, other.psnr_db),
            cosine: least(self.cosine, other.cosine),
            maximum_error: -least(-self.maximum_error, -other.maximum_error),
        }
    }

    /// Lowered floors for a network in FP32: `self` is the effect of rounding alone. If twice this error exceeds the
    /// error that FP32 is expected to have, it is allowed, up to the error of BF16: a larger difference is visible.
    pub(crate) fn lowered(&self, floors: &Floors) -> Floors {
        let (expected, least) = (Floors::expected_of(Precision::Fp32), Floors::expected_of(Precision::Bf16));
        // 6 dB are twice the error, and four times the cosine's distance from 1.
        let psnr_db = (self.psnr_db - 6.0).max(least.psnr_db);
        let cosine = (1.0 - 4.0 * (1.0 - self.cosine)).max(least.cosine);
        let lower = |found: f64, expected: f64, floor: f64| {
            if self.finite && found < expected { found.min(floor) } else { floor }
        };
        Floors {
            psnr_db: lower(psnr_db, expected.psnr_db, floors.psnr_db),
            cosine: lower(cosine, expected.cosine, floors.cosine),
            ..floors.clone()
        }
    }

    /// Whether all floors are reached.
    pub fn reaches(&self, floors: &Floors) -> bool {
        self.finite && self.psnr_db >= floors.psnr_db && self.cosine >= floors.cosine
    }

    /// The gates of one graph, with their figures. `emulated`: an emulation of the graph was measured, because no
    /// kernel on this machine rounds as the target does.
    pub fn gates(&self, graph: &str, floors: &Floors, emulated: bool) -> Vec<Gate> {
        let cosine = Gate {
            name: if emulated { "cosine_emulated" } else { "cosine" }.into(),
            graph: graph.into(),
            value: if self.cosine.is_nan() { -1.0 } else { self.cosine },
            floor: floors.cosine,
        };
        self.gates_of_values(graph, floors.psnr_db, emulated).into_iter().chain([cosine]).collect()
    }

    /// The gates of a pipeline's picture. Pixels have no negative values, so the cosine of any two pictures is high
    /// and is not a gate.
    pub(crate) fn picture_gates(&self, floor_db: f64, emulated: bool) -> Vec<Gate> {
        self.gates_of_values(Gate::PICTURE, floor_db, emulated).into()
    }

    fn gates_of_values(&self, graph: &str, floor_db: f64, emulated: bool) -> [Gate; 2] {
        let gate = |name: &str, value: f64, floor: f64| Gate { name: name.into(), graph: graph.into(), value, floor };
        // NaN reaches no floor.
        let psnr_db = if self.psnr_db.is_nan() { 0.0 } else { self.psnr_db.min(EXACT_DB) };
        [
            gate("finite", f64::from(u8::from(self.finite)), 1.0),
            gate(if emulated { "psnr_db_emulated" } else { "psnr_db" }, psnr_db, floor_db),
        ]
    }
}

/// Checks that every gate is passed.
///
/// # Errors
/// [`Error::Gate`] with the gates that are missed.
pub(crate) fn check(gates: &[&Gate]) -> Result<()> {
    let failed: Vec<String> = gates
        .iter()
        // A value that is no number misses every floor.
        .filter(|gate| gate.value.is_nan() || gate.value < gate.floor)
        .map(|gate| {
            format!(
                "  {}: {} is {}, expected at least {}",
                gate.graph,
                gate.name,
                figure(gate.value),
                figure(gate.floor)
            )
        })
        .collect();
    if failed.is_empty() { Ok(()) } else { Err(Error::Gate(failed.join("\n"))) }
}

/// Formats a figure with two decimals; values near 1 get enough decimals to differ from 1.
pub fn figure(value: f64) -> String {
    if (1e-8..0.01).contains(&(1.0 - value).abs()) {
        format!("{value:.8}").trim_end_matches('0').to_owned()
    } else {
        format!("{value:.2}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(values: &[f32]) -> ArrayD<f32> {
        ArrayD::from_shape_vec(vec![values.len()], values.to_vec()).unwrap()
    }

    fn all(gates: &[Gate]) -> Vec<&Gate> {
        gates.iter().collect()
    }

    #[test]
    fn the_ratio_is_that_of_range_and_error() {
        let reference = array(&[0.0, 1.0, 2.0, 0.0]);
        let measured = Measurement::of(&array(&[0.02, 1.02, 1.98, 0.02]), &reference);
        assert!((measured.psnr_db - 40.0).abs() < 1e-3, "{measured:?}");
        assert!((measured.maximum_error - 0.01).abs() < 1e-6);
        assert_eq!(Measurement::of(&reference, &reference).psnr_db, f64::INFINITY);
    }

    #[test]
    fn of_several_tiles_the_worst_one_counts() {
        let [colourful, dark] = [array(&[0.0, 1.0]), array(&[0.01, 0.01])];
        let off = |tile: &ArrayD<f32>, by: f32| tile.mapv(|value| value + by);
        let [better, worse] =
            [0.01, 0.1].map(|by| Measurement::of_all(&[(&colourful, &colourful), (&off(&dark, by), &dark)]));
        // The peak is the range of both tiles, not of the dark tile alone.
        assert!((better.psnr_db - 40.0).abs() < 1e-3 && (worse.psnr_db - 20.0).abs() < 1e-3, "{better:?} {worse:?}");
        assert!(better.cosine > 0.9999, "{better:?}");
        let broken = Measurement::of_all(&[(&array(&[f32::NAN, 0.0]), &dark), (&colourful, &colourful)]);
        assert!(!broken.finite && broken.psnr_db.is_nan(), "{broken:?}");
    }

    #[test]
    fn the_cosine_is_that_of_the_angle() {
        let cosine = |found: &[f32], reference: &[f32]| Measurement::of(&array(found), &array(reference)).cosine;
        assert!((cosine(&[1.0, 1.0], &[1.0, 0.0]) - 0.5_f64.sqrt()).abs() < 1e-12);
        assert_eq!(
            (cosine(&[-2.0, 0.0], &[1.0, 0.0]), cosine(&[0.0], &[0.0]), cosine(&[1.0], &[0.0])),
            (-1.0, 1.0, 0.0)
        );
        let floors = Floors { psnr_db: 0.0, cosine: 0.99, speed: 1.0 };
        let reference = array(&[1.0, 0.0, 1.0]);
        assert!(Measurement::of(&reference, &reference).reaches(&floors));
        let turned = Measurement::of(&array(&[1.0, 0.3, 1.0]), &reference);
        assert!(!turned.reaches(&floors), "{turned:?}");
        let error = check(&all(&turned.gates("g.onnx", &floors, false))).unwrap_err().to_string();
        assert!(error.contains("g.onnx: cosine is 0.98, expected at least 0.99"), "{error}");
    }

    #[test]
    fn floors_follow_what_rounding_alone_costs() {
        let floors = Floors::expected_of(Precision::Fp32);
        let amplified = |psnr_db, cosine| Measurement { finite: true, psnr_db, cosine, maximum_error: 0.0 };
        let lowered = |psnr_db, cosine| {
            let Floors { psnr_db, cosine, .. } = amplified(psnr_db, cosine).lowered(&floors);
            (psnr_db, cosine)
        };
        assert_eq!(lowered(143.0, 1.0), (100.0, 0.999_999));
        assert_eq!(lowered(f64::INFINITY, 1.0), (100.0, 0.999_999));
        let (psnr_db, cosine) = lowered(68.0, 0.999_99);
        assert!((psnr_db - 62.0).abs() < 1e-9 && (cosine - 0.999_96).abs() < 1e-9, "{psnr_db} {cosine}");
        assert_eq!(lowered(28.0, 0.9), (40.0, 0.999));
        let broken = Measurement { finite: false, ..amplified(f64::NAN, f64::NAN) };
        assert_eq!(broken.lowered(&floors), floors);
        // A profile may ask for more than FP32 is expected to reach, or for less.
        let strict = Floors { psnr_db: 199.0, ..floors.clone() };
        assert_eq!(amplified(143.0, 1.0).lowered(&strict), strict);
        assert_eq!(amplified(68.0, 1.0).lowered(&strict).psnr_db, 62.0);
        let modest = Floors { psnr_db: 30.0, ..floors };
        assert_eq!(amplified(28.0, 1.0).lowered(&modest).psnr_db, 30.0);
    }

    #[test]
    fn a_picture_has_gates_of_its_own() {
        let reference = array(&[0.0, 1.0]);
        let found = Measurement::of(&array(&[0.01, 0.99]), &reference);
        let gates = found.picture_gates(20.0, true);
        check(&all(&gates)).unwrap();
        assert_eq!(gates.iter().map(|gate| gate.name.as_str()).collect::<Vec<_>>(), ["finite", "psnr_db_emulated"]);
        let error = check(&all(&found.picture_gates(80.0, false))).unwrap_err().to_string();
        assert!(error.contains("picture: psnr_db is 40.00, expected at least 80.00"), "{error}");
    }

    #[test]
    fn an_engine_in_8_bits_that_is_slower_is_refused() {
        let gate =
            |value: f64, floor: f64| Gate { name: "speed_over_fp32".into(), graph: "g.onnx".into(), value, floor };
        check(&[&gate(1.0, 1.0), &gate(0.5, 0.0)]).unwrap();
        let error = check(&[&gate(0.97, 1.0)]).unwrap_err().to_string();
        assert!(error.contains("g.onnx: speed_over_fp32 is 0.97, expected at least 1.00"), "{error}");
        assert_eq!(
            [figure(0.9999), figure(1.0), figure(1.25), figure(1.0 - 1e-12)],
            ["0.9999", "1.00", "1.25", "1.00"]
        );
    }

    #[test]
    fn a_failed_gate_is_named() {
        let reference = array(&[0.0, 1.0]);
        let floors = Floors { psnr_db: 90.0, cosine: 0.999, speed: 1.0 };
        check(&all(&Measurement::of(&reference, &reference).gates("g.onnx", &floors, false))).unwrap();
        let black = Measurement::of(&array(&[f32::NAN, 0.0]), &reference).gates("g.onnx", &floors, false);
        let error = check(&all(&black)).unwrap_err().to_string();
        assert!(
            error.contains("g.onnx: finite is 0.00") && error.contains("psnr_db is 0.00, expected at least 90.00"),
            "{error}"
        );
    }
}
