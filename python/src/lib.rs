//! The compiled part of the Python package `tileforge`: engines and requests of the facade. The Python code around it
//! has the public names, the conversion of arrays and the documentation.
//!
//! | module | holds |
//! |---|---|
//! | `process` | the hosts of this process, its shutdown, and the check for forked processes |
//! | `background` | threads that call Python and that close engines |
//! | `engine`, `opened` | an engine as a Python object, and its services |
//! | `request` | a submitted request and its result as Python objects |
//! | `stream` | frames, one after the other |
//! | `values` | samples and tensors from and to arrays |
//! | `failure` | errors as exceptions |
//! | `interpreter` | which interpreter imports the module |

mod background;
mod engine;
mod failure;
mod interpreter;
mod opened;
mod process;
mod request;
mod stream;
mod values;

/// `tileforge._native`
#[pyo3::pymodule]
mod _native {
    use pyo3::exceptions::PyImportError;
    use pyo3::prelude::*;

    #[pymodule_init]
    fn check(module: &Bound<'_, PyModule>) -> PyResult<()> {
        if crate::interpreter::is_main(module.py()) {
            return Ok(());
        }
        let text = "tileforge can be imported in the main interpreter alone, not in another interpreter of the process";
        Err(PyImportError::new_err(text))
    }

    #[pymodule_export]
    use crate::engine::Engine;
    #[pymodule_export]
    use crate::process::{is_foreign, shutdown};
    #[pymodule_export]
    use crate::request::Request;
    #[pymodule_export]
    use crate::stream::Stream;

    /// The version of the package.
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}
