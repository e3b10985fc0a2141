//! Processes of Windows. The builder's bindings are not compiled for Windows yet, so no plans are built there.

use std::io;
use std::process::ExitStatus;

/// The first of the codes with which Windows ends a process, such as 0xC0000005: "NTSTATUS Values" in Microsoft's
/// reference.
const FIRST_ERROR: u32 = 0xC000_0000;

/// Does nothing: when the parent ends, its pipe closes, and this process ends at its next answer.
pub(in super::super) fn end_with_parent(_parent: u32) -> io::Result<()> {
    Ok(())
}

/// Whether addresses are fixed. Windows fixes a program's addresses at link time, but not the addresses of its heap.
pub(in super::super) fn fix_addresses() -> io::Result<bool> {
    Ok(false)
}

/// How the system ended a process; `None` if it ended by itself.
pub(in super::super) fn ended_by_system(status: ExitStatus) -> Option<String> {
    let code = status.code()?.cast_unsigned();
    (code >= FIRST_ERROR).then(|| format!("it crashed (error {code:#010x})"))
}
