//! When freed blocks of memory go back to the system.

/// Does nothing: the heap of Windows takes each large block from the system separately, and returns it when it is
/// freed.
pub(crate) fn set_large_blocks(_bytes: i32) {}
