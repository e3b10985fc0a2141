//! Stops work on Ctrl-C.

use tileforge_runtime::host::Cancel;
use tileforge_terminal::on_first_signal;

/// A flag that Ctrl-C and termination signals set. A second signal ends the process at once, because the flag does not
/// end every wait, such as for a pipe that is not read.
pub(crate) fn stopped_by_signals() -> Cancel {
    let cancel = Cancel::new();
    let flag = cancel.clone();
    on_first_signal(move || flag.cancel());
    cancel
}
