//! Processes of Linux.

use nix::sys::personality::{self, Persona};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use std::env;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};

/// Makes this process end when its parent ends, whose process number is `parent`.
///
/// # Errors
/// The system's error, or the parent has already ended.
pub(in super::super) fn end_with_parent(parent: u32) -> io::Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    if nix::unistd::getppid().as_raw().cast_unsigned() != parent {
        return Err(io::Error::other("the process that asked for the plan has ended"));
    }
    Ok(())
}

/// Turns off address space randomisation. This takes effect in a new program, so the program replaces itself with a
/// new start of itself. Returns whether addresses are fixed; some containers do not allow it.
pub(in super::super) fn fix_addresses() -> io::Result<bool> {
    let Ok(now) = personality::get() else { return Ok(false) };
    if now.contains(Persona::ADDR_NO_RANDOMIZE) {
        return Ok(true);
    }
    if personality::set(now | Persona::ADDR_NO_RANDOMIZE).is_err() {
        return Ok(false);
    }
    let mut arguments = env::args_os();
    let mut again = Command::new(env::current_exe()?);
    if let Some(name) = arguments.next() {
        again.arg0(name);
    }
    // Returns only if it fails.
    Err(again.args(arguments).exec())
}

/// How the system ended a process; `None` if it ended by itself.
pub(in super::super) fn ended_by_system(status: ExitStatus) -> Option<String> {
    Some(match status.signal()? {
        9 => "it was killed, which the system does when memory is short".to_owned(),
        signal => format!("it crashed (signal {signal})"),
    })
}
