//! Known inputs and outputs that travel with an engine and prove it on the box it lands on.
//!
//! A safetensors file with the tensors `input.<name>` and `expected.<name>`, float32.

use std::borrow::Cow;
use std::path::Path;

use ndarray::{ArrayD, ArrayViewD, IxDyn};
use safetensors::tensor::{Dtype, SafeTensors, View};
use serde::Serialize;

use super::Engine;
use crate::error::{Error, Result};
use crate::file_map::FileMap;
use crate::session::Session;

const INPUT: &str = "input.";
const EXPECTED: &str = "expected.";

/// How an engine did in its self-test.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// File name of the graph that ran.
    pub graph: String,
    /// Largest absolute error, as a fraction of the expected output's range; 0 is a perfect match.
    pub maximum_error: f64,
    /// Mean absolute error, as a fraction of the expected output's range.
    pub mean_error: f64,
    /// Peak signal-to-noise ratio in dB, the peak being the expected output's range; `None` for
    /// identical outputs, where it is infinite.
    pub psnr_db: Option<f64>,
    /// No output is NaN or infinite.
    pub finite: bool,
    /// The largest [`Report::maximum_error`] that passes.
    pub tolerance: f64,
    /// All outputs are finite and within the tolerance.
    pub passed: bool,
}

/// Writes a self-test file: named inputs, and the outputs that the graph should give for them.
///
/// # Errors
/// The file cannot be written.
pub fn write(
    path: &Path,
    inputs: &[(&str, ArrayViewD<'_, f32>)],
    expected: &[(&str, ArrayViewD<'_, f32>)],
) -> Result<()> {
    let named = |prefix, tensors: &[(&str, ArrayViewD<'_, f32>)]| {
        tensors.iter().map(|(name, view)| (format!("{prefix}{name}"), Floats::new(view))).collect::<Vec<_>>()
    };
    let tensors = named(INPUT, inputs).into_iter().chain(named(EXPECTED, expected));
    safetensors::serialize_to_file(tensors, None, path)
        .map_err(|error| Error::engine(path, format!("cannot write the self-test: {error}")))
}

/// Runs the self-test of `engine` on a session of the graph that its manifest names.
///
/// # Errors
/// The file cannot be read, or the session cannot run it. A failed test is a [`Report`].
pub fn verify(engine: &Engine, session: &mut Session) -> Result<Report> {
    let selftest = &engine.manifest().selftest;
    let path = engine.directory().join(&selftest.file);
    let tensors = read(&path)?;
    let with_prefix =
        |prefix| tensors.iter().filter_map(move |(name, array)| Some((name.strip_prefix(prefix)?, array.view())));
    let inputs: Vec<_> = with_prefix(INPUT).collect();
    let outputs = session.run(&inputs)?;

    let mut errors = Errors::default();
    for (name, expected) in with_prefix(EXPECTED) {
        let found = outputs.iter().find(|(output, _)| output == name).map(|(_, array)| array);
        match found {
            Some(found) if found.shape() == expected.shape() => errors.add(&expected, found),
            found => {
                let found = found.map_or("no such output".into(), |array| format!("{:?}", array.shape()));
                let problem = format!("expected.{name} is {:?}, the graph gave {found}", expected.shape());
                return Err(Error::engine(&path, problem));
            }
        }
    }
    if errors.count == 0 {
        return Err(Error::engine(&path, "the self-test expects nothing; rebuild with engine-builder"));
    }
    Ok(errors.report(&selftest.graph, selftest.tolerance))
}

fn read(path: &Path) -> Result<Vec<(String, ArrayD<f32>)>> {
    let map = FileMap::open(path)?;
    let broken = |error: String| Error::engine(path, format!("not a self-test: {error}"));
    let file = SafeTensors::deserialize(&map).map_err(|error| broken(error.to_string()))?;
    file.iter()
        .map(|(name, tensor)| {
            if tensor.dtype() != Dtype::F32 {
                return Err(broken(format!("{name}: expected F32, found {:?}", tensor.dtype())));
            }
            let (groups, _) = tensor.data().as_chunks::<4>();
            let values = groups.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
            let array = ArrayD::from_shape_vec(IxDyn(tensor.shape()), values);
            Ok((name.to_owned(), array.map_err(|error| broken(format!("{name}: {error}")))?))
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
    finite: bool,
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
            finite: true,
        }
    }
}

impl Errors {
    fn add(&mut self, expected: &ArrayViewD<'_, f32>, found: &ArrayD<f32>) {
        for (&expected, &found) in expected.iter().zip(found) {
            let (expected, found) = (f64::from(expected), f64::from(found));
            let error = (expected - found).abs();
            self.lowest = self.lowest.min(expected);
            self.highest = self.highest.max(expected);
            self.finite &= found.is_finite();
            self.maximum = self.maximum.max(error);
            self.sum += error;
            self.sum_of_squares += error * error;
            self.count += 1;
        }
    }

    fn report(&self, graph: &str, tolerance: f64) -> Report {
        let range = self.highest - self.lowest;
        // A constant output has no range; its errors count as they are.
        let range = if range > 0.0 { range } else { 1.0 };
        let count = self.count as f64;
        let maximum_error = self.maximum / range;
        let mean_square = self.sum_of_squares / count / (range * range);
        Report {
            graph: graph.to_owned(),
            maximum_error,
            mean_error: self.sum / count / range,
            psnr_db: (mean_square > 0.0).then(|| -10.0 * mean_square.log10()),
            finite: self.finite,
            tolerance,
            passed: self.finite && maximum_error <= tolerance,
        }
    }
}

/// Little-endian float32, as safetensors stores them.
struct Floats {
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Floats {
    fn new(view: &ArrayViewD<'_, f32>) -> Self {
        let bytes = view.iter().flat_map(|value| value.to_le_bytes()).collect();
        Self { shape: view.shape().to_vec(), bytes }
    }
}

impl View for Floats {
    fn dtype(&self) -> Dtype {
        Dtype::F32
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::from(&self.bytes)
    }

    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("selftest.safetensors");
        let input = ArrayD::from_shape_fn(IxDyn(&[1, 3, 2, 2]), |index| index[1] as f32 + 0.25);
        let output = ArrayD::from_elem(IxDyn(&[1, 3, 4, 4]), -1.5);
        write(&path, &[("x", input.view())], &[("y", output.view())]).unwrap();
        let mut tensors = read(&path).unwrap();
        tensors.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(tensors, [("expected.y".to_owned(), output), ("input.x".to_owned(), input)]);
    }

    #[test]
    fn errors_are_relative_to_the_expected_range() {
        let expected = ArrayD::from_shape_vec(IxDyn(&[2]), vec![0.0, 10.0]).unwrap();
        let found = ArrayD::from_shape_vec(IxDyn(&[2]), vec![0.0, 9.0]).unwrap();
        let mut errors = Errors::default();
        errors.add(&expected.view(), &found);
        let report = errors.report("graph", 0.2);
        assert_eq!((report.maximum_error, report.mean_error, report.passed), (0.1, 0.05, true));
        assert!(!errors.report("graph", 0.09).passed);
    }

    #[test]
    fn a_nan_fails_whatever_the_tolerance() {
        let expected = ArrayD::from_elem(IxDyn(&[1]), 1.0);
        let mut errors = Errors::default();
        errors.add(&expected.view(), &ArrayD::from_elem(IxDyn(&[1]), f32::NAN));
        assert!(!errors.report("graph", 1e9).passed);
    }
}
