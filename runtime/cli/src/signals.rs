//! What Ctrl-C does.

use tileforge_runtime::executor::Cancel;

use super::failure::Failure;

/// A flag that Ctrl-C and the signals that ask a process to end set; the second of them ends it at once.
pub(crate) fn stopped_by_signals() -> Result<Cancel, Failure> {
    let cancel = Cancel::new();
    let flag = cancel.clone();
    let set = ctrlc::set_handler(move || {
        if flag.is_cancelled() {
            // Something waits that nothing here can end, such as a pipe that nobody reads.
            std::process::exit(i32::from(tileforge_terminal::Exit::Stopped.code()));
        }
        flag.cancel();
    });
    set.map_err(|error| Failure::Usage(format!("signals cannot be handled: {error}")))?;
    Ok(cancel)
}
