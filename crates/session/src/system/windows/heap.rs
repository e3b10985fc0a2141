//! When freed blocks of memory go back to the system.

/// Does nothing: the heap of Windows takes large blocks from the system one by one, and gives each back.
pub(crate) fn set_large_blocks(_bytes: i32) {}
