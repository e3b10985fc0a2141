//! Errors as exceptions, whose classes the Python code defines.

use pyo3::prelude::*;
use tileforge::{Error, ErrorKind};

/// The exception for an error: its class by the error's kind, its text with all causes.
pub(crate) fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let class = match error.kind() {
        ErrorKind::InvalidInput => "InvalidInput",
        ErrorKind::DoesNotFit => "DoesNotFit",
        ErrorKind::Busy => "Busy",
        ErrorKind::Cancelled => "Cancelled",
        ErrorKind::Deadline => "DeadlineExceeded",
        _ => "Failed",
    };
    let causes = std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source());
    raised(py, class, &causes.map(ToString::to_string).collect::<Vec<_>>().join(": "))
}

/// The exception for invalid input.
pub(crate) fn invalid_input(py: Python<'_>, text: &str) -> PyErr {
    raised(py, "InvalidInput", text)
}

/// The exception for an internal failure.
pub(crate) fn failed(py: Python<'_>, text: &str) -> PyErr {
    raised(py, "Failed", text)
}

fn raised(py: Python<'_>, class: &str, text: &str) -> PyErr {
    let made = || py.import("tileforge._errors")?.getattr(class)?.call1((text,));
    made().map_or_else(|error| error, PyErr::from_value)
}
