//! The two options about portable engines, as the library has them.

use tileforge_engine_builder::request::Compilation;

/// Whether an engine may be portable, by two options of which one can be given.
pub(super) fn compilation(require_compiled: bool, portable: bool) -> Compilation {
    match (require_compiled, portable) {
        (true, _) => Compilation::Required,
        (false, true) => Compilation::Free,
        (false, false) => Compilation::Plans,
    }
}
