//! How much memory this process can still get, and how much it has used.

mod control_groups;

use std::fs;

use rustix::process::{Resource, getrlimit};

/// Bytes of memory that this process can still get, if the system reports it: the machine's available memory, within
/// the limits of the process's control groups (containers, `systemd`'s `MemoryMax`) and of its address space
/// (`ulimit -v`).
pub fn available_memory() -> Option<u64> {
    [machine(), control_groups::left(), address_space()].into_iter().flatten().min()
}

/// The most memory that this process has had at once, in bytes, where the system tells.
pub fn peak_memory_bytes() -> Option<u64> {
    // See proc_pid_status(5).
    entry(&fs::read_to_string("/proc/self/status").ok()?, "VmHWM:")
}

/// The machine's available memory in bytes.
fn machine() -> Option<u64> {
    // See proc_meminfo(5).
    entry(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")
}

/// Bytes of an entry of `/proc`, whose unit is kibibytes.
fn entry(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The bytes left below the limit on the address space, if there is one.
fn address_space() -> Option<u64> {
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
    fn the_peak_is_the_high_water_mark() {
        let peak_of = |status: &str| entry(status, "VmHWM:");
        assert_eq!(peak_of("Name:\tx\nVmPeak:\t  90 kB\nVmHWM:\t  12 kB\nVmRSS:\t 4 kB\n"), Some(12 * 1024));
        assert_eq!(peak_of("Name:\tx\n"), None);
        assert_eq!(peak_of("VmHWM: much\n"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_has_used_some() {
        assert!(peak_memory_bytes().unwrap() > 100_000);
    }

    #[test]
    fn there_is_some_memory() {
        let available = available_memory().unwrap();
        assert!(available > 1 << 20 && available < 1 << 50, "{available}");
        assert_eq!(machine().is_some(), cfg!(target_os = "linux"));
    }
}
