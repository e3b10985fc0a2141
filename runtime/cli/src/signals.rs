//! What Ctrl-C does to work that can be stopped in the middle.

use tileforge_runtime::host::Cancel;
use tileforge_terminal::on_first_signal;

/// A flag that Ctrl-C and the signals that ask a process to end set; the second of them ends the process at once, since
/// something may wait that the flag does not end, such as a pipe that is not read.
pub(crate) fn stopped_by_signals() -> Cancel {
    let cancel = Cancel::new();
    let flag = cancel.clone();
    on_first_signal(move || flag.cancel());
    cancel
}
