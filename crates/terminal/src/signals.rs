//! Handling of Ctrl-C and of the signals that ask a process to end.
//!
//! Libraries do not handle signals. They list what is unfinished, and a program that calls [`stop_on_signals`] removes
//! it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use tileforge_files::unfinished;

use crate::system::events;
use crate::{Exit, report};

/// What the first signal does instead of ending the program.
static FIRST: Mutex<Option<Box<dyn FnOnce() + Send>>> = Mutex::new(None);
/// Whether the program ends because of a signal.
static STOPPING: AtomicBool = AtomicBool::new(false);
/// How long the last message may take, because standard error may have no reader.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// From now on, Ctrl-C and the signals that ask a process to end remove everything unfinished and end this program
/// with [`Exit::Stopped`]; a further signal ends it at once. Signals that were ignored when this program started, for
/// example through `nohup`, stay ignored.
///
/// From now on, writing more to a file than the system allows is an error, as on a full disk, and no longer ends the
/// program.
pub fn stop_on_signals() {
    if let Err(error) = events::listen(arrived) {
        report(&format!("warning: a signal will leave unfinished files: {error}"));
    }
}

/// Ignores Ctrl-C, for a process that ends with its parent: a Ctrl-C that reaches both is handled by the parent.
pub fn leave_signals_to_parent() {
    events::leave_to_parent();
}

/// The next signal calls `work` instead of ending the program; the signal after that ends it.
pub fn on_first_signal(work: impl FnOnce() + Send + 'static) {
    *FIRST.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(work));
}

/// Returns only if no signal is ending this program, so that files that a signal has removed are not reported as
/// missing.
pub(crate) fn wait_if_stopping() {
    while STOPPING.load(Ordering::SeqCst) {
        thread::park();
    }
}

fn arrived() {
    let first = FIRST.lock().unwrap_or_else(PoisonError::into_inner).take();
    match first {
        Some(work) => work(),
        // In a separate thread, because removing may wait for a disk: a further signal can then still end the program.
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
    events::end_process(exit.code())
}
