//! Signals. A thread waits for them, so that nothing runs in a signal handler.

use std::fs;
use std::io;
use std::sync::Arc;
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;

/// Calls `arrived` for every signal that asks the process to end, in a thread. Signals that this program was started to
/// ignore, as `nohup` does, are still ignored.
///
/// A file that gets larger than the system allows is an error from now on, as on a full disk, and ends nothing at once.
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

/// A Ctrl-C that also reaches the process that started this one is for the other one.
pub(crate) fn leave_to_parent() {
    // A file that gets too large is an error there, too.
    for signal in [SIGINT, SIGHUP, SIGXFSZ] {
        // Where it fails, this process ends a little earlier.
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
