//! How much memory this process can still get.

use std::fs;

use rustix::process::{Resource, getrlimit};

/// Bytes of memory that this process can still get, if the system says so: what the machine can give, within the limit
/// of its address space (`ulimit -v`).
pub fn available_memory() -> Option<u64> {
    let allowed = allowed();
    machine().map(|bytes| bytes.min(allowed.unwrap_or(u64::MAX))).or(allowed)
}

/// What the machine can give.
fn machine() -> Option<u64> {
    // See proc_meminfo(5). The unit is kibibytes.
    let information = fs::read_to_string("/proc/meminfo").ok()?;
    let line = information.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// What is left of the limit on the address space, if there is one.
fn allowed() -> Option<u64> {
    let limit = getrlimit(Resource::As).current?;
    // The first number of proc_pid_statm(5): pages of address space.
    let statistics = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statistics.split_whitespace().next()?.parse().ok()?;
    let page = u64::try_from(rustix::param::page_size()).ok()?;
    Some(limit.saturating_sub(pages.saturating_mul(page)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_some_memory() {
        let available = available_memory().unwrap();
        assert!(available > 1 << 20 && available < 1 << 50, "{available}");
        assert_eq!(machine().is_some(), cfg!(target_os = "linux"));
    }
}
