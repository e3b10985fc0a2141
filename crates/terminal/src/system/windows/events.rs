//! Events of the console: Ctrl-C, Ctrl-Break, a window that is closed, a user who logs off, a machine that shuts down.
//! Windows calls a handler for them in a thread of its own.
//!
//! Unsafe code: Windows calls the handler with a number, and the handler does not access memory of other threads'
//! stacks. Ending the process at once runs no further code of this program.
#![allow(unsafe_code)]

use std::io;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use windows_sys::Win32::System::Console::{CTRL_BREAK_EVENT, CTRL_C_EVENT, SetConsoleCtrlHandler};
use windows_sys::Win32::System::Threading::{GetCurrentProcess, TerminateProcess};
use windows_sys::core::BOOL;

/// The function that every event calls.
static ARRIVED: OnceLock<fn()> = OnceLock::new();
/// For events that cannot be refused, Windows ends the process when the handler returns, or after some seconds. So the
/// handler waits this long.
const LONGEST: Duration = Duration::from_secs(60);

/// Calls `arrived` for every event that asks the process to end. If Ctrl-C was ignored when this program started, it
/// stays ignored.
pub(crate) fn listen(arrived: fn()) -> io::Result<()> {
    // Only the first caller's function is kept: a program calls this once.
    let _ = ARRIVED.set(arrived);
    // SAFETY: see the module's text.
    match unsafe { SetConsoleCtrlHandler(Some(handle), 1) } {
        0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

unsafe extern "system" fn handle(event: u32) -> BOOL {
    if let Some(arrived) = ARRIVED.get() {
        arrived();
    }
    if !matches!(event, CTRL_C_EVENT | CTRL_BREAK_EVENT) {
        // The work that `arrived` has begun ends the process earlier.
        thread::sleep(LONGEST);
    }
    1
}

/// Ignores Ctrl-C: a Ctrl-C that also reaches the parent process is handled by the parent.
pub(crate) fn leave_to_parent() {
    // SAFETY: without a handler, the call only makes the process ignore Ctrl-C. If it fails, this process only ends a
    // little earlier.
    let _ = unsafe { SetConsoleCtrlHandler(None, 1) };
}

/// Ends the process without the destructors of libraries, whose threads still work.
pub(crate) fn end_process(code: u8) -> ! {
    // SAFETY: see the module's text. The handle of this process is always valid.
    unsafe { TerminateProcess(GetCurrentProcess(), u32::from(code)) };
    std::process::abort()
}
