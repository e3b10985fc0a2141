//! What the operators share.

use std::fmt::Display;

use ort::operator::{ComputeContext, ShapeInferenceContext};
use ort::value::{Shape, SymbolicDimensions, TensorElementType, ValueType};
use tileforge_kernels::RunError;

/// The error of an operator.
pub(super) fn refused(operator: &str, problem: impl Display) -> ort::Error {
    ort::Error::new(format!("{operator}: {problem}"))
}

/// The error of an operator whose run ended early.
pub(super) fn failed(operator: &str, error: RunError<ort::Error>) -> ort::Error {
    match error {
        RunError::Kernel(error) => refused(operator, error),
        RunError::Each(error) => error,
    }
}

/// Calls a kernel's function on ONNX Runtime's threads.
pub(super) fn each(context: &ComputeContext) -> impl Fn(usize, &(dyn Fn() + Sync)) -> ort::Result<()> {
    |count, part| context.par_for(count, 0, |_| part())
}

/// The lengths of a tensor.
pub(super) fn lengths(shape: &[i64]) -> Vec<usize> {
    shape.iter().map(|length| usize::try_from(*length).unwrap_or(0)).collect()
}

/// States the results' lengths, which are negative where they are not known, and may have a name there.
pub(super) fn state(context: &mut ShapeInferenceContext, shape: Vec<i64>, names: Vec<String>) -> ort::Result<()> {
    // ONNX Runtime would take a length without a name for a number. It infers nothing then.
    let is_stated = |(length, name): (&i64, &String)| *length > 0 || !name.is_empty();
    if !shape.iter().zip(&names).all(is_stated) {
        return Ok(());
    }
    let dimension_symbols = SymbolicDimensions::new(names);
    let ty = TensorElementType::Float32;
    context.set_output(0, &ValueType::Tensor { ty, shape: Shape::new(shape), dimension_symbols })
}
