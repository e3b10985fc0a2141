//! Known inputs and outputs that travel with an engine, and show whether it computes correctly on another machine.
//!
//! A safetensors file with the tensors `input.NAME` and `expected.NAME`, in the types of the graph's tensors.

use std::path::Path;

use ndarray::ArrayD;
use safetensors::tensor::{SafeTensors, TensorView};
use serde::Serialize;
use tileforge_contract::DataType;
use tileforge_engine::Engine;

use crate::cancel::Cancel;
use crate::error::{Error, Result};
use crate::session::Session;
use crate::tensor::{Named, Tensor, safetensors_type};

const INPUT: &str = "input.";
const EXPECTED: &str = "expected.";

/// A larger self-test is refused, because self-tests are held in memory.
const SELFTEST_MAXIMUM_BYTES: u64 = 1 << 30;

/// The result of a self-test.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SelfTestReport {
    /// File name of the graph that ran.
    pub graph: String,
    /// Largest absolute error, as a fraction of the expected output's range; 0 is a perfect match, and NaN is worse
    /// than every number.
    pub maximum_error: f64,
    /// Mean absolute error, as a fraction of the expected output's range.
    pub mean_error: f64,
    /// Peak signal-to-noise ratio in dB, where the peak is the expected output's range; `None` for identical outputs,
    /// where it is infinite.
    pub psnr_db: Option<f64>,
    /// Whether all outputs are finite.
    pub finite: bool,
    /// Number of values in the outputs.
    pub values: usize,
    /// Of these, how many are NaN.
    pub nan: usize,
    /// And how many are infinite.
    pub infinite: usize,
    /// The largest [`SelfTestReport::maximum_error`] that passes.
    pub tolerance: f64,
    /// Whether all outputs are finite and within the tolerance.
    pub passed: bool,
}

impl SelfTestReport {
    /// "3 of 48 values are NaN", or "a largest error of 1.20e-3".
    pub fn found(&self) -> String {
        match (self.nan, self.infinite) {
            (0, 0) => format!("a largest error of {}", error_text(self.maximum_error)),
            (nan, 0) => format!("{nan} of {} values are NaN", self.values),
            (0, infinite) => format!("{infinite} of {} values are infinite", self.values),
            (nan, infinite) => format!("{nan} of {} values are NaN and {infinite} infinite", self.values),
        }
    }
}

/// An error in few digits.
pub fn error_text(error: f64) -> String {
    if error == 0.0 { "0".into() } else { format!("{error:.2e}") }
}

/// Writes a self-test file: named inputs, and the outputs that the graph should give for them.
///
/// # Errors
/// The file cannot be written.
pub fn write(path: &Path, inputs: &[(&str, &Tensor)], expected: &[(&str, &Tensor)]) -> Result<()> {
    let failed = |error: &dyn std::fmt::Display| Error::selftest(path, format!("cannot be written: {error}"));
    let named = inputs.iter().map(|pair| (INPUT, pair)).chain(expected.iter().map(|pair| (EXPECTED, pair)));
    let bytes: Vec<_> = named
        .map(|(prefix, (name, tensor))| {
            (format!("{prefix}{name}"), safetensors_type(tensor.data_type()), tensor.shape(), tensor.to_bytes())
        })
        .collect();
    let views = bytes.iter().map(|(name, dtype, shape, bytes)| {
        let view = TensorView::new(*dtype, shape.to_vec(), bytes).map_err(|error| failed(&error))?;
        Ok((name.as_str(), view))
    });
    let views = views.collect::<Result<Vec<_>>>()?;
    safetensors::serialize_to_file(views, None, path).map_err(|error| failed(&error))
}

/// Runs the self-test of `engine` on a session of the graph that its manifest names.
///
/// # Errors
/// The file cannot be read, or the session cannot run it. A failed test is a [`SelfTestReport`], not an error.
pub fn verify(engine: &Engine, session: &mut Session) -> Result<SelfTestReport> {
    let selftest = &engine.manifest().selftest;
    let path = engine.path_of(&selftest.file);
    let tensors = read(engine.file(&selftest.file)?, &path)?;
    let with_prefix = |prefix| {
        tensors.iter().filter_map(move |(name, tensor): &(String, Tensor)| Some((name.strip_prefix(prefix)?, tensor)))
    };
    let inputs: Vec<_> = with_prefix(INPUT).collect();
    let outputs = session.run(&inputs, &Cancel::new())?;

    let mut errors = Errors::default();
    for (name, expected) in with_prefix(EXPECTED) {
        let found = outputs.iter().find(|(output, _)| output == name).map(|(_, tensor)| tensor);
        match (expected, found) {
            (Tensor::F32(expected), Some(Tensor::F32(found))) if found.shape() == expected.shape() => {
                errors.add(expected, found)
            }
            (expected, found) => {
                let text = |tensor: &Tensor| format!("{} {:?}", tensor.data_type(), tensor.shape());
                let found = found.map_or("no such output".into(), text);
                return Err(Error::selftest(
                    &path,
                    format!("expected.{name} is {}, the graph gave {found}", text(expected)),
                ));
            }
        }
    }
    if errors.count == 0 {
        return Err(Error::selftest(&path, "the self-test expects nothing"));
    }
    Ok(errors.report(&selftest.graph, selftest.tolerance))
}

