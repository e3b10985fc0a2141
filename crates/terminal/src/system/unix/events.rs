//! Signals. A thread waits for them, so that nothing runs in a signal handler.

use std::fs;
use std::io;
use std::sync::Arc;
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;

/// Calls `arrived` in a thread for every signal that asks the process to end. Signals that were ignored when this
/// program started, for example through `nohup`, stay ignored.
///
/// From now on, writing more to a file than the system allows is an error, as on a full disk, and no longer ends the
/// program.
pub(crate) fn listen(arrived: fn()) -> io::Result<()> {
    let ignored = ignored_signals();
    let wanted = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| ignored & (1 << (signal - 1)) == 0);
    let listening = Signals::new(wanted.collect::<Vec<_>>()).and_then(|mut signals| {
        let wait = move || signals.forever().for_each(|_| arrived());
        thread::Builder::new().name("signals".into()).spawn(wait).map(drop)
    });
    let limited = signal_hook::flag::register(SIGXFSZ, Arc::default());
    listening.and(limited.map(drop))
}

/// Ignores Ctrl-C: a Ctrl-C that also reaches the parent process is handled by the parent.
pub(crate) fn leave_to_parent() {
    // In this process, too, a file that gets too large is only an error.
    for signal in [SIGINT, SIGHUP, SIGXFSZ] {
        // If this fails, this process only ends a little earlier.
        let _ = signal_hook::flag::register(signal, Arc::default());
    }
}

/// Ends the process without the destructors of libraries, whose threads still work.
pub(crate) fn end_process(code: u8) -> ! {
    signal_hook::low_level::exit(i32::from(code))
}

/// The signals that this process ignores, as bits. See proc_pid_status(5).
fn ignored_signals() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rust_ignores_a_closed_pipe_alone() {
        const SIGPIPE: i32 = 13;
        assert_eq!(ignored_signals() & (1 << (SIGPIPE - 1)), 1 << (SIGPIPE - 1));
        assert_eq!(ignored_signals() & (1 << (SIGTERM - 1)), 0);
    }
}
