//! What this process has used.

use std::fs;

/// The most memory that this process has had at once, in bytes, where the system tells.
pub fn peak_memory_bytes() -> Option<u64> {
    peak_of(&fs::read_to_string("/proc/self/status").ok()?)
}

/// See `proc_pid_status(5)`; the figure is in kibibytes.
fn peak_of(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_the_high_water_mark() {
        assert_eq!(peak_of("Name:\tx\nVmPeak:\t  90 kB\nVmHWM:\t  12 kB\nVmRSS:\t 4 kB\n"), Some(12 * 1024));
        assert_eq!(peak_of("Name:\tx\n"), None);
        assert_eq!(peak_of("VmHWM: much\n"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_has_some() {
        assert!(peak_memory_bytes().unwrap() > 100_000);
    }
}
