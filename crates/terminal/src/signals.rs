//! What Ctrl-C and the signals that ask a process to end do.
//!
//! A thread waits for them, so that nothing runs in a signal handler. Libraries touch no signals: they know what is
//! unfinished, and the program that asked for this removes it.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use tileforge_files::unfinished;

use crate::{Exit, report};

/// What the first signal does instead of ending the program.
static FIRST: Mutex<Option<Box<dyn FnOnce() + Send>>> = Mutex::new(None);
/// Whether the program ends because of a signal.
static STOPPING: AtomicBool = AtomicBool::new(false);
/// How long the last message may take, because standard error may have no reader.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// From now on, Ctrl-C and the signals that ask a process to end remove everything unfinished and end this program with
/// [`Exit::Stopped`]; one more ends it at once. Signals that this program was started to ignore, as `nohup` does, are
/// still ignored.
///
/// A file that gets larger than the system allows is an error from now on, as on a full disk, and ends nothing at once.
pub fn stop_on_signals() {
    let ignored = ignored_signals();
    let wanted = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| ignored & (1 << (signal - 1)) == 0);
    let warning = |error| report(&format!("warning: a signal will leave unfinished files: {error}"));
    match Signals::new(wanted.collect::<Vec<_>>()) {
        Ok(mut signals) => {
            let wait = move || signals.forever().for_each(|_| arrived());
            if let Err(error) = thread::Builder::new().name("signals".into()).spawn(wait) {
                warning(error);
            }
        }
        Err(error) => warning(error),
    }
    if let Err(error) = signal_hook::flag::register(SIGXFSZ, Arc::default()) {
        warning(error);
    }
}

/// For a process that ends with the one that started it: a Ctrl-C that reaches both is for the other one.
pub fn leave_signals_to_parent() {
    // A file that gets too large is an error there, too.
    for signal in [SIGINT, SIGHUP, SIGXFSZ] {
        // Where it fails, this process ends a little earlier.
        let _ = signal_hook::flag::register(signal, Arc::default());
    }
}

/// The next signal does this instead of ending the program; the one after that ends it.
pub fn on_first_signal(work: impl FnOnce() + Send + 'static) {
    *FIRST.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(work));
}

/// Returns only if no signal ends this program, so that what a signal has removed is not reported as missing.
pub(crate) fn wait_if_stopping() {
    while STOPPING.load(Ordering::SeqCst) {
        thread::park();
    }
}

fn arrived() {
    let first = FIRST.lock().unwrap_or_else(PoisonError::into_inner).take();
    match first {
        Some(work) => work(),
        // In a thread of its own: removing may wait for a disk, and one more signal ends that, too.
        None if !STOPPING.swap(true, Ordering::SeqCst) => drop(thread::spawn(stop)),
        None => end_process(Exit::Stopped),
    }
}

fn stop() {
    unfinished::abandon_all();
    let (said, hear) = mpsc::channel();
    thread::spawn(move || {
        report("error: stopped before the end; no unfinished output is left");
        let _ = said.send(());
    });
    let _ = hear.recv_timeout(LAST_WORDS);
    end_process(Exit::Stopped);
}

/// Removes everything unfinished, and ends the process without the destructors of libraries, whose threads still work.
pub fn end_at_once(exit: Exit) -> ! {
    unfinished::abandon_all();
    end_process(exit)
}

fn end_process(exit: Exit) -> ! {
    signal_hook::low_level::exit(i32::from(exit.code()))
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
