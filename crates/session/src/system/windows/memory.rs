//! How much memory this process can still get, and how much it has used.

use super::calls;

/// Bytes of memory that this process can still get, if the system reports it: free physical memory, or what Windows
/// still grants to all processes, whichever is less.
pub fn available_memory() -> Option<u64> {
    calls::memory().ok()
}

/// The most memory that this process has had at once, in bytes, where the system tells.
pub fn peak_memory_bytes() -> Option<u64> {
    calls::peak_memory().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_some_memory_and_this_process_has_used_some() {
        let available = available_memory().unwrap();
        assert!(available > 1 << 20 && available < 1 << 50, "{available}");
        assert!(peak_memory_bytes().unwrap() > 100_000);
    }
}