/// Reads the tensors of a self-test. `path` names the file in errors.
fn read(bytes: &[u8], path: &Path) -> Result<Named> {
    let found = bytes.len() as u64;
    if found > SELFTEST_MAXIMUM_BYTES {
        let problem = format!("expected a self-test of at most {SELFTEST_MAXIMUM_BYTES} bytes, found {found}");
        return Err(Error::selftest(path, problem));
    }
    let broken = |error: String| Error::selftest(path, format!("not a self-test: {error}"));
    let file = SafeTensors::deserialize(bytes).map_err(|error| broken(error.to_string()))?;
    file.iter()
        .map(|(name, tensor)| {
            let data_type =
                DataType::ALL.iter().copied().find(|data_type| safetensors_type(*data_type) == tensor.dtype());
            let read = data_type.and_then(|data_type| Tensor::from_bytes(data_type, tensor.shape(), tensor.data()));
            let unreadable =
                || broken(format!("{}: {:?} {:?} cannot be read", name.escape_debug(), tensor.dtype(), tensor.shape()));
            Ok((name.to_owned(), read.ok_or_else(unreadable)?))
        })
        .collect()
}

/// Sums over all outputs of a self-test.
struct Errors {
    lowest: f64,
    highest: f64,
    maximum: f64,
    sum: f64,
    sum_of_squares: f64,
    count: usize,
    nan: usize,
    infinite: usize,
}

impl Default for Errors {
    fn default() -> Self {
        Self {
            lowest: f64::INFINITY,
            highest: f64::NEG_INFINITY,
            maximum: 0.0,
            sum: 0.0,
            sum_of_squares: 0.0,
            count: 0,
            nan: 0,
            infinite: 0,
        }
    }
}

impl Errors {
    fn add(&mut self, expected: &ArrayD<f32>, found: &ArrayD<f32>) {
        for (&expected, &found) in expected.iter().zip(found) {
            let (expected, found) = (f64::from(expected), f64::from(found));
            let error = (expected - found).abs();
            self.lowest = self.lowest.min(expected);
            self.highest = self.highest.max(expected);
            // An expected NaN always counts as a failure.
            self.nan += usize::from(found.is_nan() || expected.is_nan());
            self.infinite += usize::from(found.is_infinite());
            // NaN counts as the worst value and propagates: `f64::max` would drop it.
            self.maximum = if error.is_nan() || self.maximum.is_nan() { f64::NAN } else { self.maximum.max(error) };
            self.sum += error;
            self.sum_of_squares += error * error;
            self.count += 1;
        }
    }

    fn report(&self, graph: &str, tolerance: f64) -> SelfTestReport {
        let range = self.highest - self.lowest;
        // A constant output has no range, so its errors are not scaled.
        let range = if range > 0.0 { range } else { 1.0 };
        let count = self.count as f64;
        let maximum_error = self.maximum / range;
        let finite = self.nan == 0 && self.infinite == 0;
        let mean_square = self.sum_of_squares / count / (range * range);
        SelfTestReport {
            graph: graph.to_owned(),
            maximum_error,
            mean_error: self.sum / count / range,
            psnr_db: (mean_square != 0.0).then(|| -10.0 * mean_square.log10()),
            finite,
            values: self.count,
            nan: self.nan,
            infinite: self.infinite,
            tolerance,
            passed: finite && maximum_error <= tolerance,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::IxDyn;

    #[test]
    fn what_is_written_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("selftest.safetensors");
        let input = Tensor::from(ArrayD::from_shape_vec(IxDyn(&[1, 2]), vec![i64::MAX, 7]).unwrap());
        let output = Tensor::from(ArrayD::from_elem(IxDyn(&[1, 3, 4, 4]), -1.5_f32));
        write(&path, &[("x", &input)], &[("y", &output)]).unwrap();
        let mut tensors = read(&std::fs::read(&path).unwrap(), &path).unwrap();
        tensors.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(tensors, [("expected.y".to_owned(), output), ("input.x".to_owned(), input)]);
    }

    #[test]
    fn errors_are_relative_to_the_expected_range() {
        let expected = ArrayD::from_shape_vec(IxDyn(&[2]), vec![0.0, 10.0]).unwrap();
        let found = ArrayD::from_shape_vec(IxDyn(&[2]), vec![0.0, 9.0]).unwrap();
        let mut errors = Errors::default();
        errors.add(&expected, &found);
        let report = errors.report("graph", 0.2);
        assert_eq!((report.maximum_error, report.mean_error, report.passed), (0.1, 0.05, true));
        assert!(!errors.report("graph", 0.09).passed);
        assert_eq!([report.found(), error_text(0.0)], ["a largest error of 1.00e-1", "0"]);
        // One error of a tenth of the range among two values: a mean square of 0.005.
        let psnr = report.psnr_db.unwrap();
        assert!((psnr - 23.0103).abs() < 1e-3, "{psnr}");
    }

    #[test]
    fn a_nan_fails_whatever_the_tolerance() {
        let expected = ArrayD::from_elem(IxDyn(&[1]), 1.0);
        let mut errors = Errors::default();
        errors.add(&expected, &ArrayD::from_elem(IxDyn(&[1]), f32::NAN));
        assert!(!errors.report("graph", 1e9).passed);
    }
}
