//! Which interpreter of the process imports the module.
#![allow(unsafe_code)] // Python's interface in C, which PyO3 does not wrap here

use pyo3::ffi::{PyInterpreterState_Get, PyInterpreterState_GetID};
use pyo3::prelude::*;

/// Whether it is the process's main interpreter. The threads of this package call only the main interpreter.
pub(crate) fn is_main(_py: Python<'_>) -> bool {
    // SAFETY: this thread is attached to the interpreter that is asked for its number, as `_py` says.
    unsafe { PyInterpreterState_GetID(PyInterpreterState_Get()) == 0 }
}
