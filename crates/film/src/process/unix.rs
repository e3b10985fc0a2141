//! Processes of Unix.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};

/// SIGXFSZ of Linux.
const SIZE_SIGNAL: i32 = 25;

/// Starts the program in its own process group: Ctrl-C in a terminal reaches only the caller, which decides what is
/// kept.
pub(crate) fn in_own_group(command: &mut Command) {
    command.process_group(0);
}

/// How the system has ended a program; `None` if it ended by itself.
pub(crate) fn ended_by_system(status: ExitStatus) -> Option<String> {
    Some(match status.signal()? {
        SIZE_SIGNAL => "stopped: the file became larger than this process may write".to_owned(),
        signal => format!("was ended by signal {signal}"),
    })
}
