//! Physical cores of the processors that this process may use, and their model.

use super::calls;

/// All physical cores of the machine, even if this process may not use all of them.
pub(crate) fn physical() -> Option<usize> {
    Some(num_cpus::get_physical())
}

/// The processor's model, where the system tells.
pub(crate) fn model() -> Option<String> {
    calls::processor()
}
