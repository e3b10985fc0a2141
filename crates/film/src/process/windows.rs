//! Processes of Windows.

use std::os::windows::process::CommandExt;
use std::process::{Command, ExitStatus};

use windows_sys::Win32::System::Threading::CREATE_NEW_PROCESS_GROUP;

/// The first of the codes with which Windows ends a program, such as 0xC0000005: "NTSTATUS Values" in Microsoft's
/// reference.
const FIRST_ERROR: u32 = 0xC000_0000;

/// Starts the program in its own process group: Ctrl-C in a console reaches only the caller, which decides what is
/// kept.
pub(crate) fn in_own_group(command: &mut Command) {
    command.creation_flags(CREATE_NEW_PROCESS_GROUP);
}

/// How the system has ended a program; `None` if it ended by itself.
pub(crate) fn ended_by_system(status: ExitStatus) -> Option<String> {
    let code = status.code()?.cast_unsigned();
    (code >= FIRST_ERROR).then(|| format!("was ended by error {code:#010x}"))
}
