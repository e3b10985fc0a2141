//! What happens when a file becomes shorter while it is mapped into memory.

/// Does nothing: Windows refuses to truncate a file that is mapped.
pub fn explain_bus_errors() {}
