//! The two options about portable engines, in the library's form.

use tileforge_engine_builder::request::Compilation;

/// Whether an engine may be portable, from two options that exclude each other.
pub(super) fn compilation(require_compiled: bool, portable: bool) -> Compilation {
    match (require_compiled, portable) {
        (true, _) => Compilation::Required,
        (false, true) => Compilation::Free,
        (false, false) => Compilation::Plans,
    }
}
