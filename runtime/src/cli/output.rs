//! What is said: results on standard output, talk on standard error.

use std::fs;
use std::io::{self, Write};

use serde::Serialize;

/// Prints a result. Where nobody reads any more, the work goes on, and the exit code tells of it.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut output = io::stdout().lock();
    match writeln!(output, "{text}").and_then(|()| output.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed,
    }
}

/// Prints a result for machines.
pub(crate) fn print_json(value: &impl Serialize) -> io::Result<()> {
    print(&serde_json::to_string_pretty(value)?)
}

/// Says something to the user. Where standard error is closed, nobody misses it.
pub(crate) fn report(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// The most memory that this process has had at once, where the system says it.
pub(crate) fn peak_memory_bytes() -> Option<u64> {
    // See proc_pid_status(5); in kibibytes.
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// "31.42 dB", or what stands for infinity.
pub(crate) fn decibels(value: Option<f64>) -> String {
    value.map_or("identical".into(), |value| format!("{value:.2} dB"))
}
