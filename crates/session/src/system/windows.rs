//! Windows.

mod calls;
pub(crate) mod heap;
pub(crate) mod libraries;
pub(crate) mod memory;
pub(crate) mod processors;
